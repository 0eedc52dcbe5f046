"""`draftwise precondition`: what does a pass over n new tokens cost against one over a single token?"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from draftwise.cli.measuring import progress_bar, recording_to, whole_numbers
from draftwise.cli.nesting import TARGET_ONLY, footer
from draftwise.cli.options import options_of
from draftwise.cli.prompts import read_prompt
from draftwise.core.errors import OptionError
from draftwise.engine.options import ModelOptions, make

if TYPE_CHECKING:
    from draftwise.core.timing import Progress
    from draftwise.measure.records import AnyRecord, Conditions, PassesRecord

_ALPHA, _C, _WORTH = 0.8, 0.1, 1.1
"""A good draft, and the least speed-up that is worth the trouble."""
_STYLES = {"can pay": "green", "cannot pay": "bold red"}


def _numbers(_: click.Context, __: click.Parameter, given: str | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    advice = "write them as 1,2,4,8: none below 1, and one above it"
    numbers = whole_numbers(given, advice)
    if numbers[-1] < 2:
        raise click.BadParameter(advice)
    return tuple(sorted({*numbers, 1}))


@click.command()
@options_of(ModelOptions, only=TARGET_ONLY)
@click.option(
    "--lengths",
    callback=_numbers,
    metavar="1,2,...",
    help="New tokens to read; by default thirteen lengths from 1 to 32. 1 is always among them.",
)
@click.option(
    "--context",
    "contexts",
    type=click.IntRange(1),
    multiple=True,
    default=(128,),
    show_default=True,
    help="Tokens in the cache before them; repeatable.",
)
@click.option(
    "--repeats",
    type=click.IntRange(3),
    default=9,
    show_default=True,
    help="Timings of each length, 3 at least: fewer show no spread.",
)
@click.option("--text-file", metavar="FILE", help="Text to read; by default a sample of our own.")
@click.option(
    "--out", metavar="FILE", help="Append records to FILE, and repeat nothing that it has."
)
@click.option("--plot", metavar="FILE", help="Draw the ratios to a file: .svg, .png or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def precondition(
    lengths: tuple[int, ...] | None,
    contexts: tuple[int, ...],
    repeats: int,
    text_file: str | None,
    out: str | None,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Time passes of the target over n new tokens, and tell whether speculation can pay here.

    Speculation lives on checking several tokens in one pass for about the price of one.
    """
    chosen = make(ModelOptions, options)
    text = None if text_file is None else read_prompt(None, None, text_file)
    if plot is not None:
        _require_plot(Path(plot))

    from draftwise.decoding.passes import LENGTHS, time_reads
    from draftwise.engine.load import load_runner
    from draftwise.engine.pairing import SAMPLE
    from draftwise.measure.conditions import conditions
    from draftwise.measure.recording import Recording
    from draftwise.measure.records import PassesRecord, PromptRef

    lengths, records = lengths or LENGTHS, []
    with recording_to(out) if out else Recording() as recording:
        target, runner = load_runner(chosen.target, chosen)
        ids = target.tokenizer.encode(SAMPLE if text is None else text)
        met = conditions(target, runner, {"text": PromptRef.digest(tuple(ids))})
        for context in dict.fromkeys(contexts):
            record = _known(recording.records, met, context, lengths, repeats)
            if record is None:
                with _progress(f"{target.name}, context {context}") as progress:
                    samples = time_reads(
                        runner, ids, context, lengths, repeats=repeats, progress=progress
                    )
                record = PassesRecord(conditions=met, context=context, samples_ms=samples)
                recording.add(record)
            records.append(record)
    _show(records, as_json)
    if plot is not None:
        from draftwise.report.charts import verify_cost

        verify_cost(records).savefig(plot)


def _require_plot(path: Path) -> None:
    """Say before minutes of work what would fail behind them."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise OptionError(f"--plot is {path}: give a name that ends in .svg, .png or .pdf")
    if not os.access(path.parent, os.W_OK):
        raise OptionError(f"--plot is {path}, and {path.parent} is no folder to write to")


def _known(
    records: list["AnyRecord"],
    met: "Conditions",
    context: int,
    lengths: tuple[int, ...],
    repeats: int,
) -> "PassesRecord | None":
    """What has been measured already, at least as often as asked for."""
    from draftwise.measure.recording import of_kind
    from draftwise.measure.records import PassesRecord

    for record in of_kind(records, PassesRecord):
        same = (record.conditions, record.drafter, record.context) == (met, None, context)
        runs = min(map(len, record.samples_ms.values()))
        if same and tuple(record.samples_ms) == lengths and runs >= repeats:
            return record
    return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether speculation can pay on a machine, and why."""

    word: Literal["can pay", "will hardly pay", "cannot pay", "too noisy to say"]
    reason: str


