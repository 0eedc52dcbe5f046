"""A block that is drafted in one call is, token for token, the one that is drafted token by token."""

from collections.abc import Callable

import pytest
import torch

from draftwise.core.distributions import Dense, OneHot
from draftwise.core.noise import KeyedNoise, StreamNoise
from draftwise.drafters.drafter import DraftSession
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.graph import GraphRunner
from draftwise.models.row import Row
from draftwise.models.runner import BlockRunner
from draftwise.testing.toys import VOCAB_SIZE, noisy, toy
from tests.decoding.rig import counted, plain, request, some_prompt, speculate

PROMPT = some_prompt(9)
TARGET = toy("llama")
DRAFT = noisy(TARGET, 0.1)

samplings = pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.8}, {"temperature": 1.0, "top_k": 9, "top_p": 0.9, "min_p": 0.01}],
    ids=str,
)


class Counting(GraphRunner):
    """Notes the size of every block."""

    def __init__(self, model, context_length=None):
        super().__init__(model, context_length)
        self.blocks = []

    def draft(self, row, tokens, k, choose):
        self.blocks.append(k)
        return super().draft(row, tokens, k, choose)


def sessions(context_length: int | None = None) -> tuple[Counting, DraftSession, DraftSession]:
    runner = Counting(DRAFT, context_length)
    eager = EagerRunner(DRAFT, context_length)
    return runner, DraftModel(runner, "draft").open(), DraftModel(eager, "draft").open()


def watched(name: str, copies: list[str]) -> Callable:
    """A method of tensors that notes that it is called."""
    method = getattr(torch.Tensor, name)

    def noted(tensor, *args):
        copies.append(name)
        return method(tensor, *args)

    return noted


def proposals(block, stepwise, ids, k, noise=KeyedNoise, goes_on=None, **sampling):
    state = request(ids, **sampling).sampler.start(ids)
    return [each.propose(ids, k, state, noise(4), goes_on) for each in (block, stepwise)]


def test_only_runners_that_can_draft_blocks() -> None:
    assert isinstance(GraphRunner(DRAFT), BlockRunner)
    assert not isinstance(EagerRunner(DRAFT), BlockRunner)
    with Row(EagerRunner(DRAFT)) as row, pytest.raises(TypeError, match="eager runner"):
        row.draft(PROMPT, 2, lambda logits: logits.argmax(-1))


@samplings
@pytest.mark.parametrize("noise", [KeyedNoise, StreamNoise])
def test_tokens_and_the_law_they_were_drawn_from_are_the_same(sampling, noise) -> None:
    runner, block, stepwise = sessions()
    for ids, k in ((PROMPT, 4), (PROMPT[:7], 1), ([*PROMPT, 3, 4], 9)):
        got, expected = proposals(block, stepwise, ids, k, noise, **sampling)
        assert got.tokens == expected.tokens
        assert got.passes == expected.passes == k
        assert (got.note, got.confidence) == (expected.note, expected.confidence) == (None, None)
        if isinstance(got.q, OneHot):
            assert torch.equal(got.q.ids, expected.q.ids)
        else:
            assert isinstance(got.q, Dense)
            torch.testing.assert_close(got.q.p, expected.q.p, atol=1e-6, rtol=1e-4)
    assert runner.blocks == [4, 1, 9]


@samplings
@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_text_and_its_counts_are_the_same(sampling, k) -> None:
    _, block, stepwise = sessions()
    asked = request(PROMPT, k=k, max_tokens=40, **sampling)
    with Row(EagerRunner(TARGET)) as row:
        expected = plain(asked, row)
        one, other = speculate(asked, row, block), speculate(asked, row, stepwise)
    assert one.token_ids == other.token_ids == expected.token_ids
    assert counted(one) == counted(other)
    assert one.counters == other.counters


def test_a_full_context_ends_a_block_as_it_ends_single_tokens() -> None:
    runner, block, stepwise = sessions(context_length=len(PROMPT) + 2)
    for ids in (PROMPT, [*PROMPT, 1], [*PROMPT, 1, 2], [*PROMPT, 1, 2, 3]):
        got, expected = proposals(block, stepwise, ids, 4)
        assert got.tokens == expected.tokens
        assert (got.note, got.passes) == (expected.note, expected.passes)
    assert runner.blocks == [3, 2, 1]


@pytest.mark.parametrize(
    "asked",
    [{"goes_on": lambda confidence: len(confidence) < 2}, {"presence_penalty": 1.0}, {"k": 0}],
    ids=["confidence", "processors", "nothing"],
)
def test_what_is_decided_on_the_host_between_tokens_goes_token_by_token(asked) -> None:
    runner, block, stepwise = sessions()
    got, expected = proposals(block, stepwise, PROMPT, **{"k": 4, **asked})
    assert got.tokens == expected.tokens
    assert runner.blocks == []


def test_a_draft_whose_logits_are_no_numbers_proposes_nothing(monkeypatch) -> None:
    _runner, block, _ = sessions()
    good, _ = proposals(block, block, PROMPT, 3)
    monkeypatch.setattr(
        DRAFT.lm_head, "forward", lambda x: x.new_full((*x.shape[:2], VOCAB_SIZE), torch.nan)
    )
    wild, _ = proposals(block, block, PROMPT, 3)
    assert (wild.tokens, wild.note) == ((), "the draft model's logits are infinite or not a number")
    monkeypatch.undo()
    assert proposals(block, block, PROMPT, 3)[0].tokens == good.tokens


@samplings
@pytest.mark.parametrize("k", [1, 4])
def test_what_was_drafted_and_the_verdict_reach_the_host_in_one_copy_a_round(
    sampling, k, monkeypatch
) -> None:
    _, block, _ = sessions()
    asked = request(PROMPT, k=k, max_tokens=60, num_leading=0, **sampling)
    with Row(EagerRunner(TARGET)) as row:
        expected = plain(asked, row)
    copies = []
    for name in ("tolist", "item", "cpu", "numpy", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, watched(name, copies))
    with Row(GraphRunner(TARGET)) as row:
        run = speculate(asked, row, block)
    monkeypatch.undo()
    assert run.token_ids == expected.token_ids
    assert len(run.token_ids) == 60
    assert len(copies) == len(run.rounds)


def test_a_row_knows_what_was_drafted_behind_it_and_reads_none_of_it_again() -> None:
    runner = Counting(DRAFT)
    with Row(runner) as row:
        tokens = row.draft(PROMPT, 4, lambda logits: logits.argmax(-1))
        behind = row.logits_behind(PROMPT, tokens)
        read = row.tokens_read
        again = row.logits([*PROMPT, *tokens, 5])
        assert row.tokens_read == read + 1
    with Row(EagerRunner(DRAFT)) as row:
        torch.testing.assert_close(behind, row.logits([*PROMPT, *tokens], 5), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(again, row.logits([*PROMPT, *tokens, 5]), atol=1e-4, rtol=1e-4)
