"""Which match should prompt lookup copy from? Replayed on text that the target really wrote.

    python benchmarks/lookup.py [--target NAME] [--tokens N] [-k K]

The target writes each prompt's text once, plainly. Then every variant proposes from every round's
position of that text, which gives its accepted tokens and its tokens a round exactly, with no model
and no clock. "first" takes the leftmost occurrence of the shortest match, as the n-gram drafters of
several engines do; the others take the longest match, and of equally long ones the most recent.
"""

import argparse

import draftwise
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.drafters.lookup import PromptLookup

PROMPTS = {
    "edit": "Fix the spelling and write the text out again: The old lighthous stood at the edge of the "
    "clif, and every evning its keeper climed the ninety-nine steps to light the lamp. He knew each "
    "stone of the stair and the names of all the ships that passed in the night.",
    "code": "Write a Python class for a stack with push, pop, peek, is_empty and size, each documented.",
    "json": "List five European capitals as a JSON array of objects with name, country and population.",
    "summary": "Summarise in two sentences: A KV cache stops a model recomputing what it already worked "
    "out. It does nothing about the other problem, which is that a token cannot be produced until the "
    "token before it exists. Generation is a sequential loop.",
    "story": "Write a story about a fox who wants to see the sea.",
    "answer": "Explain how a refrigerator works.",
    "list": "Write a shopping list of twenty things, one a line, numbered.",
    "table": "Write a multiplication table from 1 x 1 to 9 x 9, one product a line.",
}


class First:
    """Copies from the leftmost occurrence of the last `length` tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def propose(self, ids: list[int], k: int) -> list[int]:
        """Up to k tokens."""
        end = ids[-self.length :]
        for start in range(len(ids) - self.length):
            if ids[start : start + self.length] == end:
                return ids[start + self.length : start + self.length + k]
        return []


class Longest:
    """The drafter as it ships."""

    def __init__(self, shortest: int) -> None:
        self.session = PromptLookup(shortest).open()
        self.sampling = Sampler(SamplingOptions(), vocab_size=2**31).start([])

    def propose(self, ids: list[int], k: int) -> list[int]:
        """Up to k tokens."""
        return list(self.session.propose(ids, k, self.sampling, KeyedNoise(0)).tokens)


def replay(
    drafter: First | Longest, prompt: list[int], text: list[int], k: int
) -> tuple[int, int, int]:
    """Rounds, drafted and accepted tokens."""
    rounds = drafted = accepted = at = 0
    while at < len(text):
        proposal = drafter.propose(prompt + text[:at], min(k, len(text) - at - 1))
        right = 0
        while right < len(proposal) and proposal[right] == text[at + right]:
            right += 1
        rounds, drafted, accepted, at = (
            rounds + 1,
            drafted + len(proposal),
            accepted + right,
            at + right + 1,
        )
    return rounds, drafted, accepted


def main() -> None:
    """Write the texts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("-k", type=int, default=5)
    options = parser.parse_args()
    texts = {}
    with draftwise.load(options.target, "none") as engine:
        for name, prompt in PROMPTS.items():
            ids = engine.target.tokenizer.chat([draftwise.Message("user", prompt)])
            texts[name] = ids, list(engine.generate(ids, tokens=options.tokens).token_ids)
    variants = {f"first {n}": lambda n=n: First(n) for n in (2, 3)} | {
        f"longest {n}": lambda n=n: Longest(n) for n in (1, 2, 3, 4)
    }
    print(f"{options.target}, k = {options.k}: tokens a round (accepted / drafted)")
    print(f"{'':10}" + "".join(f"{name:>20}" for name in variants))
    totals = {name: [0, 0, 0, 0] for name in variants}
    for kind, (prompt, text) in texts.items():
        row = f"{kind:10}"
        for name, make in variants.items():
            rounds, drafted, accepted = replay(make(), prompt, text, options.k)
            row += f"{len(text) / rounds:8.2f} ({accepted:4}/{drafted:4})"
            for i, value in enumerate((len(text), rounds, drafted, accepted)):
                totals[name][i] += value
        print(row)
    print(f"{'all':10}" + "".join(f"{t / r:8.2f} ({a:4}/{d:4})" for t, r, d, a in totals.values()))


if __name__ == "__main__":
    main()
