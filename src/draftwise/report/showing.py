"""What was measured of one drafter, at the k that promises most on each workload.

A k is chosen by its prediction and reported by its measurement: the best of several measurements would
flatter the drafter by their noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from draftwise.measure.summary import Timed


@dataclass(frozen=True, slots=True)
class Showing:
    """One drafter: a row for each workload."""

    rows: tuple[Timed, ...]

    @property
    def drafter(self) -> str:
        """Its name."""
        return self.rows[0].drafter

    @property
    def speedup(self) -> float:
        """The median over workloads."""
        return median(row.speedup.median for row in self.rows)

    @property
    def best(self) -> Timed:
        """The workload with the greatest speed-up."""
        return max(self.rows, key=lambda row: row.speedup.median)


def showings(timed: Sequence[Timed]) -> list[Showing]:
    """Every drafter, the fastest first."""
    chosen: dict[tuple[str, str], Timed] = {}
    for row in timed:
        place = row.drafter, row.workload
        if place not in chosen or (row.predicted or 0) > (chosen[place].predicted or 0):
            chosen[place] = row
    drafters: dict[str, list[Timed]] = {}
    for (drafter, _), row in chosen.items():
        drafters.setdefault(drafter, []).append(row)
    found = [Showing(tuple(rows)) for rows in drafters.values()]
    return sorted(found, key=lambda showing: showing.speedup, reverse=True)
