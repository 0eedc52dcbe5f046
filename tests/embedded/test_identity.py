"""On the embedded model in float32: the text is the target's own, and a broken cache is found out."""

import pytest
import torch

import draftwise
from draftwise.core.errors import FaultError
from draftwise.core.proposals import Proposal
from draftwise.drafters.none import NoDraft
from draftwise.models.eager import EagerRunner

from .conftest import PROMPTS

FEW, KS = (PROMPTS[2], PROMPTS[4]), (1, 2, 3, 5, 8)


@pytest.mark.parametrize("prompt", FEW)
@pytest.mark.parametrize("k", [1, 5])
def test_greedy_text_is_what_transformers_writes(engine, reference, prompt, k):
    result = engine.generate(prompt, tokens=32, k=k)
    assert list(result.token_ids) == reference(prompt)
    if engine.drafter.name == "self":
        assert result.counters.discarded == 0


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("k", KS)
def test_greedy_text_is_what_transformers_writes_on_every_prompt_at_every_k(
    engine, reference, prompt, k
):
    assert list(engine.generate(prompt, tokens=32, k=k).token_ids) == reference(prompt)


def sampled(seed):
    return {
        "tokens": 32,
        "temperature": 0.8,
        "top_p": 0.95,
        "repetition_penalty": 1.1,
        "seed": seed,
    }


def test_sampled_text_is_plain_sampled_text_for_the_same_seed(engine):
    result = engine.generate(PROMPTS[0], k=4, baseline=True, **sampled(3))
    assert result.identity.identical


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("k", [1, 4, 8])
def test_sampled_text_is_plain_sampled_text_on_every_prompt(engine, prompt, k):
    result = engine.generate(prompt, k=k, baseline=True, **sampled(k))
    assert result.identity.identical, str(result.identity.partings)


class ForgetsToCrop(EagerRunner):
    """Faulty: a rollback leaves one rejected token in the row."""

    def crop(self, row, length):
        if length < self.length(row):
            self._cache.lengths[row] = min(length + 1, self.length(row))


class AlwaysWrong(NoDraft):
    """Proposes tokens that no text wants, so that every round rolls back."""

    name = "wrong"

    def propose(self, ids, k, sampling, randomness, goes_on=None):
        return Proposal(tuple(range(4000, 4000 + k)))


def test_a_draft_that_is_always_wrong_changes_nothing(reference):
    with draftwise.load("smollm2-135m", AlwaysWrong(), dtype="float32") as engine:
        result = engine.generate(PROMPTS[0], tokens=32, k=3)
    assert list(result.token_ids) == reference(PROMPTS[0])
    assert result.counters.accepted == 0
    assert result.counters.rounds == 32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_corrupted_cache_fails_the_run(dtype, monkeypatch):
    monkeypatch.setattr("draftwise.engine.runners.EagerRunner", ForgetsToCrop)
    with (
        draftwise.load("smollm2-135m", AlwaysWrong(), dtype=dtype, runner="eager") as engine,
        pytest.raises(FaultError, match="FAULT"),
    ):
        engine.generate(PROMPTS[0], tokens=32, k=3, baseline=True)


def test_in_bfloat16_a_sound_run_is_identical_or_a_near_tie_and_never_a_fault():
    with draftwise.load("smollm2-135m", "self", dtype="bfloat16", runner="eager") as engine:
        for seed, prompt in enumerate(FEW):
            result = engine.generate(prompt, tokens=32, k=5, baseline=True)
            assert not result.identity.fault
            result = engine.generate(prompt, k=3, baseline=True, **sampled(seed))
            assert not result.identity.fault


@pytest.mark.slow
def test_in_bfloat16_no_prompt_is_a_fault():
    with draftwise.load("smollm2-135m", "self", dtype="bfloat16", runner="eager") as engine:
        for prompt in PROMPTS:
            for k in KS:
                engine.generate(prompt, tokens=48, k=k, baseline=True)


def test_the_next_turn_of_a_chat_reads_only_what_is_new(engine):
    turns = [draftwise.Message("user", PROMPTS[4])]
    answer = engine.generate(turns, tokens=24)
    turns += [draftwise.Message("assistant", answer.text), draftwise.Message("user", "Thank you.")]
    result = engine.generate(turns, tokens=8)
    assert result.counters.prefill_tokens < 40 < result.counters.prompt_tokens
    ids = torch.tensor([engine.target.tokenizer.chat(turns)])
    with torch.inference_mode():
        alone = engine.target.model(ids).logits[0, -1].argmax()
    assert result.token_ids[0] == int(alone)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def converted(request):
    """The embedded target on OpenVINO, drafted for by itself in a second row."""
    pytest.importorskip("openvino")
    options = {"dtype": request.param, "runner": "openvino"}
    with draftwise.load("smollm2-135m", "self", **options) as engine:
        yield engine


@pytest.mark.parametrize("sampled", [{}, {"temperature": 0.8, "seed": 3}])
def test_a_converted_model_writes_its_own_plain_text(converted, sampled):
    """Against its own plain text: another runner rounds otherwise, and near-ties part."""
    for prompt in PROMPTS[:3]:
        result = converted.generate(prompt, tokens=32, k=4, baseline=True, **sampled)
        assert not result.identity.fault
        assert result.settings["runner"] == "openvino"
        assert result.counters.accepted >= 0.6 * result.counters.drafted > 0


def test_in_float32_a_converted_model_writes_what_transformers_writes(reference):
    pytest.importorskip("openvino")
    with draftwise.load(
        "smollm2-135m", "lookup", dtype="float32", runner="openvino", threads=2
    ) as engine:
        for prompt in PROMPTS[:3]:
            result = engine.generate(prompt, tokens=32, k=5)
            assert list(result.token_ids) == reference(prompt)


def test_the_faster_runner_is_measured_once_and_kept(monkeypatch):
    pytest.importorskip("openvino")
    from draftwise.engine import runners

    with draftwise.load("smollm2-135m", "none") as engine:
        first = engine.generate("Hi", tokens=2).settings["runner"]

    def measured_again(*_):
        raise AssertionError("what is known was measured again")

    monkeypatch.setattr(runners, "_milliseconds", measured_again)
    with draftwise.load("smollm2-135m", "none") as engine:
        assert engine.generate("Hi", tokens=2).settings["runner"] == first
