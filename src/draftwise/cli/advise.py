"""`draftwise advise`: should I speculate, with which draft, at which k? Or: don't, because."""

from typing import TYPE_CHECKING, Any

import click

from draftwise.cli.measuring import (
    FEW_WORKLOADS,
    carry_out,
    chosen_prompts,
    measuring_options,
    recording_to,
    usual_drafts,
)
from draftwise.cli.options import taken_by
from draftwise.core.errors import OptionError
from draftwise.engine.options import GenerateOptions, ModelOptions, make

if TYPE_CHECKING:
    from draftwise.measure.records import AdviceRecord

YOURS = "your engine"
_STYLES = {
    "do": "bold green",
    "do not": "bold red",
    "too close to say": "yellow",
    "too noisy to say": "yellow",
}


@click.command()
@measuring_options("advice.jsonl", tokens=64)
@click.option(
    "--engine-tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RATE",
    help="What the engine that you use now writes, to compare with.",
)
@click.option("--engine", default=YOURS, metavar="NAME", help="What that engine is called.")
def advise(
    drafts: tuple[str, ...],
    workloads: tuple[str, ...],
    prompt_files: tuple[str, ...],
    limit: int | None,
    out: str,
    as_json: bool,
    engine_tokens_per_second: float | None,
    engine: str,
    **options: Any,
) -> None:
    """Tell whether speculation will pay: with which draft, at which k, how sure; or why not.

    Short measurements on your prompts: passes over 1 to 17 tokens, the cost of a draft, how often it is
    right; and one run by the clock that checks the prediction. The exit status is 0 whatever is advised.
    """
    if engine != YOURS and engine_tokens_per_second is None:
        raise OptionError(
            f"--engine {engine} is compared by --engine-tokens-per-second: give it too"
        )
    models = make(ModelOptions, taken_by(ModelOptions, options))
    writing = make(GenerateOptions, taken_by(GenerateOptions, options))
    prompts = chosen_prompts(
        workloads, prompt_files, limit or (None if prompt_files else 1), FEW_WORKLOADS
    )
    if len(prompts) > 200:
        raise OptionError(f"{len(prompts)} prompts are more than advice needs: set --limit")

    from draftwise.measure.advise import OtherEngine, foretell, require_foreseeable
    from draftwise.measure.advise import advise as advice_of
    from draftwise.measure.bench import Bench, BenchPlan
    from draftwise.measure.subject import load_subject

    other = OtherEngine(engine, engine_tokens_per_second) if engine_tokens_per_second else None
    with (
        recording_to(out) as recording,
        load_subject(models, drafts or usual_drafts(models.target), writing) as subject,
    ):
        require_foreseeable(subject)
        looked = Bench(subject, BenchPlan(prompts=prompts), recording)
        carry_out(looked.look())
        carry_out(looked.check([(name, choice.k) for name, choice in foretell(looked).items()]))
        advice = advice_of(looked, other)
        recording.add(advice)
    if as_json:
        click.echo(advice.model_dump_json())
    else:
        show(advice)


def show(advice: "AdviceRecord") -> None:
    """Print an advice on stdout."""
    from rich.text import Text

    from draftwise.cli import tables
    from draftwise.cli.nesting import footer
    from draftwise.report.tables import choices

    console = tables.console()
    best = advice.best
    headline = {
        "do": f"Do: --draft {best.drafter} -k {best.k}, predicted {_interval(best)}",
        "do not": "Do not speculate here.",
        "too close to say": f"Too close to say: the best found is {best.drafter} at k = {best.k}, "
        f"predicted {_interval(best)}",
        "too noisy to say": "Too noisy to say.",
    }
    console.print(Text(headline[advice.verdict], style=_STYLES[advice.verdict]))
    for reason in advice.reasons:
        console.print(f"  {reason}")
    console.print()
    tables.print_table(console, choices(advice))
    console.print()
    console.print(f"plain: {advice.plain_tokens_per_second:.1f} tokens/s")
    for note in advice.notes:
        console.print(note)
    for engine, text in advice.exports.items():
        console.print()
        console.print(f"{engine}:", style="bold")
        console.print(text, soft_wrap=True)  # to be copied as it is
    console.print()
    console.print(footer(advice.conditions), soft_wrap=True)


def _interval(choice: Any) -> str:
    return f"{choice.speedup:.2f}x ({choice.low:.2f} to {choice.high:.2f})"