def verdict(record: "PassesRecord") -> Verdict:
    """Judge a target by what its passes cost, without knowing the draft."""
    from draftwise.core.costs import Curve
    from draftwise.core.theory import best_k
    from draftwise.core.timing import too_noisy

    if noisy := too_noisy(record.samples_ms):
        return Verdict("too noisy to say", f"{noisy[0].upper()}{noisy[1:]}.")
    read, longest = Curve.of(record.samples_ms), max(record.samples_ms)
    v = {n: read(n) / read(1) for n in range(1, longest + 1)}
    shown = min(8, longest)
    twice = next((n for n in v if v[n] >= 2), None)
    reaches = f"v reaches 2 at n = {twice}" if twice else f"v stays below 2 up to n = {longest}"
    cost = f"checking {shown} tokens costs {v[shown]:.2f}x one, and {reaches}"
    perfect = max(n / v[n] for n in v)
    good = best_k(_ALPHA, _C, v.__getitem__, max_k=longest - 1)
    draft = f"a draft that is right {_ALPHA:.0%} of the time at {_C:.0%} of the target's time would give"
    if perfect < _WORTH:
        word = "cannot pay"
        outlook = f"even a draft that is free and always right would give {perfect:.2f}x"
    elif good.speedup < _WORTH:
        word = "will hardly pay"
        outlook = f"{draft} {good.speedup:.2f}x, one that is free and always right {perfect:.2f}x"
    else:
        word = "can pay"
        outlook = f"{draft} {good.speedup:.2f}x, with k = {good.k}"
    return Verdict(word, f"Speculation {word} here: {cost}; {outlook}.")


def _show(records: Sequence["PassesRecord"], as_json: bool) -> None:
    if as_json:
        shown = {
            "conditions": records[0].conditions.model_dump(mode="json"),
            "contexts": [_as_dict(record) for record in records],
        }
        click.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        return
    for record in records:
        _print(record)
    from rich.console import Console

    Console(highlight=False, markup=False).print(footer(records[0].conditions))


def _as_dict(record: "PassesRecord") -> dict[str, Any]:
    from draftwise.core.estimates import spread
    from draftwise.core.timing import noise

    first = spread(record.samples_ms[1]).median
    passes = [
        {"n": n, **asdict(ms := spread(samples)), "v": ms.median / first, "noise": noise(samples)}
        for n, samples in record.samples_ms.items()
    ]
    return {"context": record.context, "passes_ms": passes, "verdict": asdict(verdict(record))}


def _print(record: "PassesRecord") -> None:
    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from draftwise.core.estimates import spread

    timed = {n: spread(samples) for n, samples in record.samples_ms.items()}
    runs = min(ms.runs for ms in timed.values())
    first, longest = timed[1].median, max(ms.median for ms in timed.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("n", "ms, median", "quartiles", "v", "marginal ms"):
        table.add_column(header, justify="right")
    table.add_column("", width=24)
    last: tuple[int, float] | None = None
    for n, ms in timed.items():
        further = f"{(ms.median - last[1]) / (n - last[0]):+.2f}" if last else ""
        table.add_row(
            str(n),
            f"{ms.median:.2f}",
            f"{ms.low:.2f} to {ms.high:.2f}",
            f"{ms.median / first:.2f}x",
            further,
            Bar(longest, 0, ms.median, color="cyan"),
        )
        last = n, ms.median
    console = Console(highlight=False, markup=False, emoji=False)
    target, context = record.conditions.target, record.context
    console.print(
        f"{target} reads n new tokens behind {context:,} cached ones, {runs} times in turns",
        style="bold",
    )
    console.print(table)
    console.print("v: over a pass of one token; marginal: for each further token", style="dim")
    console.print()
    judged = verdict(record)
    console.print(Text(judged.reason, style=_STYLES.get(judged.word, "yellow")))
    console.print()


@contextmanager
def _progress(title: str) -> Iterator["Progress"]:
    """A bar with the time that is left, drawn between timings, never within."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    with progress_bar(TextColumn(title), BarColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=None)

        def heard(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        yield heard
