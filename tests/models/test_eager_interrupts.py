"""A read that breaks off anywhere, and rows that come and go, leave the runner as good as new."""

import gc

import pytest
import torch

from draftwise.models.cache import SlotLayer
from draftwise.models.eager import EagerRunner
from draftwise.models.runner import Read
from draftwise.testing.toys import toy
from tests.models.rig import Mirror, buffers, one_thread, raise_once, read, text  # noqa: F401

errors = pytest.mark.parametrize("error", (RuntimeError, MemoryError, KeyboardInterrupt))


@errors
@pytest.mark.parametrize("place", ["first layer", "last layer", "head"])
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_read_broken_off_leaves_every_rows_length_and_text(
    kind: str, place: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy(kind)
    rows = Mirror(model)
    one, two, three = rows.add(text(20)), rows.add(text(7, seed=1)), rows.add()
    module = {
        "first layer": model.model.layers[0].mlp,
        "last layer": model.model.layers[-1].self_attn,
        "head": model.lm_head,
    }[place]
    raise_once(monkeypatch, module, "forward", error)
    with pytest.raises(error):
        rows.runner.read([Read(one, text(5), 1), Read(two, text(9), 9), Read(three, text(2), 0)])
    rows.check()
    rows.read({three: text(3), one: text(4)})
    rows.check()


@errors
def test_the_very_first_read_may_break_off(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy()
    rows = Mirror(model)
    row = rows.add()
    raise_once(monkeypatch, model.model.layers[1], "forward", error)
    with pytest.raises(error):
        read(rows.runner, row, text(5))
    rows.read({row: text(9, seed=1)})
    rows.check()


@errors
@pytest.mark.parametrize("on", range(1, 7), ids=lambda on: f"buffer {on}")
def test_buffers_may_fail_to_grow_anywhere_and_grow_the_next_time(
    error: type[BaseException], on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Mirror(toy())
    row = rows.add(text(250))
    other = rows.add()  # the next read needs more places as well
    raise_once(monkeypatch, SlotLayer, "_fitting", error, on)
    with pytest.raises(error):
        rows.runner.read([Read(row, text(30)), Read(other, text(3))])
    rows.read({row: text(20, seed=1), other: text(4, seed=2)})
    rows.check()
    assert {shape[0:3:2] for shape in buffers(rows.runner)} == {(2, 512)}


def test_memory_is_flat_over_hundreds_of_requests() -> None:
    runner = EagerRunner(toy())
    kept = runner.add_row()
    read(runner, kept, text(20))

    def request(number: int) -> None:
        row = runner.add_row()
        read(runner, row, text(1 + number % 40, seed=number), 1)
        runner.read([Read(row, text(4), 4), Read(kept, text(2), 1)])
        runner.crop(row, 1)
        runner.crop(kept, 20)
        runner.remove_row(row)

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    for number in range(40):
        request(number)
    shapes, count = buffers(runner), tensors()
    for number in range(40, 340):
        request(number)
    assert buffers(runner) == shapes == [(2, 2, 256, 8)] * len(shapes)
    assert tensors() == count
    assert runner.length(kept) == 20
