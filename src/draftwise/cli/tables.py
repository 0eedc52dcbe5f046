"""How measurements look in a terminal: the tables of the report, with what was checked below them."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich import table as rich_table
from rich.console import Console

from draftwise.core.timing import too_noisy
from draftwise.measure.consistency import consistency
from draftwise.measure.explanations import explain
from draftwise.measure.recording import of_kind
from draftwise.measure.records import AnyRecord, K, PassesRecord
from draftwise.measure.summary import Counted, Timed, best_over_all, counted, timed
from draftwise.report import tables, words
from draftwise.report.parts import Table
from draftwise.report.showing import showings
from draftwise.report.sweep import sweeps

_WIDTH = 120
"""Of what is no terminal: tables are not to be folded in a file."""


def console() -> Console:
    """Standard output, where names and tokens are shown as they read: "[/INST]" is no markup."""
    width = None if sys.stdout.isatty() else _WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def as_dict(records: Sequence[AnyRecord]) -> dict[str, Any]:
    """What `--json` prints: the rows of all tables."""
    return {
        "conditions": records[0].conditions.model_dump(mode="json"),
        "timed": [asdict(row) for row in timed(records)],
        "counted": [asdict(row) for row in counted(records)],
        "consistency": [asdict(row) for row in consistency(records)],
    }


def print_bench(records: Sequence[AnyRecord], out: Console) -> None:
    """The k sweeps, the workloads, and what was checked."""
    times, counts = timed(records), counted(records)
    for sweep in sweeps(counts, times):
        print_table(out, tables.sweep(sweep))
        out.print(f"{words.sweep(sweep)} {words.by_position(sweep)}\n")
    print_table(out, tables.workloads(times))
    out.print()
    for line in _checks(records, times, counts):
        out.print(line)


def print_drafts(records: Sequence[AnyRecord], out: Console) -> None:
    """The drafters over all texts and by workload, why they differ, and what was checked."""
    times, counts = timed(records), counted(records)
    print_table(out, tables.drafts(best_over_all(counts), showings(times)))
    out.print()
    print_table(out, tables.workloads(times))
    out.print()
    explained = explain(records, best_over_all(counts))
    for line in (*explained, *_checks(records, times, counts)):
        out.print(line)


def explained(records: Sequence[AnyRecord]) -> list[str]:
    """Why the drafters of these records differ."""
    return explain(records, best_over_all(counted(records)))


def print_table(out: Console, table: Table) -> None:
    """A table of the report in a terminal."""
    shown = rich_table.Table(
        title=table.caption,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
    )
    for place, name in enumerate(table.head):
        shown.add_column(name, justify="left" if place < table.labels else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    out.print(shown)


def _checks(
    records: Sequence[AnyRecord], times: Sequence[Timed], counts: Sequence[Counted]
) -> list[str]:
    """What was proved, how well counting foretold the runs and the clock, and whether it can be trusted."""
    lines = [words.proof(times)]
    passes = [r for r in of_kind(list(records), PassesRecord) if r.drafter is None]
    lines += [said for said in (too_noisy(r.samples_ms) for r in passes[-1:]) if said]
    for row in consistency(records):
        apart = [
            f"{number} {what}"
            for number, what in (
                (row.otherwise, "in other rounds, where rounding decided"),
                (row.other_text, "with a text that parts at a near-tie"),
            )
            if number
        ]
        total = row.equal + row.otherwise + row.other_text
        rest = f" ({', '.join(apart)})" if apart else ""
        lines.append(f"Counted: {row.equal} of {total} runs of {row.drafter} as replayed{rest}.")
    predicted: dict[tuple[str, str, K], float | None] = {
        (row.workload, row.drafter, row.k): row.speedup for row in counts
    }
    errors = [
        abs(row.speedup.median / told - 1)
        for row in times
        if (told := predicted.get((row.workload, row.drafter, row.k)))
    ]
    if errors:
        lines.append(
            f"Foretold from counts and passes: within {median(errors):.1%} of the clock in the median of "
            f"{len(errors)} settings, at worst {max(errors):.1%}."
        )
    return lines
