"""The law of a randomised procedure, by enumeration: the proof that an acceptance rule is exact.

`law(run)` calls `run(randomness)` once for every way in which its random decisions can fall, and
returns the probability of each outcome. The rules are run as they ship; only their source of
randomness is replaced.

    law(lambda randomness: tuple(randomness.draw(p, 0)))  # {(0,): .3, (1,): .7}
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from draftwise.core.distributions import Distribution, OneHot

Outcome = TypeVar("Outcome", bound=Hashable)


class Branch:
    """Randomness that follows a script of earlier decisions and then always takes the first way."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self.taken: list[int] = []
        self.probability = 1.0
        self.untried: list[tuple[int, ...]] = []

    def _decide(self, probabilities: Sequence[float]) -> int:
        ways = [way for way, probability in enumerate(probabilities) if probability > 0]
        if len(self.taken) < len(self._script):
            way = self._script[len(self.taken)]
        else:
            way = ways[0]
            self.untried += [(*self.taken, other) for other in ways[1:]]
        self.taken.append(way)
        self.probability *= probabilities[way]
        return way

    def draw(self, p: Distribution, position: int) -> list[int]:
        """Branch over every token of every row."""
        if isinstance(p, OneHot):
            return p.ids.tolist()
        return [self._decide(row) for row in p.p.tolist()]

    def accept(self, p: float, q: float) -> bool:
        """Branch over yes and no: r q < p has probability min(1, p/q)."""
        yes = min(1.0, p / q) if q > 0 else float(p > 0)
        return self._decide([1.0 - yes, yes]) == 1


def law(run: Callable[[Branch], Outcome]) -> dict[Outcome, float]:
    """Probability of every outcome of `run`, exact up to the rounding of float64."""
    outcomes: dict[Outcome, float] = defaultdict(float)
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        branch = Branch(scripts.pop())
        outcomes[run(branch)] += branch.probability
        scripts += branch.untried
    return dict(outcomes)


def total_variation(one: dict[Outcome, float], other: dict[Outcome, float]) -> float:
    """Half the sum of the differences of two laws: 0 for equal ones, 1 for disjoint ones."""
    return sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in one.keys() | other.keys()) / 2
