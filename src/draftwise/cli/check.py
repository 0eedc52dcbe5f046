"""`draftwise check`: can these two models be paired? Facts side by side, a verdict, an exit code."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from draftwise.cli.options import options_of
from draftwise.engine.options import ModelOptions, make

if TYPE_CHECKING:
    from draftwise.engine.pairing import ModelFacts, Pairing


@click.command()
@options_of(ModelOptions)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(as_json: bool, **options: Any) -> None:
    """Compare target and draft model: vocabularies, contexts, end tokens, chat templates, devices.

    The exit status is 0 if they can work together, 1 if not.
    """
    chosen = make(ModelOptions, options)

    from draftwise.engine.load import check_pair

    pairing = check_pair(chosen)
    if as_json:
        report = asdict(pairing) | {"usable": pairing.usable}
        click.echo(json.dumps(report, ensure_ascii=False, allow_nan=False))
    else:
        _print(pairing)
    raise click.exceptions.Exit(0 if pairing.usable else 1)


_ROWS = [
    ("architecture", lambda m: m.kind),
    ("tokens in the vocabulary", lambda m: f"{m.real_size:,}"),
    ("embedding rows", lambda m: f"{m.embedding_rows:,}"),
    ("largest id in use", lambda m: f"{m.largest_id:,}"),
    ("context", lambda m: f"{m.context_length:,}" if m.context_length else "no limit"),
    ("end tokens", lambda m: ", ".join(m.end_tokens) or "none"),
    ("chat template", lambda m: "yes" if m.chat_template else "no"),
    ("device, dtype", lambda m: f"{m.device}, {m.dtype}"),
    ("cache", lambda m: ", ".join(m.cache_kinds)),
]


def _print(pairing: "Pairing") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("", "target", "draft"):
        table.add_column(header, overflow="fold")
    models: list[ModelFacts] = [pairing.target, pairing.draft]
    table.add_row("name", *(model.name for model in models))
    for name, value in _ROWS:
        table.add_row(name, *(value(model) for model in models))
    # Names and tokens are shown as they read: "[/INST]" is no markup, and ":end:" no emoji.
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    console.print()
    console.print(f"vocabulary: {pairing.vocabulary.summary}")
    if sharing := pairing.sharing:
        console.print(
            f"shared: {sharing.shared:,} of the draft's {sharing.total:,} tokens "
            f"({sharing.share:.0%}) are the target's too; in a sample text "
            f"{sharing.boundaries:.0%} of the target's tokens end where one of the draft's does"
        )
    for warning in pairing.warnings:
        console.print(f"note: {warning}", style="yellow")
    for error in pairing.errors:
        console.print(f"cannot be paired: {error}", style="bold red")
    if pairing.usable:
        console.print("They can work together.", style="green")
