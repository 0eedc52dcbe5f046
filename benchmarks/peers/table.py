"""The tables: one for each class of precision, medians over the workloads of medians over the repeats."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.peers import CLASSES
from draftwise.core.prefix import common_prefix

REFERENCE = ("transformers", "bfloat16", "plain")
"""Whose tokens the others are compared with: kernels differ, and part where two tokens are nearly even."""

OURS = "draftwise"

_WIDTH = 240
"""Of a table that goes to a file."""

Timings = Mapping[tuple[str, str, str], Mapping[tuple[str, int], list[dict[str, Any]]]]
"""By peer, precision and setting; then by prompt."""


def show(outcome: Mapping[str, Any]) -> None:
    """Print the tables, what was not measured, and the versions."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    timings, conditions = _sorted(outcome["timings"]), outcome["conditions"]
    for precision, title in CLASSES.items():
        rows = [key for key in timings if key[1] == precision]
        if rows:
            console.print(_table(title, rows, timings))
            for line in _standing(rows, timings):
                console.print(line, markup=False)
        for name, at, setting, why in outcome["missing"]:
            if at == precision:
                console.print(f"{name}, {setting}: not measured: {why}", markup=False)
    console.print(
        f"{conditions['target']}, greedy, batch 1, {conditions['tokens']} tokens, "
        f"{conditions['threads']} threads, {conditions['repeats']} repeats; {conditions['machine']}; "
        f"{conditions['date']}",
        markup=False,
    )
    for name, versions in outcome["versions"].items():
        told = ", ".join(f"{package} {version}" for package, version in versions.items())
        console.print(f"{name}: {told}", markup=False)


def _sorted(timings: Iterable[dict[str, Any]]) -> Timings:
    found: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for t in timings:
        found[t["peer"], t["precision"], t["setting"]][t["workload"], t["index"]].append(t)
    return found


def _table(title: str, rows: list[tuple[str, str, str]], timings: Timings) -> Table:
    prompts = list(timings[rows[0]])
    table = Table(title=title)
    columns = ["tokens/s", "after the first", "over plain", "same tokens"]
    columns += [f"{workload} {index}" if index else workload for workload, index in prompts]
    table.add_column("peer", no_wrap=True)
    table.add_column("setting", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for key in rows:
        peer, precision, setting = key
        speeds = _speeds(timings[key])
        plain = _speeds(timings.get((peer, precision, "plain"), {}))
        ratios = [speeds[prompt] / plain[prompt] for prompt in speeds if prompt in plain]
        table.add_row(
            peer,
            setting,
            _number(speeds.values()),
            _number(_speeds(timings[key], after_first=True).values()),
            f"{median(ratios):.2f}x" if ratios else "",
            _agreement(timings[key], timings.get(REFERENCE, {})),
            *(f"{speeds[prompt]:.1f}" if prompt in speeds else "" for prompt in prompts),
        )
    return table


def _standing(rows: list[tuple[str, str, str]], timings: Timings) -> Iterable[str]:
    """draftwise's fastest setting beside the fastest of the others, plain and by any means."""
    speeds = {key: median(_speeds(timings[key]).values()) for key in rows}
    for what, kept in (
        ("plain", [key for key in rows if key[2] == "plain"]),
        ("by any means", rows),
    ):
        ours = [key for key in kept if key[0] == OURS]
        theirs = [key for key in kept if key[0] != OURS]
        if ours and theirs:
            best, rival = max(ours, key=speeds.__getitem__), max(theirs, key=speeds.__getitem__)
            yield (
                f"{what}: {OURS} {best[2]} has {speeds[best] / speeds[rival]:.2f}x "
                f"the tokens a second of the fastest peer, {rival[0]} {rival[2]}"
            )


def _speeds(
    answers: Mapping[tuple[str, int], list[dict[str, Any]]], after_first: bool = False
) -> dict[tuple[str, int], float]:
    """Tokens a second by prompt: of the whole answer, or from its first token on."""
    found = {}
    for prompt, repeats in answers.items():
        speeds = [_speed(answer, after_first) for answer in repeats]
        if known := [speed for speed in speeds if speed is not None]:
            found[prompt] = median(known)
    return found


def _speed(answer: dict[str, Any], after_first: bool) -> float | None:
    count, seconds, first = len(answer["ids"]), answer["seconds"], answer["first_token_seconds"]
    if not after_first:
        return count / seconds
    return (count - 1) / (seconds - first) if first is not None and count > 1 else None


def _agreement(
    answers: Mapping[tuple[str, int], list[dict[str, Any]]],
    reference: Mapping[tuple[str, int], list[dict[str, Any]]],
) -> str:
    """Tokens in common with the reference before the first that differs, over all prompts; of how many."""
    same = total = 0
    for prompt, repeats in answers.items():
        if prompt in reference:
            theirs = reference[prompt][0]["ids"]
            same += common_prefix(repeats[0]["ids"], theirs)
            total += len(theirs)
    return f"{same}/{total}" if total else ""


def _number(values: Iterable[float]) -> str:
    found = list(values)
    return f"{median(found):.1f}" if found else ""
