"""The graph runner, with direct calls in the place of graphs: all else about it is the same without a GPU."""

from collections.abc import Callable
from functools import partial

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from draftwise.models.cache import SlotLayer
from draftwise.models.eager import EagerRunner
from draftwise.models.graph import GraphRunner, Pass, direct
from draftwise.models.row import Row
from draftwise.models.runner import Read
from draftwise.testing.toys import CONFIGS, VOCAB_SIZE, WINDOW, toy
from tests.models.architectures import ATTENTION, tiny
from tests.models.rig import (  # noqa: F401
    alone,
    assert_near,
    buffers,
    one_thread,
    raise_once,
    read,
    text,
)

kinds = pytest.mark.parametrize("kind", CONFIGS)
errors = pytest.mark.parametrize("error", (RuntimeError, MemoryError, KeyboardInterrupt))


class Recorder:
    """Captures like a graph: tries the pass, and leaves every result in the same place.

    It notes what it captured, and between two calls of a pass nothing may have moved.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.passes = 0
        self.captured: list[tuple[int, int, int]] = []

    def begin(self, device: torch.device) -> Callable[[Pass], Pass]:
        self.begun += 1
        self.shared = torch.zeros(32, VOCAB_SIZE)
        return self.capture

    def capture(self, run: partial) -> Pass:
        runner = run.func.__self__
        self.captured.append(run.args)
        run()
        before = addresses(runner)

        def replay() -> torch.Tensor:
            assert addresses(runner) == before, "a buffer moved under a captured pass"
            self.passes += 1
            self.shared[: run.args[1]] = run()
            assert addresses(runner) == before, "a captured pass moved a buffer"
            return self.shared[: run.args[1]]

        return replay


def addresses(runner: GraphRunner) -> list[int]:
    """Of every buffer; layers that share another's have none."""
    both = [(layer.key_buffer, layer.value_buffer) for layer in runner._cache.layers]
    return [buffer.data_ptr() for pair in both for buffer in pair if buffer is not None]


def graph(kind: str = "llama", recorder: Recorder | None = None) -> tuple[GraphRunner, EagerRunner]:
    """A graph runner, and the eager one beside it as its oracle."""
    model = toy(kind, dtype=torch.float32)
    return GraphRunner(model, begin=(recorder or Recorder()).begin), EagerRunner(model)


