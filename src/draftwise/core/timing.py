"""Honest repeated timing, and a word for a machine on which it says nothing.

What is to be compared takes turns, so that a machine that grows slower in the meantime does so for all
of it, and the order changes, so that nobody always goes first or always follows the same neighbour. The
device is synchronised before every reading of the clock. The first time is a warm-up, which is not among
the samples.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from draftwise.core.clock import Clock
from draftwise.core.estimates import spread

Key = TypeVar("Key", bound=Hashable)
Progress = Callable[[int, int], None]
"""Hears how many pieces of work are done, and of how many."""

NOISY = 0.2
"""The most noise under which a verdict is given.

The median of nine repetitions with this noise is good to 6 % (its standard error is 1.25 / √9 deviations,
and a deviation is the quartile range / 1.35), and a ratio of two medians to 9 %: about what the choice
between neighbouring k is worth.
"""


def unheard(done: int, total: int) -> None:
    """Progress that nobody wants to hear of."""


def time_once(work: Callable[[], object], clock: Clock, synchronize: Callable[[], None]) -> float:
    """Milliseconds of a piece of work, the device waited for before and after."""
    synchronize()
    start = clock.now()
    work()
    synchronize()
    return 1000 * (clock.now() - start)


def time_in_turns(
    work: Mapping[Key, Callable[[], object]],
    repeats: int,
    clock: Clock,
    synchronize: Callable[[], None],
    progress: Progress = unheard,
    settled: bool = False,
    before: Callable[[], object] | None = None,
) -> dict[Key, tuple[float, ...]]:
    """Milliseconds of each piece of work, one sample a repetition.

    settled: do it once unheeded before every sample, where the first time behind other work is dearer.
    before: what is done unheeded before every sample, as it comes before in use.
    """
    if repeats < 1:
        raise ValueError(f"timing takes at least one repetition, not {repeats}")
    samples: dict[Key, list[float]] = {key: [] for key in work}
    done, total = 0, (repeats + 1) * len(work)
    for repeat in range(repeats + 1):
        for key in _order(list(work), repeat):
            if before is not None:
                before()
            if settled:
                work[key]()
            milliseconds = time_once(work[key], clock, synchronize)
            if repeat > 0:  # the first was the warm-up
                samples[key].append(milliseconds)
            done += 1
            progress(done, total)
    return {key: tuple(times) for key, times in samples.items()}


def noise(samples: Sequence[float]) -> float:
    """How far repetitions of the same work differ: quartile range / median."""
    middle = spread(samples)
    return (middle.high - middle.low) / middle.median if middle.median else 0.0


def too_noisy(timings: Mapping[Key, Sequence[float]]) -> str | None:
    """A sentence on the machine if half of the timings or more have too much noise; else None."""
    usual = median(noise(samples) for samples in timings.values())
    if usual <= NOISY:
        return None
    return (
        f"this machine is too noisy to say: the middle half of repeated timings spreads over {usual:.0%} "
        f"of their median, and beyond {NOISY:.0%} a verdict would be chance; close other programs and "
        "run it again"
    )


def _order(keys: list[Key], repeat: int) -> list[Key]:
    """There and back, then the same from one further on."""
    first = repeat // 2 % len(keys) if keys else 0
    turned = keys[first:] + keys[:first]
    return turned[::-1] if repeat % 2 else turned
