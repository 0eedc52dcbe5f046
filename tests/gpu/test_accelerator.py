"""On a CUDA or MPS device: the same text as on the CPU. Each test skips itself where there is none.

Run with `python -m pytest -m gpu`.
"""

import pytest
import torch

import draftwise
from draftwise.core.noise import gumbel
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import noisy, toy

pytestmark = pytest.mark.gpu

HERE = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
PROMPT = "Tell me about rivers, and about rivers again."


@pytest.fixture(params=HERE)
def device(request):
    if not HERE[request.param]:
        pytest.skip(f"no {request.param} device")
    return request.param


@pytest.fixture
def pair(tmp_path):
    target = toy("llama", dtype=torch.float32, vocab_size=NUM_TOKENS)
    for name, model in (("target", target), ("draft", noisy(target, 0.05))):
        model.save_pretrained(tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
    return str(tmp_path / "target"), str(tmp_path / "draft")


@pytest.mark.parametrize("draft_device", [None, "cpu"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_the_cpu_and_proved(pair, device, draft_device, temperature):
    asked = {"tokens": 40, "k": 4, "temperature": temperature, "seed": 5}
    with draftwise.load(*pair, device="cpu", dtype="float32") as engine:
        expected = engine.generate(PROMPT, **asked)
    on = {"device": device, "draft_device": draft_device, "dtype": "float32"}
    with draftwise.load(*pair, **on) as engine:
        result = engine.generate(PROMPT, baseline=True, **asked)
    assert not result.identity.fault
    assert result.token_ids == expected.token_ids
    assert result.settings["device"].startswith(device)


def test_half_precision_is_the_default_and_never_a_fault(pair, device):
    with draftwise.load(*pair, device=device) as engine:
        assert engine.target.model.dtype in (torch.float16, torch.bfloat16)
        assert not engine.generate(PROMPT, tokens=40, baseline=True).identity.fault


def test_noise_is_the_same_on_every_device(device):
    here = gumbel((1, 2), 50_000, torch.device("cpu"))
    there = gumbel((1, 2), 50_000, torch.device(device)).cpu()
    torch.testing.assert_close(there.double(), here, rtol=1e-4, atol=1e-5)
