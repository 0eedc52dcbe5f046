"""The one cache rule: a row holds a prefix of the sequence; what it lacks is read, and no more."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.models.runner import Read, Reading, Runner, RunnerInfo
from draftwise.testing.toys import toy
from tests.models.rig import alone, assert_near, one_thread, text  # noqa: F401

CHUNK = 1024
INFO = RunnerInfo(
    "counting", torch.device("cpu"), torch.float32, "float32", 1, 4, None, (), 0, longest_read=CHUNK
)


class SpyingRunner(EagerRunner):
    """Notes how many tokens each pass reads, and may break off before or after one."""

    def __init__(self, model) -> None:
        super().__init__(model)
        self.passes: list[int] = []
        self.break_off: str | None = None

    def read(self, reads: Sequence[Read], hidden_layers: Collection[int] = ()) -> list[Reading]:
        if self.break_off == "before":
            raise KeyboardInterrupt
        readings = super().read(reads, hidden_layers)
        self.passes.append(sum(len(each.tokens) for each in reads))
        if self.break_off == "after":
            raise KeyboardInterrupt
        return readings


@dataclass
class CountingRunner:
    """A runner with no model behind it, for texts too long for a toy."""

    passes: list[tuple[int, int]] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    info: RunnerInfo = INFO

    def add_row(self) -> int:
        self.held[0] = 0
        return 0

    def remove_row(self, row: int) -> None:
        del self.held[row]

    def length(self, row: int) -> int:
        return self.held[row]

    def crop(self, row: int, length: int) -> None:
        assert length <= self.held[row]
        self.held[row] = length

    def read(self, reads: Sequence[Read], hidden_layers: Collection[int] = ()) -> list[Reading]:
        (each,) = reads
        self.passes.append((len(each.tokens), each.num_logits))
        self.held[each.row] += len(each.tokens)
        return [Reading(torch.zeros(each.num_logits, 4))]

    def synchronize(self) -> None: ...


@pytest.fixture
def runner() -> SpyingRunner:
    return SpyingRunner(toy())


def common(one: list[int], other: list[int]) -> int:
    """Length of the common prefix, token by token."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same


# A text of a few letters only: prefixes are often common, and what was cropped often comes back.
few = st.lists(st.integers(2, 4), min_size=1, max_size=14)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(texts=st.lists(st.tuples(few, st.integers(1, 5), st.booleans()), min_size=1, max_size=8))
def test_after_any_texts_at_all_the_logits_are_those_of_a_fresh_run(texts) -> None:
    runner = SpyingRunner(toy())
    row, held = Row(runner), []
    for ids, num, prefilled in texts:
        num = min(num, len(ids))
        runner.passes.clear()
        if prefilled:
            row.prefill(ids)
            lacking = len(ids) - common(held, ids)
            assert runner.passes == ([lacking] if lacking else [])
            assert runner.length(0) == len(ids)
        else:
            assert_near(row.logits(ids, num), alone(runner._model, ids, num))
            assert runner.passes == [len(ids) - min(common(held, ids), len(ids) - num)]
        held = ids


def test_each_next_token_costs_one_pass_over_one_token(runner: SpyingRunner) -> None:
    row, ids = Row(runner), text(12)
    row.prefill(ids[:-1])
    for token in text(5, seed=1):
        assert_near(row.logits(ids), alone(runner._model, ids, 1))
        ids.append(token)
    assert runner.passes == [11, 1, 1, 1, 1, 1]
    assert (row.passes, row.tokens_read) == (6, 16)


def test_a_target_reads_the_correction_and_the_next_proposal_in_one_pass(
    runner: SpyingRunner,
) -> None:
    """C committed tokens: C - 1 held before a round; n of k accepted: C + n held after the next."""
    row, ids = Row(runner), text(10)
    row.prefill(ids[:-1])
    drafted = [20, 21, 22]
    row.logits(ids + drafted, 4)
    ids += [20, 33]  # one of three is accepted, then the correction
    assert_near(row.logits([*ids, 40, 41, 42], 4), alone(runner._model, [*ids, 40, 41, 42], 4))
    assert runner.passes == [9, 4, 4]


def test_after_full_acceptance_the_draft_reads_two_tokens(runner: SpyingRunner) -> None:
    row, ids = Row(runner), text(10)
    for token in (20, 21, 22):
        row.logits(ids)
        ids.append(token)  # the last one is never read: it goes to the target
    ids.append(50)  # all three accepted, and the bonus token
    assert_near(row.logits(ids), alone(runner._model, ids, 1))
    assert runner.passes == [10, 1, 1, 2]


