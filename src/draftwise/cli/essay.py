"""`draftwise essay`: the whole set of the essay on any models, in one command, and its claims judged."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftwise.cli.measuring import carry_out, recording_to, usual_drafts, write_page
from draftwise.cli.options import options_of, taken_by
from draftwise.engine.options import GenerateOptions, ModelOptions, make

if TYPE_CHECKING:
    from draftwise.measure.essay import Claim
    from draftwise.measure.recording import Recording
    from draftwise.measure.records import AnyRecord
    from draftwise.measure.subject import Subject


@click.command()
@options_of(ModelOptions, without=("draft",))
@click.option(
    "--draft",
    "drafts",
    multiple=True,
    metavar="DRAFT",
    help="What guesses; repeatable. The first takes the place of the essay's 0.5B, the second that of "
    "its 1.5B.",
)
@click.option("--tokens", type=int, default=64, show_default=True, help="Tokens of each text.")
@click.option(
    "--repeats", type=int, default=3, show_default=True, help="Timed runs of each prompt."
)
@click.option(
    "--out",
    default="essay",
    show_default=True,
    metavar="FOLDER",
    help="Records, report and claims go here; what is measured already is not measured again.",
)
def essay(drafts: tuple[str, ...], tokens: int, repeats: int, out: str, **options: Any) -> None:
    """Repeat the essay's measurements on a target and drafts, and say which of its claims hold.

    Nesting, the cost of checking, the k sweep, the texts, the drafts; then a report. The essay's own
    models: --target Qwen/Qwen2.5-7B-Instruct --draft Qwen/Qwen2.5-0.5B-Instruct
    --draft Qwen/Qwen2.5-1.5B-Instruct.
    """
    models = make(ModelOptions, taken_by(ModelOptions, options))

    from draftwise.measure.bench import Bench
    from draftwise.measure.essay import claims, plan
    from draftwise.measure.subject import load_subject

    folder, planned = Path(out), plan(repeats)
    writing = make(GenerateOptions, {"tokens": tokens})
    with (
        recording_to(str(folder / "records.jsonl")) as recording,
        load_subject(models, drafts or usual_drafts(models.target), writing) as subject,
    ):
        measured = Bench(subject, planned, recording)
        _nest(subject, recording)
        carry_out(measured.look())
        carry_out(measured.time())
        records = measured.records
        found = claims(records, next(iter(subject.drafters)))
    _write(folder, records, found)
    _print(found, folder)


def _nest(subject: "Subject", recording: "Recording") -> None:
    """Once: it takes a few passes, and needs no clock."""
    from draftwise.measure.essay import TEXT
    from draftwise.measure.nesting import nest
    from draftwise.measure.recording import of_kind
    from draftwise.measure.records import NestingRecord

    conditions = subject.conditions()
    if not any(r.conditions == conditions for r in of_kind(recording.records, NestingRecord)):
        recording.add(nest(subject.target, subject.runner, TEXT).record(conditions))


def _write(folder: Path, records: "Sequence[AnyRecord]", found: "Sequence[Claim]") -> None:
    from draftwise.report.markdown import markdown
    from draftwise.report.page import html
    from draftwise.report.sections import compose

    report = compose(records, "The essay's measurements, repeated")
    write_page(folder / "report.html", html(report))
    lines = ["| the essay says | there | here | holds here |", "|--|--|--|--|"]
    lines += [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in _cells(claim))} |"
        for claim in found
    ]
    text = "\n".join([*lines, "", markdown(report)])
    write_page(folder / "essay.md", text)


def _print(found: "Sequence[Claim]", folder: Path) -> None:
    from rich.table import Table

    from draftwise.cli import tables

    console = tables.console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 1, 0))
    for header in ("the essay says", "there", "here", "holds"):
        table.add_column(header, overflow="fold")
    for claim in found:
        table.add_row(*_cells(claim))
    console.print(table)
    console.print(f"the report: {folder / 'report.html'}; these claims: {folder / 'essay.md'}")


def _cells(claim: "Claim") -> tuple[str, str, str, str]:
    holds = {True: "yes", False: "no", None: "not shown"}[claim.holds]
    return claim.statement, claim.essay, claim.here, holds
