"""What the verbs that measure have in common: their options, their progress, where records go."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwise.cli.options import Command, options_of
from draftwise.core.errors import OptionError
from draftwise.engine.options import (
    DEFAULT_TARGET,
    ITS_DRAFT,
    OTHERWISE,
    GenerateOptions,
    ModelOptions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, ProgressColumn

    from draftwise.measure.bench import Step
    from draftwise.measure.recording import Recording
    from draftwise.measure.workloads import BenchPrompt


def usual_drafts(target: str) -> tuple[str, ...]:
    """What is compared where nobody names a drafter: a draft model if there is one, and copies."""
    return (ITS_DRAFT, OTHERWISE) if target == DEFAULT_TARGET else (OTHERWISE, "lookup")


FEW_WORKLOADS = ("prose", "code", "qa", "editing")
"""Workloads where nobody names any, for verbs that are to be done in minutes."""

DECIDED = ("k", "rule")
"""Options of writing that a measurement decides for itself."""


def measuring_options(records: str, tokens: int) -> Callable[[Command], Command]:
    """Decorate a verb with what it may measure: models, drafters, prompts, sampling, records.

    records: the file that records go to by default. tokens: how many are written by default.
    """
    decorators = [
        options_of(ModelOptions, without=("draft",)),
        click.option(
            "--draft",
            "drafts",
            multiple=True,
            metavar="DRAFT",
            help="What guesses: suffix, lookup, self, a model like --target, or mixed:MODEL; repeatable.",
        ),
        click.option(
            "--workload",
            "workloads",
            multiple=True,
            metavar="NAME",
            help="A built-in workload; repeatable, by default several.",
        ),
        click.option(
            "--prompts",
            "prompt_files",
            multiple=True,
            metavar="FILE",
            help="Prompts of your own instead: a text file holds one, a .jsonl file one a line "
            "(prompt or messages, and workload if you like); repeatable.",
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Most prompts of each workload."),
        options_of(GenerateOptions, without=(*DECIDED, "tokens")),
        click.option(
            "--tokens", type=int, default=tokens, show_default=True, help="Most tokens of a text."
        ),
        click.option(
            "--out",
            default=records,
            show_default=True,
            metavar="FILE",
            help="Records go here as they are made; what it has already is not measured again.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ]

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def chosen_prompts(
    workloads: Sequence[str],
    files: Sequence[str],
    limit: int | None,
    usual: Sequence[str] = (),
) -> "tuple[BenchPrompt, ...]":
    """The prompts to measure: the user's own, or those of the workloads named, or the usual ones."""
    from draftwise.measure.workloads import choose, read_prompts

    if files and workloads:
        raise OptionError("give either --workload or --prompts: prompts of your own are a workload")
    if files:
        return tuple(prompt for path in files for prompt in read_prompts(path, limit))
    return tuple(choose(workloads or usual, limit))


@contextmanager
def recording_to(path: str) -> "Iterator[Recording]":
    """Records go to a file; how many it has already is said, and what to do after Ctrl-C."""
    from draftwise.measure.recording import Recording

    with Recording(Path(path)) as recording:
        if recording.records:
            click.echo(f"{path} has {len(recording.records)} records already", err=True)
        try:
            yield recording
        except KeyboardInterrupt:
            click.echo(
                f"interrupted: {path} has {len(recording.records)} records; the same command goes on "
                "from there",
                err=True,
            )
            raise


def carry_out(steps: "Iterable[Step]") -> None:
    """Do the steps, with a bar and the time left on a terminal's stderr."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    steps = list(steps)
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    ]
    with progress_bar(*columns) as progress:
        task = progress.add_task("", total=sum(step.weight for step in steps))
        for step in steps:
            progress.update(task, description=step.what, refresh=True)
            step.work()
            progress.update(task, advance=step.weight, refresh=True)


def progress_bar(*columns: "ProgressColumn") -> "Progress":
    """A bar on a terminal's stderr, drawn when it is told to and never in between.

    A thread that woke up ten times a second to draw it would be timed along.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, highlight=False)
    return Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )


def whole_numbers(given: str, advice: str) -> list[int]:
    """Numbers from 1 on of a text such as 1,3,5, ascending; else the advice how to write them."""
    try:
        found = sorted({int(number) for number in given.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise click.BadParameter(advice)
    return found


def write_page(path: Path, text: str) -> None:
    """Write a page, whole, or say in a line why not."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from error
