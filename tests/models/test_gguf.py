"""GGUF files: the weights arrive whole, to the last bit, or the file is refused in one line."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from draftwise.core.errors import ModelError
from draftwise.models.gguf import (
    convert_gguf,
    gguf_end_ids,
    load_gguf_model,
    load_gguf_tokenizer,
)
from draftwise.models.loading import load_model
from tests.models.gguf_files import (
    HEADS,
    HIDDEN,
    toy_model,
    write_gguf,
)


def test_weights_are_those_of_the_file_to_the_last_bit(tmp_path: Path) -> None:
    model = toy_model()
    loaded = load_gguf_model(write_gguf(tmp_path / "toy.gguf", model=model))
    ids = torch.tensor([[5, 9, 70, 3, 260]])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, loaded(ids).logits)
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def llama3_divisors(factor: float, head_dim: int) -> np.ndarray:
    """What llama.cpp's converter writes for Llama 3.1 and later."""
    frequencies = [500000.0 ** -(2 * i / head_dim) for i in range(head_dim // 2)]
    divisors = []
    for wavelength in (2 * math.pi / frequency for frequency in frequencies):
        smooth = (8192 / wavelength - 1) / (4 - 1)
        between = 1 / ((1 - smooth) / factor + smooth)
        whole = 1.0 if wavelength < 8192 / 4 else factor
        divisors.append(between if 8192 / 4 <= wavelength <= 8192 else whole)
    return np.array(divisors, dtype=np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_keeps_its_scaled_rotary_positions(tmp_path: Path, factor: float) -> None:
    head_dim = HIDDEN // HEADS
    divisors = llama3_divisors(factor, head_dim)
    assert divisors.min() == 1
    assert divisors.max() == factor
    path = write_gguf(
        tmp_path / "toy.gguf", architecture="llama", tensors={"rope_freqs.weight": divisors}
    )
    plain = 500000.0 ** -(torch.arange(0, head_dim, 2) / head_dim)
    frequencies = load_gguf_model(path).model.rotary_emb.inv_freq
    torch.testing.assert_close(frequencies, plain / torch.from_numpy(divisors))
    convert_gguf(path, tmp_path / "folder")
    kept = AutoModelForCausalLM.from_pretrained(tmp_path / "folder").model.rotary_emb.inv_freq
    assert torch.equal(kept, frequencies)


def test_rotary_positions_scaled_in_another_way_are_read_or_refused(tmp_path: Path) -> None:
    scaling = {
        "qwen2.rope.scaling.type": "yarn",
        "qwen2.rope.scaling.factor": 4.0,
        "qwen2.rope.scaling.original_context_length": 64,
    }
    yarn = load_gguf_model(write_gguf(tmp_path / "yarn.gguf", settings=scaling))
    assert yarn.config.rope_parameters["rope_type"] == "yarn"
    assert yarn.config.rope_parameters["factor"] == 4
    assert yarn.config.rope_parameters["original_max_position_embeddings"] == 64
    scaling = {"qwen2.rope.scaling.type": "longrope"}
    with pytest.raises(ModelError, match=r"longrope.*original model's folder"):
        load_gguf_model(write_gguf(tmp_path / "long.gguf", settings=scaling))
    odd = {"rope_freqs.weight": np.array([1, 3, 2, 5, 1, 1, 1, 8], dtype=np.float32)}
    with pytest.raises(ModelError, match=r"rule of its own.*original model's folder"):
        load_gguf_model(write_gguf(tmp_path / "odd.gguf", architecture="llama", tensors=odd))


def test_a_converted_file_is_the_same_model_with_the_same_tokens_and_ends(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    settings = {"tokenizer.chat_template": template}
    path = write_gguf(tmp_path / "toy.gguf", pre="smollm", settings=settings)
    convert_gguf(path, tmp_path / "deep/folder")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "deep/folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "deep/folder")
    for name, weight in load_gguf_model(path).state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    assert tokenizer("12 hi").input_ids == load_gguf_tokenizer(path)("12 hi").input_ids
    assert tokenizer.chat_template == template
    assert set(model.generation_config.eos_token_id) == gguf_end_ids(path)
    with pytest.raises(ModelError, match="exists already"):
        convert_gguf(path, tmp_path / "deep/folder")


def test_a_conversion_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "toy.gguf")
    seen: list[list[Path]] = []

    def interrupted(self: object, folder: Path) -> None:
        seen.append(list(Path(folder).iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "transformers.PreTrainedTokenizerFast.save_pretrained", interrupted, raising=True
    )
    with pytest.raises(KeyboardInterrupt):
        convert_gguf(path, tmp_path / "folder")
    assert seen[0], "the weights were written before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["toy.gguf"]


def damaged(path: Path, kept: float) -> Path:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    return path


def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    (text := tmp_path / "text.gguf").write_text("this is no model")
    (empty := tmp_path / "empty.gguf").write_bytes(b"")
    cases = [
        (text, "is not a GGUF file"),
        (empty, "is not a GGUF file"),
        (damaged(write_gguf(tmp_path / "header.gguf"), 0.02), "cannot be read as a GGUF file"),
        (damaged(write_gguf(tmp_path / "weights.gguf"), 0.7), "cut short or damaged"),
        (write_gguf(tmp_path / "alien.gguf", architecture="rwkv7"), "architecture 'rwkv7'.*folder"),
        (write_gguf(tmp_path / "part.gguf", settings={"split.count": 3}), "one of 3 files.*merge"),
        (write_gguf(tmp_path / "thin.gguf", settings={"qwen2.block_count": 3}), "has no weights"),
    ]
    for path, told in cases:
        with pytest.raises(ModelError, match=told) as caught:
            load_model(path, device="cpu")
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_loading_is_silent_and_leaves_transformers_as_talkative_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load_gguf_model(write_gguf(tmp_path / "toy.gguf"))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
    assert capfd.readouterr() == ("", "")
