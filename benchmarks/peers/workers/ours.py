"""draftwise itself: one target, and a drafter for each setting."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from line import Answer, Decode, serve

from draftwise import Engine
from draftwise.core.costs import Costs
from draftwise.core.counters import RoundCount
from draftwise.engine.load import load_drafter, load_runner
from draftwise.engine.options import ModelOptions
from draftwise.models.devices import set_threads


@cache
def _target(options: ModelOptions) -> Any:
    set_threads(options.threads)
    return load_runner(options.target, options)


def _predicted(costs: Costs, rounds: Sequence[RoundCount]) -> float:
    """tau / (k c + v(k+1)): tau as it was counted, k that of each round, c and v as they were measured."""
    spent = sum(costs.round_ms(r.drafted, r.draft_passes) for r in rounds)
    return costs.plain_ms * sum(r.emitted for r in rounds) / spent


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """plain, lookup, suffix or mixed, with -k auto; the time to the first token is that of the prefill."""
    chosen = ModelOptions(
        target=options["target"], threads=options["threads"], **options["model_options"]
    )
    loaded, runner = _target(chosen)
    name = {"plain": "none", "mixed": f"mixed:{options['draft']}"}.get(setting, setting)
    engine = Engine(loaded, runner, load_drafter(name, loaded, runner, chosen), {})

    def decode(ids: list[int], tokens: int) -> Answer:
        with engine.stream(ids, tokens=tokens) as stream:
            counts = [round_.count for round_ in stream]
        result = stream.result
        return Answer(
            list(result.token_ids),
            result.times.prefill,
            result.counters.drafted,
            result.counters.accepted,
            result.counters.rounds,
            None if setting == "plain" else _predicted(engine.costs, counts),
        )

    return decode


if __name__ == "__main__":
    serve(open_setting, ("draftwise", "torch", "transformers", "openvino"))
