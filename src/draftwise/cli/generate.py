"""`draftwise generate`: the text, the proof, and the bill. Only the text, or the JSON, is on stdout."""

import json
from typing import TYPE_CHECKING, Any

import click

from draftwise.cli.options import options_of, taken_by
from draftwise.cli.prompts import read_prompt
from draftwise.engine.options import GenerateOptions, ModelOptions, make

if TYPE_CHECKING:
    from draftwise.engine.result import Result
    from draftwise.engine.stream import Stream


@click.command()
@click.argument("prompt", required=False)
@click.option("--prompt", "prompt_option", metavar="TEXT", help="The same as the argument.")
@click.option(
    "--prompt-file", metavar="FILE", help="Read the prompt from a file; - is standard input."
)
@options_of(ModelOptions)
@options_of(GenerateOptions)
@click.option("--stream", is_flag=True, help="Show the text as it comes, coloured by its origin.")
@click.option(
    "--baseline/--no-baseline", default=True, help="Decode plainly too, compare, and prove."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
def generate(
    prompt: str | None,
    prompt_option: str | None,
    prompt_file: str | None,
    stream: bool,
    baseline: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write an answer to PROMPT with speculation, and show that it is what the target alone writes.

    Plain decoding runs beside it, in turns, so that both see the same machine. The exit status is 3
    if the output differs by more than rounding explains.
    """
    models = make(ModelOptions, taken_by(ModelOptions, options))
    asked = make(GenerateOptions, taken_by(GenerateOptions, options))
    text = read_prompt(prompt, prompt_option, prompt_file)

    from draftwise.core.errors import FaultError
    from draftwise.engine.load import load

    with load(options=models) as engine:
        writing = engine.stream(text, asked, baseline=baseline)
        try:
            _write(writing, stream and not as_json)
        except FaultError:
            _show(writing.result, stream, as_json)
            raise
        except KeyboardInterrupt:
            writing.close()
            if writing.begun:
                _show(writing.result, stream, as_json)
            raise
        _show(writing.result, stream, as_json)


def _write(writing: "Stream", live: bool) -> None:
    """Take all rounds, showing them as they come if asked to."""
    from draftwise.cli.live import LiveText

    if not live:
        for _ in writing:
            pass
        return
    with LiveText() as shown:
        for round_ in writing:
            shown.add(round_)


def _show(result: "Result", streamed: bool, as_json: bool) -> None:
    """Print the result on stdout, and the proof and the bill on stderr."""
    from rich.console import Console

    from draftwise.cli import render

    if as_json:
        click.echo(json.dumps(result.as_dict(), ensure_ascii=False, allow_nan=False))
        return
    if not streamed:
        click.echo(result.text)
    console = Console(stderr=True, highlight=False)
    console.print()
    console.print(render.proof(result))
    console.print()
    console.print(render.bill(result))
