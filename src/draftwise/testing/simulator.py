"""The cache-free simulator: speculative decoding in thirty lines, every forward redone from scratch.

It shares nothing with the loop but the idea. Equality with it to the integer (rounds, drafted,
accepted, ids) catches what leaves the text right, such as a draft whose cache is a token behind.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

Next = Callable[[list[int]], int]
"""The token that a model writes after the given ids, computed without any cache."""

Guess = Callable[[list[int]], int | None]
"""Likewise for whatever drafts; None where it proposes nothing more in this round."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a run gives: ids without the prompt, and (drafted, accepted, emitted) of every round."""

    ids: list[int]
    rounds: list[tuple[int, int, int]]


def simulate(
    target: Next,
    draft: Guess,
    prompt: list[int],
    k: int,
    max_tokens: int,
    end_ids: Collection[int] = (),
) -> Simulated:
    """Greedy speculative decoding by its definition."""
    ids, rounds = list(prompt), []
    while True:
        left = len(prompt) + max_tokens - len(ids)
        drafted: list[int] = []
        while len(drafted) < min(k, left - 1) and (guess := draft(ids + drafted)) is not None:
            drafted.append(guess)
        accepted = 0
        while accepted < len(drafted) and target(ids + drafted[:accepted]) == drafted[accepted]:
            accepted += 1
        block = [*drafted[:accepted], target(ids + drafted[:accepted])][:left]
        stop = next((i + 1 for i, token in enumerate(block) if token in end_ids), None)
        ids += block[:stop]
        rounds.append((len(drafted), accepted, len(block[:stop])))
        if stop is not None or len(ids) - len(prompt) >= max_tokens:
            return Simulated(ids[len(prompt) :], rounds)
