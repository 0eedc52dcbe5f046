"""The demo: real models write a story, code and an edit, with proof and bill; then the control.

    make demo        # or: python examples/demo.py

The target has 1.5 billion parameters and the draft 135 million. They come from different families and
number words differently, so the draft guesses among the tokens that both have; where the text repeats
itself, copies of it are proposed instead. How many tokens are guessed in a round follows from costs.
"""

from pathlib import Path

from rich.console import Console
from rich.rule import Rule

import draftwise
from draftwise.cli import render
from draftwise.cli.live import LiveText

PROMPTS = Path(__file__).parent
console = Console(highlight=False)


def show(engine: draftwise.Engine, name: str, **options: object) -> draftwise.Result:
    """Write one text as it comes, then its proof and its bill."""
    console.print(Rule(name))
    stream = engine.stream((PROMPTS / f"{name}.txt").read_text().strip(), baseline=True, **options)
    with LiveText() as live:
        for round_ in stream:
            live.add(round_)
    for part in ("", render.proof(stream.result), "", render.bill(stream.result)):
        console.print(part)
    return stream.result


def main() -> None:
    """Run the pair on three kinds of text, copies alone on one, and the control."""
    speedups = {}
    with draftwise.load("qwen2.5-coder-1.5b", "mixed") as pair:
        for name in ("story", "code", "edit"):
            result = show(pair, name, tokens=64)
            speedups[f"{name}, 1.5B with a draft of 135M, and copies"] = result.speedup
    with draftwise.load("smollm2-135m", "suffix") as light:
        speedups["edit, 135M with copies alone"] = show(light, "edit", tokens=120).speedup
    console.print(
        "\nThe control: the target drafts for itself. All is accepted, and it is slower by design."
    )
    with draftwise.load("smollm2-135m", "self", dtype="float32") as control:
        result = show(control, "edit", tokens=48)
        speedups["edit, 135M as its own draft"] = result.speedup
        if result.counters.discarded:
            raise SystemExit("the control discarded tokens: something is wrong")
    console.print(Rule("speed-up over plain decoding"))
    for name, speedup in speedups.items():
        console.print(f"{speedup.measured:5.2f}x  {name}")


if __name__ == "__main__":
    main()
