"""How sure a number is: intervals for proportions, repeated runs, and statistics of a sample.

No scipy and no hidden randomness: the bootstrap takes its seed. Nothing here knows what was
counted.

    >>> round(wilson_interval(successes=9, trials=10).low, 3)
    0.596
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that covers the true value with the confidence that was asked for."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"an interval runs upwards, not from {self.low} to {self.high}")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of repeated runs and their quartiles: half of the runs lie between low and high.

    Quartiles, not extremes: one run disturbed by another program does not move them much, and they
    do not widen as runs are added. With one run, all three are that run.
    """

    median: float
    low: float
    high: float
    runs: int

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise ValueError("a spread needs at least one run")
        if not self.low <= self.median <= self.high:
            raise ValueError(f"{self.median} does not lie between {self.low} and {self.high}")


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles (interpolated between runs, type 7 of Hyndman and Fan, 1996)."""
    if not values:
        raise ValueError("a spread needs at least one run")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"a spread needs finite values, not {list(values)}")
    ordered = sorted(values)
    return Spread(
        median=_quantile(ordered, 0.5),
        low=_quantile(ordered, 0.25),
        high=_quantile(ordered, 0.75),
        runs=len(ordered),
    )


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Score interval of a proportion (Wilson 1927; method 3 of Newcombe 1998).

    Unlike the usual p ± z sqrt(p (1 - p) / n) it stays within 0 and 1 and keeps its coverage near
    the ends, where a good draft lives. Trials are taken as independent; the tokens of one text are
    not quite, so across prompts `bootstrap_interval` is the more careful choice.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes in {trials} trials is not a proportion")
    z = NormalDist().inv_cdf(1 - _tail(confidence))
    n, p = trials, successes / trials
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # The ends are exactly 0 and 1 where nothing or everything succeeded; rounding would miss them.
    return Interval(
        low=0.0 if successes == 0 else max(centre - reach, 0.0),
        high=1.0 if successes == trials else min(centre + reach, 1.0),
    )


def bootstrap_interval(
    values: Sequence[T],
    statistic: Callable[[Sequence[T]], float],
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Percentile interval of any statistic of a sample (Efron 1979).

    A value may be whatever the statistic understands, such as the counts of one prompt: resample
    what is independent. The same seed gives the same interval. It is too narrow for a few values.
    """
    if not values:
        raise ValueError("a bootstrap needs at least one value")
    return bootstrap(
        lambda random: statistic(random.choices(values, k=len(values))),
        seed=seed,
        confidence=confidence,
        resamples=resamples,
    )


def bootstrap(
    once: Callable[[Random], float], *, seed: int, confidence: float = 0.95, resamples: int = 2000
) -> Interval:
    """Percentile interval of a statistic of several samples: `once` resamples them all."""
    if resamples < 1:
        raise ValueError(f"a bootstrap needs at least one resample, not {resamples}")
    tail, random = _tail(confidence), Random(seed)
    ordered = sorted(once(random) for _ in range(resamples))
    return Interval(_quantile(ordered, tail), _quantile(ordered, 1 - tail))


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    return (1 - confidence) / 2


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    place = fraction * (len(ordered) - 1)
    below = int(place)
    a, b = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return min(a + (b - a) * (place - below), b)  # rounding may not carry it past its neighbour
