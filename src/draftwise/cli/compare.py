"""`draftwise compare`: is speculation faster than it was? From two files of records, without a model."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwise.core.errors import OptionError

if TYPE_CHECKING:
    from draftwise.measure.comparison import Change, Comparison, Place
    from draftwise.measure.records import AnyRecord
    from draftwise.report.parts import Table


@click.command()
@click.argument("old", metavar="OLD.jsonl")
@click.argument("new", metavar="NEW.jsonl")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(old: str, new: str, as_json: bool) -> None:
    """Compare the speed-ups of two files of records, such as those of two versions or machines.

    A drafter and k on a workload are compared where both files timed them on the same prompts. Of a
    file with runs under several conditions, those of the last run count. The exit status is 0 whatever
    comes of it.
    """
    from draftwise.measure.comparison import compare as compared

    found = compared(_timed(old), _timed(new))
    if as_json:
        click.echo(json.dumps(asdict(found), ensure_ascii=False, allow_nan=False))
    else:
        _print(found, old, new)


def _timed(path: str) -> "list[AnyRecord]":
    """The records of a file that has something to compare."""
    from draftwise.measure.comparison import last_runs
    from draftwise.measure.recording import read_records

    records = read_records(Path(path))
    if not last_runs(records):
        raise OptionError(f"{path} holds no timed runs: compare files that bench or drafts wrote")
    return records


def _print(found: "Comparison", old: str, new: str) -> None:
    from draftwise.cli import tables

    out = tables.console()
    if found.changes:
        tables.print_table(out, _table(found.changes))
    else:
        out.print("Nothing was timed on the same prompts in both files.")
    for path, places in ((old, found.only_old), (new, found.only_new)):
        if places:
            out.print(f"\nOnly in {path}: {_said(places)}")
    if found.differences:
        out.print("\nThe conditions differ, so that tokens a second do not compare:")
        for difference in found.differences:
            out.print(f"  {difference.name}: {difference.old} before, {difference.new} now")


def _table(changes: "tuple[Change, ...]") -> "Table":
    from draftwise.report.parts import Table
    from draftwise.report.tables import number, times

    head = (
        *("workload", "drafter", "k", "prompts", "old", "new", "new / old", "95 % interval", "now"),
        *("plain old", "plain new", "new / old"),
    )
    rows = tuple(
        (
            *(change.place.workload, change.place.drafter, str(change.place.k)),
            *(str(change.prompts), times(change.speedup_old), times(change.speedup_new)),
            number(change.ratio),
            f"{i.low:.2f} to {i.high:.2f}" if (i := change.interval) else number(None),
            *(change.outcome, number(change.plain_old), number(change.plain_new)),
            number(change.plain_ratio),
        )
        for change in changes
    )
    return Table("Speed-ups, and plain tokens a second; medians over runs", head, rows, labels=2)


def _said(places: "tuple[Place, ...]") -> str:
    """Places, all k of a drafter on a workload together."""
    ks: dict[tuple[str, str], list[str]] = {}
    for place in places:
        ks.setdefault((place.drafter, place.workload), []).append(str(place.k))
    return "; ".join(
        f"{drafter} at k = {', '.join(own)} on {workload}"
        for (drafter, workload), own in ks.items()
    )
