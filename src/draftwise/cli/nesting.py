"""`draftwise nesting`: does one pass answer every prefix? The essay's two tables, and a verdict."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftwise.cli.options import options_of
from draftwise.cli.prompts import read_prompt
from draftwise.core.errors import FaultError
from draftwise.engine.options import ModelOptions, make

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from draftwise.measure.nesting import Nesting
    from draftwise.measure.records import Conditions, Prediction

DEFAULT_TEXT = "The capital of France is Paris and it"
TARGET_ONLY = ("target", "device", "dtype", "runner", "weights", "threads")
"""Of ModelOptions, those of a target alone."""
_SHOWN = 40
"""Characters of a text at most."""


@click.command()
@click.argument("text", default=DEFAULT_TEXT)
@options_of(ModelOptions, only=TARGET_ONLY)
@click.option(
    "--shortened", type=int, help="Tokens to keep of the shortened text; by default five of eight."
)
@click.option("--out", metavar="FILE", help="Append the record to a file of JSON Lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def nesting(
    text: str, shortened: int | None, out: str | None, as_json: bool, **options: Any
) -> None:
    """Show that one pass over TEXT answers every prefix of it, as separate passes would.

    The text is taken raw, without the chat template. The exit status is 3 if a prediction differs by
    more than rounding explains.
    """
    chosen = make(ModelOptions, options)
    text = read_prompt(text, None, None)

    from draftwise.engine.load import load_runner
    from draftwise.measure.conditions import conditions
    from draftwise.measure.nesting import nest
    from draftwise.measure.recording import Recording

    with Recording(Path(out) if out else None) as recording:
        target, runner = load_runner(chosen.target, chosen)
        nested, met = nest(target, runner, text, shortened), conditions(target, runner)
        recording.add(nested.record(met))
    if as_json:
        click.echo(json.dumps(_as_dict(nested, met), ensure_ascii=False, allow_nan=False))
    else:
        _print(nested, met)
    if nested.fault:
        raise FaultError(
            f"one pass does not answer every prefix: logits differ by {nested.largest_difference:.3g}, "
            f"and rounding explains up to {nested.bound:.3g}"
        )


def _as_dict(nested: "Nesting", met: "Conditions") -> dict[str, Any]:
    return nested.record(met).model_dump(mode="json") | {
        "shortened_predictions": [p.model_dump() for p in nested.shortened],
        "bound": nested.bound,
        "near_ties": len(nested.near_ties),
        "fault": nested.fault,
    }


def _print(nested: "Nesting", met: "Conditions") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    num, kept = len(nested.alone), len(nested.shortened)
    console.print(f"{num} tokens -> {num} predictions, one pass", style="bold")
    prefixes = [p.prefix for p in nested.alone]
    console.print(_table(("after", "one pass", "alone"), map(_quoted, prefixes), nested.alone))
    console.print()
    console.print(f"the same text cut to {kept} of its {num} tokens", style="bold")
    positions = map(str, range(kept))
    headers = ("position", f"all {num}", f"first {kept}")
    console.print(_table(headers, positions, nested.shortened))
    console.print()
    console.print(_verdict(nested, str(met.settings["dtype"])))
    console.print(footer(met))


def _table(
    headers: tuple[str, str, str], places: Iterable[str], predictions: "Sequence[Prediction]"
) -> "Table":
    """What two passes say at each place, and how far they are from each other."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in (*headers, ""):
        table.add_column(header, overflow="fold")
    table.add_column("off by", justify="right")
    for place, p in zip(places, predictions, strict=True):
        same = "same" if p.same else "differs"
        table.add_row(place, _quoted(p.token), _quoted(p.alone), same, f"{p.difference:.2g}")
    return table


def footer(met: "Conditions") -> "Text":
    """What took effect, in a line."""
    from rich.text import Text

    from draftwise.engine.settings import in_words

    where = in_words(met.settings, met.threads, met.machine)
    versions = ", ".join(f"{name} {number}" for name, number in met.versions.items())
    return Text(f"{met.target}; {where}; {versions}", style="dim")


def _quoted(text: str) -> str:
    """Text as it reads, its end if it is long."""
    return repr(text if len(text) <= _SHOWN else f"…{text[1 - _SHOWN :]}")


def _verdict(nested: "Nesting", dtype: str) -> "Text":
    from rich.text import Text

    largest = nested.largest_difference
    sizes = (
        f"largest numerical difference: {largest:.2g}; rounding in {dtype} explains up to "
        f"{nested.bound:.2g}"
    )
    if nested.fault:
        return Text(f"{sizes}\nONE PASS DOES NOT ANSWER EVERY PREFIX", style="bold red")
    if ties := nested.near_ties:
        lines = [
            f"near-tie after {_quoted(p.prefix)}: rounding decides between {_quoted(p.token)} and "
            f"{_quoted(p.alone)}"
            for p in ties
        ]
        return Text("\n".join([sizes, *lines]), style="yellow")
    return Text(f"{sizes}\nOne pass answers every prefix.", style="green")