def test_a_token_proposed_again_after_it_was_rejected_is_read_in_its_new_place(
    runner: SpyingRunner,
) -> None:
    row, ids = Row(runner), text(10)
    row.logits([*ids, 20, 21, 22], 4)
    for again in ([30, 20, 21, 22], [20, 20, 21, 22], [20, 22, 21], [20, 21, 22]):
        assert_near(row.logits(ids + again, 3), alone(runner._model, ids + again, 3))
    assert runner.passes == [13, 4, 4, 3, 3]  # at least what logits are asked of


def test_the_same_text_again_reads_only_what_logits_are_asked_of(runner: SpyingRunner) -> None:
    row, ids = Row(runner), text(10)
    first = row.logits(ids, 3)
    assert_near(row.logits(ids, 3), first)
    row.prefill(ids)
    assert runner.passes == [10, 3]


def test_the_next_turn_of_a_chat_reads_only_what_is_new(runner: SpyingRunner) -> None:
    row, turn = Row(runner), text(40)
    row.logits(turn)
    answer, question = text(9, seed=1), text(6, seed=2)
    for token in answer:
        turn = [*turn, token]
        row.logits(turn)
    runner.passes.clear()
    turn = turn + question
    assert_near(row.logits(turn), alone(runner._model, turn, 1))
    assert runner.passes == [6]


def test_a_shorter_text_is_held_and_nothing_else(runner: SpyingRunner) -> None:
    row, ids = Row(runner), text(10)
    row.prefill(ids)
    row.prefill(ids[:4])
    assert runner.length(0) == 4
    row.prefill([])
    assert runner.length(0) == 0
    assert runner.passes == [10]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("first", [[], text(10), text(14, seed=5)], ids=len)
def test_a_read_broken_off_costs_at_most_that_it_is_done_again(
    runner: SpyingRunner, when: str, first: list[int]
) -> None:
    row, ids = Row(runner), text(10)
    row.prefill(first)
    runner.break_off = when
    with pytest.raises(KeyboardInterrupt):
        row.logits([*ids, 20, 21], 3)
    with pytest.raises(KeyboardInterrupt):
        row.prefill(ids[:3] + text(4, seed=2))
    runner.break_off = None
    ids = [*ids, 20, 33]
    assert_near(row.logits(ids, 2), alone(runner._model, ids, 2))
    assert runner.length(0) == len(ids)


def test_rows_of_one_runner_know_nothing_of_each_other(runner: SpyingRunner) -> None:
    one, other = Row(runner), Row(runner)
    ids, others = text(12), text(7, seed=1)
    one.logits(ids)
    other.logits(others)
    assert_near(one.logits([*ids, 5]), alone(runner._model, [*ids, 5], 1))
    assert_near(other.logits([*others, 5]), alone(runner._model, [*others, 5], 1))


def test_a_row_gives_its_place_back(runner: SpyingRunner) -> None:
    with Row(runner) as row:
        row.prefill(text(5))
    with pytest.raises(KeyError):
        runner.length(0)
    with pytest.raises(RuntimeError), Row(runner):
        raise RuntimeError
    assert runner.add_row() == 0


def test_more_logits_than_tokens_are_refused_and_the_row_stays_good(runner: SpyingRunner) -> None:
    row, ids = Row(runner), text(6)
    row.prefill(ids)
    with pytest.raises(ValueError, match="token"):
        row.logits(ids[:2], 3)
    assert_near(row.logits(ids, 2), alone(runner._model, ids, 2))


def test_the_callers_list_may_change_afterwards(runner: SpyingRunner) -> None:
    row, ids = Row(runner), text(6)
    row.prefill(ids)
    ids[2] += 1
    assert_near(row.logits(ids, 1), alone(runner._model, ids, 1))


@pytest.mark.parametrize(
    ("length", "passes"),
    [
        (1, [(1, 0)]),
        (CHUNK, [(CHUNK, 0)]),
        (CHUNK + 1, [(CHUNK, 0), (1, 0)]),
        (2 * CHUNK + 452, [(CHUNK, 0), (CHUNK, 0), (452, 0)]),
    ],
)
def test_a_long_prompt_is_read_in_chunks(length: int, passes: list[tuple[int, int]]) -> None:
    runner: Runner = CountingRunner()
    row = Row(runner)
    row.prefill(list(range(length)))
    assert runner.passes == passes
    assert (row.passes, row.tokens_read) == (len(passes), length)


@pytest.mark.parametrize(
    ("length", "passes"),
    [
        (CHUNK + 5, [(CHUNK + 5, 5)]),
        (CHUNK + 6, [(CHUNK, 0), (1, 0), (5, 5)]),
        (3 * CHUNK, [(CHUNK, 0), (CHUNK, 0), (CHUNK - 5, 0), (5, 5)]),
    ],
)
def test_logits_far_ahead_are_one_pass_or_chunks_and_one_pass(
    length: int, passes: list[tuple[int, int]]
) -> None:
    runner: Runner = CountingRunner()
    assert Row(runner).logits(list(range(length)), 5).shape == (5, 4)
    assert runner.passes == passes
