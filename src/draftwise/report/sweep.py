"""One drafter over k: the two forces that set the best k, and the speed-up between them.

Tokens a round and the cost of a round have one unit, a plain pass: speculation pays where a round brings
more tokens than it costs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from draftwise.measure.summary import ALL, Counted, Timed


@dataclass(frozen=True, slots=True)
class Point:
    """One k. tokens: a round brings. drafting: the part of its cost that is spent on guessing.

    row: what was counted. timed: the runs at this k, if there are any.
    """

    row: Counted
    tokens: float
    predicted: float
    drafting: float
    timed: Timed | None

    @property
    def cost(self) -> float:
        """What a round costs, in plain passes."""
        return self.tokens / self.predicted


@dataclass(frozen=True, slots=True)
class Sweep:
    """Several k of one drafter on one workload, in ascending order."""

    workload: str
    drafter: str
    points: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """The k with the greatest predicted speed-up."""
        return max(self.points, key=lambda point: point.predicted)

    @property
    def notable(self) -> list[Point]:
        """What a table shows: the best k and those that were timed; all where none was."""
        timed = [point for point in self.points if point.timed or point is self.best]
        return timed if any(point.timed for point in timed) else list(self.points)


def sweeps(counted: Sequence[Counted], timed: Sequence[Timed]) -> list[Sweep]:
    """The sweep of every drafter, on the workload where most k were timed, else on all."""
    found = (_sweep(name, counted, timed) for name in dict.fromkeys(r.drafter for r in counted))
    return [sweep for sweep in found if len(sweep.points) > 1]


def _sweep(drafter: str, counted: Sequence[Counted], timed: Sequence[Timed]) -> Sweep:
    own = [row for row in timed if row.drafter == drafter]
    most = Counter(row.workload for row in own).most_common(1)
    workload = most[0][0] if most else ALL
    runs = {row.k: row for row in own if row.workload == workload}
    points = (
        _point(row, runs.get(row.k))
        for row in counted
        if (row.drafter, row.workload) == (drafter, workload)
    )
    return Sweep(workload, drafter, tuple(point for point in points if point))


def _point(row: Counted, run: Timed | None) -> Point | None:
    tokens, count = row.rates.tokens_per_round, row.counters
    if not row.speedup or tokens is None:
        return None
    drafting = (row.rates.cost_ratio or 0.0) * count.drafted / count.rounds
    return Point(row, tokens, row.speedup, drafting, run)
