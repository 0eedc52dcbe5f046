"""The graph runner with real graphs. What it does around them, `test_graph.py` tries without a GPU."""

from collections.abc import Iterator

import pytest
import torch

from draftwise.models.eager import EagerRunner
from draftwise.models.graph import GraphRunner
from draftwise.models.runner import Read
from draftwise.testing.toys import CONFIGS, toy
from tests.models.rig import assert_near, read, text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda device"),
]

kinds = pytest.mark.parametrize("kind", CONFIGS)


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """float32 as such, not in the 19 bits of tensor cores."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def pair(kind: str) -> tuple[GraphRunner, EagerRunner]:
    model = toy(kind, dtype=torch.float32).to("cuda")
    return GraphRunner(model), EagerRunner(model)


@kinds
def test_replayed_passes_read_as_the_eager_runner_does(kind: str) -> None:
    runner, oracle = pair(kind)
    row, beside = runner.add_row(), oracle.add_row()
    for count in (40, *(1, 5, 2, 8, 3, 16, 30) * 3, 1, 100, 1, 1):  # over 256 positions on the way
        tokens = text(count, seed=count)
        assert_near(read(runner, row, tokens), read(oracle, beside, tokens), 1e-3)
        runner.crop(row, runner.length(row) - count // 2)
        oracle.crop(beside, oracle.length(beside) - count // 2)


@kinds
@pytest.mark.parametrize("start", [9, 250])
def test_a_block_is_what_reading_token_by_token_would_have_drafted(kind: str, start: int) -> None:
    runner, oracle = pair(kind)
    row, beside, ids = runner.add_row(), oracle.add_row(), text(start)
    for _ in range(2):  # captured, then replayed
        runner.crop(row, 0)
        oracle.crop(beside, 0)
        drafted = runner.draft(row, ids, 9, lambda logits: logits.argmax(-1)).tolist()
        expected = [int(read(oracle, beside, ids, 1).argmax())]
        while len(expected) < 9:
            expected.append(int(read(oracle, beside, expected[-1:], 1).argmax()))
        assert drafted == expected


def test_results_stay_when_other_passes_are_replayed() -> None:
    """Graphs share memory, so a result that was not copied would be overwritten by another's."""
    runner, oracle = pair("qwen2")
    rows = [(runner.add_row(), oracle.add_row()) for _ in range(2)]
    kept = []
    for count in (40, 1, 5, 1, 5, 16, 1, 5):
        for row, beside in rows:
            tokens = text(count, seed=count + row)
            kept.append((read(runner, row, tokens), read(oracle, beside, tokens)))
    for got, expected in kept:
        assert_near(got, expected, 1e-3)


def test_the_host_never_waits_within_a_block() -> None:
    runner, _ = pair("llama")
    row = runner.add_row()
    runner.draft(row, text(40), 5, lambda logits: logits.argmax(-1))
    runner.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        drafted = runner.draft(row, [3], 5, lambda logits: logits.argmax(-1))
        reading = runner.read([Read(row, text(4), 4)])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert drafted.shape == (5,)
    assert reading[0].logits.shape[0] == 4


def test_a_pass_that_cannot_be_captured_leaves_the_row_as_it_was() -> None:
    runner, oracle = pair("llama")
    row, beside = runner.add_row(), oracle.add_row()
    for each, place in ((runner, row), (oracle, beside)):
        read(each, place, text(40))
    asking = runner._model.model.layers[1].mlp.register_forward_hook(
        lambda module, args, output: output * float(output.isfinite().all())  # waits for the device
    )
    with pytest.raises(RuntimeError):
        read(runner, row, [3])
    assert runner.length(row) == 40
    asking.remove()
    for _ in range(3):
        assert_near(read(runner, row, [3]), read(oracle, beside, [3]), 1e-3)
