"""A drafter that follows a script: it knows the target's text and errs as often as it is told to.

With it the loop can be tried, and measured, at any acceptance rate and any cost of a draft, and
without a draft model. Everything is decided by hashes of seed and position: which tokens are right
is the same at every k, whatever the rounds are.

    target_text = [*prompt, *plain_run.token_ids]
    ScriptedDrafter(target_text, accuracy=0.8, vocab_size=96, seconds_per_token=0.002)
"""

import time
from collections.abc import Callable, Sequence
from random import Random

from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.drafter import Stateless


class ScriptedDrafter(Stateless):
    """Proposes the reference, or a wrong token in its place.

    reference: what the target writes, `reference[i]` at position `prompt_length + i` of the
    sequence; with the prompt in front, prompt_length stays 0. Beyond it nothing is proposed.
    accuracy: probability that a proposed token is the reference's, position by position.
    seconds_per_token: what a token costs, spent by `sleep`; `FakeClock.advance` costs nothing.
    shortfall: probability that a proposal is shorter than asked for, by any number of tokens.
    """

    name = "scripted"
    usual_k = 5
    adapts = False

    def __init__(
        self,
        reference: Sequence[int],
        accuracy: float,
        *,
        vocab_size: int,
        prompt_length: int = 0,
        seconds_per_token: float = 0.0,
        seed: int = 0,
        shortfall: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (0 <= accuracy <= 1 and 0 <= shortfall <= 1):
            raise ValueError(f"probabilities lie in 0 to 1, not {accuracy} and {shortfall}")
        if vocab_size < 2:
            raise ValueError("a wrong token needs a vocabulary of at least two")
        self._reference = tuple(reference)
        self._accuracy = accuracy
        self._vocab_size = vocab_size
        self._prompt_length = prompt_length
        self._seconds_per_token = seconds_per_token
        self._seed = seed
        self._shortfall = shortfall
        self._sleep = sleep

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Propose the next k tokens of the script; each counts as a pass of a draft model."""
        num = self._shortened(len(ids), k)
        note = "the script falls short" if num < k else None
        start = len(ids) - self._prompt_length
        known = self._reference[start : start + num] if start >= 0 else ()
        tokens = tuple(self._said(token, len(ids) + i) for i, token in enumerate(known))
        if tokens and self._seconds_per_token:
            self._sleep(len(tokens) * self._seconds_per_token)
        return Proposal(tokens, passes=len(tokens), note=note)

    def _said(self, token: int, position: int) -> int:
        """The token, or another one in its place."""
        chance = Random(f"{self._seed} says at {position}")
        if chance.random() < self._accuracy:
            return token
        return (token + chance.randrange(1, self._vocab_size)) % self._vocab_size

    def _shortened(self, position: int, k: int) -> int:
        chance = Random(f"{self._seed} falls short at {position}")
        return chance.randrange(k) if chance.random() < self._shortfall else k