def greedy(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


@kinds
def test_every_width_of_a_read_is_the_eager_runners(kind: str) -> None:
    runner, oracle = graph(kind)
    row, beside = runner.add_row(), oracle.add_row()
    for count in (5, *range(1, 20), 31, 32, 33, 1):
        tokens = text(count, seed=count)
        assert_near(read(runner, row, tokens), read(oracle, beside, tokens))
        assert runner.length(row) == oracle.length(beside)


@kinds
def test_a_row_is_cropped_anywhere_and_reads_on(kind: str) -> None:
    runner, _ = graph(kind)
    row, ids = runner.add_row(), text(4 * WINDOW)
    for length in range(len(ids)):
        runner.crop(row, 0)
        read(runner, row, ids, 0)
        runner.crop(row, length)
        other = text(3, seed=length)
        assert_near(read(runner, row, other), alone(runner._model, ids[:length] + other, 3))


@pytest.mark.parametrize("kind", ATTENTION)
def test_architectures_that_are_run_eagerly_run_from_fixed_buffers(kind: str) -> None:
    model, ids = tiny(ATTENTION[kind](), torch.float32), text(40)
    runner, oracle = GraphRunner(model, begin=Recorder().begin), EagerRunner(model)
    row, beside = runner.add_row(), oracle.add_row()
    for begin, end in ((0, 6), (6, 7), (7, 8), (8, 13), (13, 40)):
        expected = read(oracle, beside, ids[begin:end])
        read(runner, row, text(3, seed=end))
        runner.crop(row, begin)
        assert_near(read(runner, row, ids[begin:end]), expected, 1e-3)


def test_a_pass_is_captured_once_for_each_width_and_length() -> None:
    recorder = Recorder()
    runner, _ = graph(recorder=recorder)
    row = runner.add_row()
    read(runner, row, text(40))
    for count in (1, 1, 5, 8, 6, 2, 1, 3, 4):
        read(runner, row, text(count))
    assert recorder.captured == [(row, width, 256) for width in (1, 8, 2, 4)]
    assert recorder.passes == 9


def test_the_pass_that_makes_room_is_not_captured_and_those_behind_it_are_captured_anew() -> None:
    recorder = Recorder()
    runner, oracle = graph(recorder=recorder)
    row, beside = runner.add_row(), oracle.add_row()
    for count in (255, 1, 1, 1, 1):
        tokens = text(count, seed=count)
        assert_near(read(runner, row, tokens), read(oracle, beside, tokens))
    assert {shape[2] for shape in buffers(runner)} == {512}
    assert recorder.captured == [(row, 1, 256), (row, 1, 512)]
    runner.crop(row, 20)
    oracle.crop(beside, 20)
    assert_near(read(runner, row, [7]), read(oracle, beside, [7]))
    assert recorder.captured[2:] == [(row, 1, 256)]  # a short row does not look at 512 positions
    assert recorder.begun == 2


def test_a_chat_grows_over_several_lengths_and_forgets_nothing() -> None:
    """Row by row of a conversation: long reads, drafts, corrections, then more than the buffers hold."""
    runner, oracle = graph("qwen2")
    with Row(runner) as row, Row(oracle) as beside:
        ids: list[int] = []
        for turn in range(6):
            ids += text(90 + 37 * turn, seed=turn)
            for step in range(6):
                guess = ids + text(4, seed=100 + step)
                assert_near(row.logits(guess, 5), beside.logits(guess, 5))
                ids += text(2, seed=step)
    assert len(ids) > 1024


def test_rows_of_one_runner_have_passes_of_their_own() -> None:
    recorder = Recorder()
    runner, oracle = graph(recorder=recorder)
    rows = runner.add_row(), runner.add_row()
    for row in rows:
        assert oracle.add_row() == row
    for step in range(4):
        for row in rows:
            tokens = text(1 + step, seed=10 * row + step)
            assert_near(read(runner, row, tokens), read(oracle, row, tokens))
    third = runner.add_row(), oracle.add_row()  # and needs more places, which moves them all
    for row in (rows[0], third[0], rows[1]):
        assert_near(read(runner, row, [5]), read(oracle, row, [5]))
    assert recorder.captured[-2:] == [(third[0], 1, 256), (rows[1], 1, 256)]
    assert (rows[0], 1, 256) not in recorder.captured  # which made room, at first and for the third
    together = [Read(rows[0], [1, 2], 2), Read(third[0], [3], 1)]
    for got, expected in zip(runner.read(together), oracle.read(together), strict=True):
        assert_near(got.logits, expected.logits)


@kinds
def test_a_full_context_is_not_exceeded_by_what_fills_a_pass_up(kind: str) -> None:
    """GPT-2 has 512 position vectors: 3 tokens at the end, filled up to 4, must ask for no 513th."""
    runner, oracle = graph(kind)
    row, beside, ids = runner.add_row(), oracle.add_row(), text(512)
    for begin, end in ((0, 500), (500, 509), (509, 512)):
        expected = read(oracle, beside, ids[begin:end])
        assert_near(read(runner, row, ids[begin:end]), expected)
    assert {shape[2] for shape in buffers(runner)} == {512}


def test_only_the_logits_asked_for_come_back_and_they_stay() -> None:
    runner, _ = graph()
    row, ids = runner.add_row(), text(12)
    kept = []
    for num in (0, 1, 5, 12):
        runner.crop(row, 0)
        kept.append(read(runner, row, ids, num))
    for num, logits in zip((0, 1, 5, 12), kept, strict=True):
        assert logits.shape == (num, VOCAB_SIZE)
        assert torch.equal(logits, kept[-1][12 - num :])


def test_hidden_states_come_when_asked_for() -> None:
    runner, oracle = graph()
    rows = runner.add_row(), oracle.add_row()
    got, expected = (
        each.read([Read(row, text(5), 2)], hidden_layers=(1, 3))[0]
        for each, row in zip((runner, oracle), rows, strict=True)
    )
    assert got.hidden.keys() == {1, 3}
    for layer in got.hidden:
        assert_near(got.hidden[layer], expected.hidden[layer])


@kinds
@pytest.mark.parametrize("start", [1, 40, 250], ids=lambda n: f"behind {n}")
def test_a_block_is_what_reading_token_by_token_would_have_drafted(kind: str, start: int) -> None:
    runner, oracle = graph(kind)
    row, beside, ids = runner.add_row(), oracle.add_row(), text(start)
    for k in (1, 2, 9):  # behind 250 the buffers grow in the midst of a block
        runner.crop(row, 0)
        oracle.crop(beside, 0)
        drafted = runner.draft(row, ids, k, greedy).tolist()
        expected = [int(read(oracle, beside, ids, 1).argmax())]
        while len(expected) < k:
            expected.append(int(read(oracle, beside, expected[-1:], 1).argmax()))
        assert drafted == expected
        assert runner.length(row) == oracle.length(beside) == start + k - 1
        assert_near(read(runner, row, [3]), read(oracle, beside, [3]))


@kinds
def test_a_block_that_lies_on_the_device_is_read_like_any_tokens(kind: str) -> None:
    runner, oracle = graph(kind)
    row, beside = runner.add_row(), oracle.add_row()
    for count, k in ((9, 3), (1, 1), (2, 4), (1, 31), (1, 40)):
        tokens, block = text(count, seed=k), text(k, seed=100 + k)
        got = runner.read_block(row, tokens, torch.tensor(block))
        assert_near(got, read(oracle, beside, [*tokens, *block], k + 1))
        assert runner.length(row) == oracle.length(beside)
        runner.crop(row, runner.length(row) - k // 2)
        oracle.crop(beside, oracle.length(beside) - k // 2)


def test_whoever_chooses_sees_the_logits_of_each_token_and_may_keep_them() -> None:
    runner, oracle = graph()
    row, beside, seen = runner.add_row(), oracle.add_row(), []

    def second_best(logits: torch.Tensor) -> torch.Tensor:
        seen.append(logits)
        return logits.topk(2).indices[:, 1]

    drafted = runner.draft(row, text(9), 4, second_best).tolist()
    assert_near(torch.cat(seen), read(oracle, beside, [*text(9), *drafted[:-1]], 4))
    assert drafted == [int(logits[0].topk(2).indices[1]) for logits in seen]


@errors
@pytest.mark.parametrize("warm", [False, True], ids=["first pass", "captured"])
def test_a_read_broken_off_leaves_the_row_as_it_was(
    error: type[BaseException], warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, oracle = graph()
    row, beside = runner.add_row(), oracle.add_row()
    if warm:
        for tokens in (text(40), [1], [2]):
            read(runner, row, tokens)
            read(oracle, beside, tokens)
    length = runner.length(row)
    raise_once(monkeypatch, runner._model.model.layers[1].mlp, "forward", error)
    with pytest.raises(error):
        read(runner, row, [3])
    assert runner.length(row) == length
    monkeypatch.undo()
    assert_near(read(runner, row, [4, 5]), read(oracle, beside, [4, 5]))


@errors
@pytest.mark.parametrize("on", range(1, 7), ids=lambda on: f"buffer {on}")
def test_buffers_may_fail_to_grow_anywhere_under_a_captured_pass(
    error: type[BaseException], on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, oracle = graph()
    row, beside = runner.add_row(), oracle.add_row()
    for tokens in (text(254), [1], [2]):
        read(runner, row, tokens)
        read(oracle, beside, tokens)
    raise_once(monkeypatch, SlotLayer, "_fitting", error, on)
    with pytest.raises(error):
        read(runner, row, [3])
    monkeypatch.undo()
    runner.crop(row, 250)
    oracle.crop(beside, 250)
    for tokens in ([4], text(9), [5]):  # first by a pass over 256 positions, some in larger buffers
        assert_near(read(runner, row, tokens), read(oracle, beside, tokens))


def test_a_block_broken_off_is_cropped_and_drafted_again() -> None:
    runner, _ = graph()
    row, calls = runner.add_row(), []

    def tired(logits: torch.Tensor) -> torch.Tensor:
        calls.append(logits)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return greedy(logits)

    with pytest.raises(KeyboardInterrupt):
        runner.draft(row, text(9), 5, tired)
    runner.crop(row, 0)
    again = runner.draft(row, text(9), 5, greedy).tolist()
    fresh = GraphRunner(runner._model, begin=lambda device: direct)
    assert again == fresh.draft(fresh.add_row(), text(9), 5, greedy).tolist()


def test_what_cannot_be_read_is_refused_before_anything_happens() -> None:
    runner, _ = graph()
    row, gone = runner.add_row(), runner.add_row()
    runner.remove_row(gone)
    read(runner, row, text(5))
    with pytest.raises(KeyError):
        read(runner, gone, [1])
    with pytest.raises(ValueError, match="once in a pass"):
        runner.read([Read(row, [1]), Read(row, [2])])
    assert runner.length(row) == 5


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 60), st.integers(0, 99)), max_size=20))
def test_any_history_reads_like_a_run_without_a_cache(kind: str, history: list) -> None:
    runner, _ = graph(kind)
    row, held = runner.add_row(), []
    for kept, count, seed in history:
        length = round(kept * len(held))
        runner.crop(row, length)
        held = held[:length] + text(count, seed)
        assert_near(read(runner, row, held[length:]), alone(runner._model, held, count))


def test_it_says_what_it_is() -> None:
    runner, oracle = graph()
    assert runner.info.name == "graph"
    assert runner.info.logit_width == oracle.info.logit_width
    assert runner.info.max_rows is None
