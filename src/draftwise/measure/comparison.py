"""Two files of records side by side: is speculation faster than it was, and by how much?

A speed-up is taken against the plain runs of its own file, so that it compares even where the machine
has changed; absolute times do only where `Comparison.differences` is empty. Prompts that one file lacks
are left out: another choice of prompts is no change of speed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Literal

from draftwise.core.estimates import Interval, bootstrap, bootstrap_interval
from draftwise.measure.recording import of_kind
from draftwise.measure.records import AnyRecord, K, RunRecord
from draftwise.measure.summary import Timed, timed

Outcome = Literal["faster", "slower", "unclear"]
Gains = tuple[list[float], list[float]]
"""Speed-ups of one prompt's runs, in the old file and in the new one."""


@dataclass(frozen=True, slots=True)
class Place:
    """What was timed."""

    workload: str
    drafter: str
    k: K


@dataclass(frozen=True, slots=True)
class Change:
    """One place in both files, by the runs of the prompts that both have. All values are medians.

    ratio: the new speed-up over the old one. interval: 95 % of it, with prompts resampled, or the runs
    of an only prompt; None where one of them is an only run. outcome: on which side of 1 it lies.
    plain_old, plain_new: tokens a second. plain_ratio: the new over the old.
    """

    place: Place
    prompts: int
    speedup_old: float
    speedup_new: float
    ratio: float
    interval: Interval | None
    outcome: Outcome
    plain_old: float
    plain_new: float
    plain_ratio: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A condition that is not the same in both files."""

    name: str
    old: object
    new: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """What both files timed, what only one did (on prompts of the other), and under which conditions."""

    changes: tuple[Change, ...]
    only_old: tuple[Place, ...]
    only_new: tuple[Place, ...]
    differences: tuple[Difference, ...]


def compare(old: Sequence[AnyRecord], new: Sequence[AnyRecord]) -> Comparison:
    """Compare the runs of two files, each under the conditions of its last one; see `last_runs`."""
    runs = last_runs(old), last_runs(new)
    before, after = map(_by_place, runs)
    changes = [
        _change(place, [(timings[prompt], after[place][prompt]) for prompt in shared])
        for place, timings in before.items()
        if (shared := [prompt for prompt in timings if prompt in after.get(place, {})])
    ]
    compared = {change.place for change in changes}
    return Comparison(
        changes=tuple(changes),
        only_old=tuple(place for place in before if place not in compared),
        only_new=tuple(place for place in after if place not in compared),
        differences=tuple(_differences(*runs)),
    )


def last_runs(records: Sequence[AnyRecord]) -> list[RunRecord]:
    """The runs that were made under the same conditions as the last one."""
    runs = of_kind(list(records), RunRecord)
    return [run for run in runs if run.conditions.alike == runs[-1].conditions.alike]


def _by_place(runs: Sequence[RunRecord]) -> dict[Place, dict[str, list[Timed]]]:
    """For each place and prompt a row of every repeat."""
    together: dict[tuple[str, int, str], list[RunRecord]] = {}
    for run in runs:
        together.setdefault((run.prompt.sha256, run.repeat, run.group), []).append(run)
    found: dict[Place, dict[str, list[Timed]]] = {}
    for (prompt, *_), beside in together.items():
        for row in timed(beside):
            place = Place(row.workload, row.drafter, row.k)
            found.setdefault(place, {}).setdefault(prompt, []).append(row)
    return found


def _change(place: Place, prompts: Sequence[tuple[list[Timed], list[Timed]]]) -> Change:
    old, new = (list(chain(*rows)) for rows in zip(*prompts, strict=True))
    gains = [(_gains(rows_old), _gains(rows_new)) for rows_old, rows_new in prompts]
    interval = _interval(gains)
    plain_old, plain_new = (median(r.plain_tokens_per_second.median for r in s) for s in (old, new))
    return Change(
        place=place,
        prompts=len(prompts),
        speedup_old=median(_gains(old)),
        speedup_new=median(_gains(new)),
        ratio=_ratio(gains),
        interval=interval,
        outcome=_outcome(interval),
        plain_old=plain_old,
        plain_new=plain_new,
        plain_ratio=plain_new / plain_old,
    )


def _gains(rows: Sequence[Timed]) -> list[float]:
    return [row.speedup.median for row in rows]


def _ratio(gains: Sequence[Gains]) -> float:
    old, new = zip(*gains, strict=True)
    return median(chain(*new)) / median(chain(*old))


def _interval(gains: Sequence[Gains]) -> Interval | None:
    if len(gains) > 1:
        return bootstrap_interval(gains, _ratio, seed=0)
    ((old, new),) = gains
    if min(len(old), len(new)) < 2:
        return None
    return bootstrap(
        lambda random: _ratio([(random.choices(old, k=len(old)), random.choices(new, k=len(new)))]),
        seed=0,
    )


def _outcome(interval: Interval | None) -> Outcome:
    if interval is None or interval.low <= 1 <= interval.high:
        return "unclear"
    return "faster" if interval.low > 1 else "slower"


def _differences(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> Iterator[Difference]:
    """Of the conditions that both files name."""
    before, after = _named(old), _named(new)
    for name, value in before.items():
        if name in after and value != after[name]:
            yield Difference(name, value, after[name])


def _named(runs: Sequence[RunRecord]) -> dict[str, object]:
    """Every condition by name, those of the drafters too."""
    shared = runs[0].conditions
    named: dict[str, object] = {"target": shared.target, "machine": shared.machine}
    named |= {"threads": shared.threads, **shared.settings, **shared.versions}
    for run in runs:
        named |= {f"{name} of {run.drafter}": own for name, own in run.conditions.draft.items()}
    return named
