"""A pass that is broken off, wherever that is, leaves every row of the OpenVINO runner as it was."""

import itertools
from contextlib import suppress

import pytest

pytest.importorskip("openvino")

from draftwise.models import openvino, openvino_row
from draftwise.models.runner import Read
from tests.models.rig import Made, Mirror, one_thread, text  # noqa: F401


@pytest.mark.parametrize("error", (RuntimeError, KeyboardInterrupt))
@pytest.mark.parametrize("late", (False, True))
def test_a_read_broken_off_before_or_behind_the_pass_leaves_the_row_as_it_was(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], late: bool
) -> None:
    rows = Mirror(*made("llama")[:1], near=2e-3, runner=made("llama")[1])
    one, two, empty = rows.add(text(20)), rows.add(text(7, seed=1)), rows.add()
    infer = openvino.ov.InferRequest.infer

    def broken(*args, **kwargs):
        if late:
            infer(*args, **kwargs)
        raise error("broken off")

    for reads in ([Read(two, [3, 4], 1), Read(one, [5], 1)], [Read(empty, [6] * 9, 1)]):
        with monkeypatch.context() as patch:
            patch.setattr(openvino.ov.InferRequest, "infer", broken)
            with pytest.raises(error):
                rows.runner.read(reads)
        rows.check()


def test_a_row_that_was_read_before_another_was_broken_off_is_as_it_was(made: Made) -> None:
    """Also where it began anew: what its state took stands for no token."""
    rows = Mirror(*made("llama")[:1], near=2e-3, runner=made("llama")[1])
    one, two, infer = rows.add(text(20)), rows.add(text(3, seed=1)), openvino.ov.InferRequest.infer
    for tokens in ([5], text(60, seed=2)):
        passes = iter([infer])

        def second_broken(*args, passes=passes, **kwargs):
            return next(passes)(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(openvino.ov.InferRequest, "infer", second_broken)
            with pytest.raises(StopIteration):
                rows.runner.read([Read(two, tokens, 1), Read(one, [5], 1)])
        rows.check()
        rows.read({two: text(4, seed=3)})


@pytest.mark.parametrize("name", ["arange", "concatenate", "where", "zeros"])
def test_an_interrupt_anywhere_beside_a_pass_leaves_the_row_as_it_was(
    made: Made, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each call of numpy stands for a place where Ctrl-C may arrive; some rows begin anew."""
    numpy = openvino_row.np if name in ("arange", "concatenate") else openvino.np
    rows = Mirror(*made("llama")[:1], near=2e-3, runner=made("llama")[1])
    one, method = rows.add(text(20)), getattr(numpy, name)
    for on, count in itertools.product(range(1, 4), (2, 60, 300)):
        calls = itertools.count(1)

        def interrupted(*args, on=on, calls=calls, **kwargs):
            if next(calls) == on:
                raise KeyboardInterrupt
            return method(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(numpy, name, interrupted)
            with suppress(KeyboardInterrupt):
                rows.runner.read([Read(one, text(count, seed=on), 1)])
                rows.runner.crop(one, 20)
        rows.check()
        rows.crop(one, 3)
        rows.read({one: text(17, seed=count + on)})


def test_a_long_pass_is_interrupted_on_the_way_and_leaves_the_row_as_it_was(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers that were done have more slots than the others: all is read again."""
    rows = Mirror(*made("llama")[:1], near=2e-3, runner=made("llama")[1])
    one = rows.add(text(20))
    monkeypatch.setattr(openvino, "_INTERRUPTIBLE", 100)

    def interrupted(request, ms):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(openvino.ov.InferRequest, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows.runner.read([Read(one, text(400, seed=1), 1)])
    rows.check()
    rows.read({one: text(200, seed=2)})
    rows.check()


def test_a_take_over_broken_off_leaves_the_row_as_it_was(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino, "_MOST_WASTE", 2)
    model, runner = made("llama")
    rows = Mirror(model, 2e-3, runner)
    one = rows.add(text(20))
    rows.crop(one, 10)

    def broken(tensor):
        raise KeyboardInterrupt

    monkeypatch.setattr(openvino.np, "ascontiguousarray", broken)
    with pytest.raises(KeyboardInterrupt):
        runner.read([Read(one, [3], 1)])
    monkeypatch.undo()
    rows.check()
