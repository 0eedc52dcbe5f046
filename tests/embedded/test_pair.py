"""The pair of two vocabularies that is drafted with by default: the text is still the target's own."""

import pytest
import torch

import draftwise

from .conftest import PROMPTS

TARGET, DRAFT = "qwen2.5-coder-1.5b", "smollm2-135m"
SAMPLED = {"tokens": 24, "temperature": 0.8, "top_p": 0.95, "k": 3, "baseline": True}

pytestmark = pytest.mark.slow


def test_in_bfloat16_a_sound_run_is_no_fault():
    with draftwise.load(TARGET, DRAFT, dtype="bfloat16", runner="eager") as engine:
        result = engine.generate(PROMPTS[2], tokens=16, k=3, baseline=True)
    assert result.counters.emitted == 16
    assert not result.identity.fault


@pytest.fixture(scope="module")
def pair():
    with draftwise.load(TARGET, DRAFT, dtype="float32", runner="eager") as engine:
        yield engine


@pytest.mark.parametrize("prompt", PROMPTS[:6])
def test_greedy_text_is_what_transformers_writes(pair, prompt):
    target = pair.target
    ids = torch.tensor([target.tokenizer.chat([draftwise.Message("user", prompt)])])
    with torch.inference_mode():
        written = target.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            repetition_penalty=1.0,
            max_new_tokens=32,
            eos_token_id=sorted(target.end_ids),
            pad_token_id=0,
        )
    result = pair.generate(prompt, tokens=32, k=3)
    assert list(result.token_ids) == written[0, ids.shape[1] :].tolist()
    assert result.counters.drafted > 0


@pytest.mark.parametrize("prompt", [PROMPTS[0], PROMPTS[2]])
def test_sampled_text_is_plain_sampled_text_for_the_same_seed(pair, prompt):
    result = pair.generate(prompt, seed=3, **SAMPLED)
    assert result.identity.identical, str(result.identity.partings)
    assert result.counters.accepted > 0


def test_sampled_text_is_plain_sampled_text_when_the_draft_writes_text(pair):
    model = pair.target.model, pair.target.tokenizer._tokenizer
    with draftwise.load(model, DRAFT, dtype="float32", foreign="string") as engine:
        result = engine.generate(PROMPTS[2], seed=3, **SAMPLED)
    assert result.identity.identical, str(result.identity.partings)
    assert result.counters.accepted > 0
