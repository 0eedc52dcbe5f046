"""What the tests of the runner share: texts, the cache-free oracle, and how near is equal.

A difference is measured in standard deviations of the logits. Where a pass has another shape than the
run that it is compared with, only rounding may differ: float64 leaves 1e-15, but transformers
computes norms and some soft-maxes in float32 in whatever dtype a model has, and each may round the
other way. A cache fault on these toys is above 1e-2: `test_toys.py` proves it of each.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from draftwise.models.eager import EagerRunner
from draftwise.models.runner import Read, Runner
from draftwise.testing.toys import VOCAB_SIZE

Made = Callable[..., tuple[PreTrainedModel, Runner]]
"""Makes toys of a kind, and runners of another sort for them: the fixture `made`."""

NEAR = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 0.2}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Toys are so small that threads only get in each other's way. Imported where it is wanted."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def text(length: int, seed: int = 0) -> list[int]:
    """Return random tokens. Even the longest text differs from that of another seed at its start."""
    return random.Random(seed).choices(range(2, VOCAB_SIZE), k=length)


@torch.inference_mode()
def alone(model: PreTrainedModel, ids: Sequence[int], num: int | None = None) -> Tensor:
    """Logits after each of the last `num` of `ids`, by one run of the model, without any cache."""
    logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
    return logits[len(ids) - (len(ids) if num is None else num) :]


def difference(got: Tensor, expected: Tensor) -> float:
    """Largest difference, in standard deviations of what is expected."""
    assert got.shape == expected.shape
    return float((got.double() - expected.double()).abs().max() / expected.double().std())


def assert_near(got: Tensor, expected: Tensor, near: float | None = None) -> None:
    assert difference(got, expected) < (near or NEAR[expected.dtype])


def read(runner: Runner, row: int, tokens: Sequence[int], num: int | None = None) -> Tensor:
    """Read into one row alone, and return logits at the last `num` positions: by default at all."""
    return runner.read([Read(row, tokens, len(tokens) if num is None else num)])[0].logits


def buffers(runner: EagerRunner) -> list[tuple[int, ...]]:
    """Shapes of all that the cache holds: [slots, heads, capacity, head size]."""
    layers = runner._cache.layers
    return [tuple(b.shape) for layer in layers for b in (layer.key_buffer, layer.value_buffer)]


def raise_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    error: type[BaseException],
    on: int = 1,
) -> None:
    """Make one call of a method raise, the `on`-th; then all is as before."""
    method: Callable = getattr(owner, name)
    calls = 0

    def raising(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == on:
            raise error("broken off")
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, raising)


class Mirror:
    """A runner, and what each of its rows must hold: every reading is checked against the oracle."""

    def __init__(
        self, model: PreTrainedModel, near: float | None = None, runner: Runner | None = None
    ) -> None:
        self.model, self.near = model, near
        self.runner = runner or EagerRunner(model)
        self.held: dict[int, list[int]] = {}

    def add(self, tokens: Sequence[int] = ()) -> int:
        row = self.runner.add_row()
        assert row not in self.held, "a slot in use was given out again"
        self.held[row] = []
        if tokens:
            self.read({row: tokens})
        return row

    def remove(self, row: int) -> None:
        self.runner.remove_row(row)
        del self.held[row]

    def crop(self, row: int, length: int) -> None:
        self.runner.crop(row, length)
        del self.held[row][length:]

    def read(self, news: dict[int, Sequence[int]], nums: dict[int, int] | None = None) -> None:
        """Read several rows in one pass, in the order given; by default with all logits."""
        nums = nums or {row: len(tokens) for row, tokens in news.items()}
        reads = [Read(row, tokens, nums[row]) for row, tokens in news.items()]
        for each, reading in zip(reads, self.runner.read(reads), strict=True):
            held = self.held[each.row]
            held += each.tokens
            assert self.runner.length(each.row) == len(held)
            assert reading.logits.shape == (each.num_logits, VOCAB_SIZE)
            if each.num_logits:
                assert_near(reading.logits, alone(self.model, held, each.num_logits), self.near)

    def check(self) -> None:
        """Every row still holds what it should: read one more token into each, then take it back."""
        for row, held in self.held.items():
            assert self.runner.length(row) == len(held)
            self.read({row: [1]})
            self.crop(row, len(held) - 1)
