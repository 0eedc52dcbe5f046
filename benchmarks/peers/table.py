"""The tables: one for each class of precision, medians over the workloads of medians over the repeats."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.peers.bars import bars, paired
from benchmarks.peers.peers import CLASSES
from benchmarks.peers.results import Key, Outcome, Timing, by_key, later_speed, speed
from draftwise.core.prefix import common_prefix

REFERENCE = ("transformers", "bfloat16", "plain")
"""Whose tokens the others are compared with: kernels differ, and part where two tokens are nearly even."""

_WIDTH = 300
"""Of a table that goes to a file."""


def show(outcome: Outcome) -> None:
    """Print the tables, what was not measured, the bars, and the versions."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    outcome = outcome.measured()
    answers, conditions = by_key(outcome.timings), outcome.conditions
    for precision, title in CLASSES.items():
        keys = [key for key in answers if key[1] == precision]
        if keys:
            console.print(_table(title, keys, answers))
        for name, at, setting, why in outcome.missing:
            if at == precision:
                console.print(f"{name}, {setting}: not measured: {why}", markup=False)
    for bar in bars(outcome.timings):
        console.print(str(bar), markup=False)
    console.print(
        f"{conditions['target']}, greedy, batch 1, {conditions['tokens']} tokens, "
        f"{conditions['threads']} threads, {conditions['repeats']} repeats; {conditions['machine']}; "
        f"{conditions['date']}",
        markup=False,
    )
    for name, versions in outcome.versions.items():
        told = ", ".join(f"{package} {version}" for package, version in versions.items())
        console.print(f"{name}: {told}", markup=False)


def _table(title: str, keys: Sequence[Key], answers: Mapping[Key, list[Timing]]) -> Table:
    workloads = list(dict.fromkeys(t.workload for key in keys for t in answers[key]))
    table = Table(title=title)
    table.add_column("peer", no_wrap=True)
    table.add_column("setting", no_wrap=True)
    figures = ("tokens/s", "after the first", "over plain", "accepted", "same tokens")
    for name in (*figures, *workloads):
        table.add_column(name, justify="right")
    table.add_column("other tokens on")
    for key in keys:
        own, plain = answers[key], answers.get((*key[:2], "plain"), [])
        speeds, reference = _by_workload(own), answers.get(REFERENCE, [])
        gained = paired(own, plain, speed) if key[2] != "plain" else {}
        later = [value for timing in own if (value := later_speed(timing)) is not None]
        same = _agreement(own, reference)
        table.add_row(
            key[0],
            key[2],
            f"{median(speeds.values()):.1f}",
            f"{median(later):.1f}" if later else "",
            f"{median(gained.values()):.2f}x" if gained else "",
            _accepted(own),
            f"{sum(n for n, _ in same.values())}/{sum(of for _, of in same.values())}"
            if same
            else "",
            *(f"{speeds[workload]:.1f}" if workload in speeds else "" for workload in workloads),
            ", ".join(f"{name} {n}/{of}" for name, (n, of) in same.items() if n < of),
        )
    return table


def _by_workload(timings: Iterable[Timing]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for timing in timings:
        found[timing.workload].append(speed(timing))
    return {workload: median(speeds) for workload, speeds in found.items()}


def _accepted(timings: Iterable[Timing]) -> str:
    """Of the drafted tokens; nothing where the peer does not tell."""
    counts = [(t.accepted or 0, t.drafted) for t in timings if t.drafted]
    return f"{sum(n for n, _ in counts)}/{sum(of for _, of in counts)}" if counts else ""


def _agreement(
    timings: Iterable[Timing], reference: Iterable[Timing]
) -> dict[str, tuple[int, int]]:
    """By workload: tokens in common with the reference before the first that differs, and of how many."""
    theirs = {(t.workload, t.index): t.ids for t in reversed([*reference])}
    found: dict[str, tuple[int, int]] = {}
    for place, ids in {(t.workload, t.index): t.ids for t in timings}.items():
        if place in theirs:
            same, total = found.get(place[0], (0, 0))
            longest = len(theirs[place])
            found[place[0]] = same + common_prefix(ids, theirs[place]), total + longest
    return found
