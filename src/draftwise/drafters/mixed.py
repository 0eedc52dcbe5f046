"""Two drafters in one: what costs nothing to propose, or a draft model, whichever promises more.

A copy from earlier text is free, and where the text repeats itself it is long and right; elsewhere a draft
model is worth its passes. Neither order is fixed: before each round the two are compared by the tokens a
millisecond that running estimates of their acceptance promise, at measured costs.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from operator import mul

from draftwise.core.costs import Costs, Curve
from draftwise.core.lookahead import Acceptance, GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.drafter import Drafter, DraftSession
from draftwise.drafters.suffix import SuffixDrafter

_USUAL = Costs(read=Curve(((1, 1.0), (16, 1.3))), propose=Curve(((1, 0.2), (2, 0.4))))
"""In plain passes: a draft of a fifth of the target's time, and checking that is nearly free."""


class Mixed:
    """Drafts with a free drafter and a draft model.

    costs: of the target and the draft model.
    """

    adapts = True

    def __init__(self, free: Drafter, model: Drafter, costs: Costs) -> None:
        self.name = f"mixed:{model.name}"
        self.free, self.model, self.costs = free, model, costs

    @classmethod
    def of(cls, model: Drafter, costs: Costs) -> "Mixed":
        """A model with copies that are longer than suffix decoding's own: what is compared is cut after."""
        return cls(SuffixDrafter(least=0.05), model, costs)

    @property
    def usual_k(self) -> int:
        """The model's: most rounds are its own."""
        return self.model.usual_k

    def open(self) -> "MixedSession":
        """Open a session of each."""
        return MixedSession(self.free.open(), self.model.open(), self.costs)


class MixedSession:
    """One sequence's two sessions, and what was learned of each."""

    def __init__(self, free: DraftSession, model: DraftSession, costs: Costs) -> None:
        self._free, self._model, self._costs = free, model, costs
        self._forget()

    def prefill(self, ids: list[int]) -> None:
        """Let both read the sequence; a new one is learned anew."""
        self._forget()
        self._free.prefill(ids)
        self._model.prefill(ids)

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Propose the copy if it promises more than the model does, else let the model draft."""
        self._learn(ids)
        copy = self._free.propose(ids, k, sampling, randomness)
        # Learned from whether it is taken or not: it tells for free how good copies are here.
        self._copy, self._start, self._drafted = copy, len(ids), Proposal()
        if copy.tokens and self._prefers(copy, k, None if goes_on is None else len(ids)):
            return copy
        drafted = self._model.propose(ids, k, sampling, randomness, goes_on)
        if not drafted.tokens and not drafted.passes:
            return replace(copy, note=drafted.note)
        self._drafted = drafted
        return drafted

    def synchronize(self) -> None:
        """Wait for the draft model."""
        self._model.synchronize()

    def close(self) -> None:
        """Give back what both hold."""
        self._free.close()
        self._model.close()

    def _forget(self) -> None:
        self._copies, self._drafts = Acceptance(), Acceptance()
        self._copy, self._drafted, self._start = Proposal(), Proposal(), 0

    def _learn(self, ids: list[int]) -> None:
        """What was written since the last proposals says how good they were."""
        written = ids[self._start :]
        self._copies.learn(self._copy, written)
        self._drafts.learn(self._drafted, written)

    def _prefers(self, copy: Proposal, k: int, context: int | None) -> bool:
        """Whether the copy is the better bet: by tokens a millisecond, at the best length of each.

        context: that costs are asked for behind. None at a fixed k, where nothing that is measured may
        decide, or a seed would not repeat a text under every rule: then usual costs do.
        """
        costs = _USUAL if context is None else self._costs.behind(context)
        copied = [self._copies.chance(copy, i) for i in range(len(copy.tokens))]
        drafted = [self._drafts.at(i) for i in range(k)]
        of_copy = _best_rate(copied, lambda n: costs.round_ms(n, passes=0))
        return of_copy >= _best_rate(drafted, costs.round_ms)


def _best_rate(chances: list[float], price: Callable[[int], float]) -> float:
    """Tokens a millisecond at the length that promises most, none included."""
    expected = accumulate(chances, mul)
    tokens = accumulate(expected, initial=1.0)
    return max(each / price(n) for n, each in enumerate(tokens))
