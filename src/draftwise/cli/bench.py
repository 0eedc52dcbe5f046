"""`draftwise bench`: how fast, at which k, on which text? Counted for every k, timed for a few."""

import json
from typing import TYPE_CHECKING, Any, Literal

import click

from draftwise.cli.measuring import (
    carry_out,
    chosen_prompts,
    measuring_options,
    recording_to,
    usual_drafts,
    whole_numbers,
)
from draftwise.cli.nesting import footer
from draftwise.cli.options import taken_by
from draftwise.engine.options import GenerateOptions, ModelOptions, make

if TYPE_CHECKING:
    from draftwise.measure.records import K


def _ks(_: click.Context, __: click.Parameter, given: str) -> "tuple[K | Literal['best'], ...]":
    """Numbers and words, as in 5,best,auto."""
    found: list[K | Literal["best"]] = []
    for asked in dict.fromkeys(given.split(",")):
        if asked == "best" or asked == "auto":
            found.append(asked)
        elif asked.isdecimal() and int(asked) > 0:
            found.append(int(asked))
        else:
            raise click.BadParameter("write numbers from 1 on, best, or auto, as in 5,auto")
    return tuple(found)


def _numbers(_: click.Context, __: click.Parameter, given: str) -> tuple[int, ...]:
    return tuple(whole_numbers(given, "write them as 1,3,5: each is 1 or more"))


@click.command()
@measuring_options("bench.jsonl", tokens=64)
@click.option(
    "-k",
    "--num-speculative-tokens",
    "ks",
    callback=_numbers,
    default="1,3,5,8,16",
    show_default=True,
    metavar="1,3,...",
    help="Timed in the k sweep; all k up to 16 are counted anyway.",
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="NAME",
    help="Workload of the k sweep; repeatable, by default the first one.",
)
@click.option(
    "--workload-k",
    "workload_ks",
    callback=_ks,
    default="auto",
    show_default=True,
    metavar="5,best,auto",
    help="Timed on all workloads: a number, the best of each by count, or what a lookahead chooses.",
)
@click.option(
    "--repeats", type=int, default=1, show_default=True, help="Timed runs of each prompt."
)
def bench(
    drafts: tuple[str, ...],
    workloads: tuple[str, ...],
    prompt_files: tuple[str, ...],
    limit: int | None,
    out: str,
    as_json: bool,
    ks: tuple[int, ...],
    sweep: tuple[str, ...],
    workload_ks: "tuple[K | Literal['best'], ...]",
    repeats: int,
    **options: Any,
) -> None:
    """Measure drafters on workloads: a k sweep on one, and a workload sweep over all.

    Every run is timed side by side with a plain one and proved against it; the exit status is 3 if the
    output changes. Interrupt it when you like: the same command goes on where it was.
    """
    models = make(ModelOptions, taken_by(ModelOptions, options))
    writing = make(GenerateOptions, taken_by(GenerateOptions, options))
    prompts = chosen_prompts(workloads, prompt_files, limit or (None if prompt_files else 2))

    from draftwise.measure.bench import Bench, BenchPlan
    from draftwise.measure.subject import load_subject

    plan = BenchPlan(
        prompts=prompts,
        sweep=sweep or (prompts[0].workload,),
        ks=ks,
        workload_ks=workload_ks,
        repeats=repeats,
    )
    with (
        recording_to(out) as recording,
        load_subject(models, drafts or usual_drafts(models.target), writing) as subject,
    ):
        measured = Bench(subject, plan, recording)
        carry_out(measured.look())
        carry_out(measured.time())
    from draftwise.cli import tables

    if as_json:
        click.echo(
            json.dumps(tables.as_dict(measured.records), ensure_ascii=False, allow_nan=False)
        )
        return
    shown = tables.console()
    tables.print_bench(measured.records, shown)
    shown.print(footer(measured.records[0].conditions), soft_wrap=True)
