"""`draftwise drafts`: several drafters against one target. Which is best, and why?"""

import json
from typing import Any

import click

from draftwise.cli.measuring import (
    FEW_WORKLOADS,
    carry_out,
    chosen_prompts,
    measuring_options,
    recording_to,
    usual_drafts,
)
from draftwise.cli.nesting import footer
from draftwise.cli.options import taken_by
from draftwise.engine.options import GenerateOptions, ModelOptions, make


@click.command()
@measuring_options("drafts.jsonl", tokens=64)
@click.option(
    "--repeats", type=int, default=1, show_default=True, help="Timed runs of each prompt."
)
def drafts(
    drafts: tuple[str, ...],
    workloads: tuple[str, ...],
    prompt_files: tuple[str, ...],
    limit: int | None,
    out: str,
    as_json: bool,
    repeats: int,
    **options: Any,
) -> None:
    """Compare drafters on one target: how often each is right, what it costs, and what comes of it.

    Each is counted at every k and timed at the best k of each workload and at -k auto, beside plain decoding.
    """
    models = make(ModelOptions, taken_by(ModelOptions, options))
    writing = make(GenerateOptions, taken_by(GenerateOptions, options))
    prompts = chosen_prompts(
        workloads, prompt_files, limit or (None if prompt_files else 1), FEW_WORKLOADS
    )

    from draftwise.measure.bench import Bench, BenchPlan
    from draftwise.measure.subject import load_subject

    with (
        recording_to(out) as recording,
        load_subject(models, drafts or usual_drafts(models.target), writing) as subject,
    ):
        measured = Bench(
            subject,
            BenchPlan(prompts=prompts, workload_ks=("best", "auto"), repeats=repeats),
            recording,
        )
        carry_out(measured.look())
        carry_out(measured.time())
    from draftwise.cli import tables

    records = measured.records
    if as_json:
        found = tables.as_dict(records) | {"explanations": tables.explained(records)}
        click.echo(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return
    shown = tables.console()
    tables.print_drafts(records, shown)
    shown.print(footer(records[0].conditions), soft_wrap=True)
