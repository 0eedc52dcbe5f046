"""draftwise itself: one target, and a drafter for each setting."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from line import Answer, Decode, serve

from draftwise import Engine
from draftwise.engine.load import load_drafter, load_runner
from draftwise.engine.options import ModelOptions
from draftwise.models.devices import set_threads


@cache
def _target(options: ModelOptions) -> Any:
    set_threads(options.threads)
    return load_runner(options.target, options)


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """plain, lookup, suffix or mixed, with -k auto."""
    chosen = ModelOptions(
        target=options["target"], threads=options["threads"], **options["model_options"]
    )
    loaded, runner = _target(chosen)
    name = {"plain": "none", "mixed": f"mixed:{options['draft']}"}.get(setting, setting)
    engine = Engine(loaded, runner, load_drafter(name, loaded, runner, chosen), {})

    def decode(ids: list[int], tokens: int) -> Answer:
        result = engine.generate(ids, tokens=tokens)
        return Answer(result.token_ids, result.times.prefill)

    return decode


if __name__ == "__main__":
    serve(open_setting, ("draftwise", "torch", "transformers", "openvino"))
