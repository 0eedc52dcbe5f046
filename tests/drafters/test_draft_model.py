"""A draft model's own account: what it reads, how it draws, and what it hands over."""

from dataclasses import replace

import pytest
import torch

from draftwise.core.distributions import Dense, OneHot
from draftwise.core.noise import KeyedNoise
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.toys import VOCAB_SIZE, toy
from tests.decoding.rig import counted, plain, request, rig, some_prompt, speculate

PROMPT = some_prompt(9)
MODEL = toy("llama", seed=2)


class CountingRunner(EagerRunner):
    """Notes how many tokens each pass reads."""

    def __init__(self, model):
        super().__init__(model)
        self.widths = []

    def read(self, reads, hidden_layers=()):
        self.widths += [len(read.tokens) for read in reads]
        return super().read(reads, hidden_layers)


def state_of(ids, **sampling):
    return request(ids, **sampling).sampler.start(ids)


def logits_after(ids):
    with Row(EagerRunner(MODEL)) as row:
        return row.logits(ids)


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.7}, {"temperature": 1.0, "top_k": 5, "presence_penalty": 1.0}]
)
def test_it_hands_over_the_very_distributions_that_it_drew_from(sampling):
    session, noise = DraftModel(EagerRunner(MODEL), "draft").open(), KeyedNoise(4)
    state = state_of(PROMPT, **sampling)
    proposal = session.propose(PROMPT, 4, state, noise)
    assert isinstance(proposal.q, Dense)
    text = list(PROMPT)
    for row, token in zip(proposal.q.p, proposal.tokens, strict=True):
        expected = state.distribution(state.processed(logits_after(text)))
        assert torch.allclose(row, expected.p[0], atol=1e-12)
        assert token == KeyedNoise(4).draw(expected, len(text))[0]
        state = state.advance(token)
        text.append(token)


def test_at_temperature_zero_it_hands_over_certainties():
    proposal = DraftModel(EagerRunner(MODEL), "draft").open().propose(
        PROMPT, 3, state_of(PROMPT), KeyedNoise(1)
    )  # fmt: skip
    assert isinstance(proposal.q, OneHot)
    assert tuple(proposal.q.ids.tolist()) == proposal.tokens
    assert proposal.passes == 3


def test_after_full_acceptance_it_reads_two_tokens_in_one_pass():
    r, runner = rig("llama"), CountingRunner(toy("llama"))
    run = speculate(request(PROMPT, k=3, max_tokens=12), r.row, DraftModel(runner, "same").open())
    assert counted(run) == [(3, 3, 4)] * 3
    assert runner.widths == [12, 1, 1, 1, 2, 1, 1, 2, 1, 1]
    assert run.counters.draft_passes == 9  # prefill apart


def test_after_a_rejection_it_reads_the_correction_alone():
    r, runner = rig("llama"), CountingRunner(toy("llama", seed=5))
    run = speculate(request(PROMPT, k=3, max_tokens=4), r.row, DraftModel(runner, "other").open())
    assert counted(run) == [(3, 0, 1), (2, 0, 1), (1, 0, 1), (0, 0, 1)]
    assert runner.widths == [12, 1, 1, 1, 1, 1, 1]


def test_a_draft_in_another_dtype_drafts_for_a_target_in_float64():
    r = rig("llama")
    for dtype in (torch.float32, torch.bfloat16):
        session = DraftModel(EagerRunner(toy("llama", dtype=dtype)), "draft").open()
        for sampling in ({}, {"temperature": 0.8}):
            asked = request(PROMPT, k=3, **sampling)
            run = speculate(asked, r.row, session)
            assert run.token_ids == plain(asked, r.row).token_ids
            assert run.counters.accepted > 0
        for rule in ("rejection", "block"):
            asked = request(PROMPT, k=3, rule=rule, temperature=0.8)
            assert speculate(asked, r.row, session).counters.accepted > 0


def test_a_prompt_longer_than_a_chunk_is_read_in_chunks_that_count_as_prefill():
    runner = CountingRunner(toy("llama"))
    runner._info = replace(runner.info, longest_read=4)
    run = speculate(
        request(PROMPT, k=3, max_tokens=8), rig("llama").row, DraftModel(runner, "same").open()
    )
    assert runner.widths[:4] == [4, 4, 4, 1]
    assert run.counters.draft_passes == run.counters.drafted
    assert run.counters.discarded == 0


def test_banned_tokens_are_not_drafted_either():
    allowed = {3, 5, 8, 13, 21, 34}
    banned = tuple((token,) for token in range(VOCAB_SIZE) if token not in allowed)
    proposal = DraftModel(EagerRunner(MODEL), "draft").open().propose(
        PROMPT, 5, state_of(PROMPT, banned_words=banned), KeyedNoise(1)
    )  # fmt: skip
    assert set(proposal.tokens) <= allowed
