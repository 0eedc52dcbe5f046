"""Two drafters in one: what costs nothing to propose, or a draft model, whichever promises more.

A copy from earlier text is free, and where the text repeats itself it is long and right; elsewhere a draft
model is worth its passes. Neither order is fixed: before each round the two are compared by the tokens a
millisecond that running estimates of their acceptance promise, at measured costs.
"""

from draftwise.core.costs import Costs
from draftwise.core.lookahead import Acceptance, GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.drafter import Drafter, DraftSession


class Mixed:
    """Drafts with a free drafter and a draft model.

    costs: of the target and the draft model.
    """

    name = "mixed"
    usual_k = 8
    adapts = True

    def __init__(self, free: Drafter, model: Drafter, costs: Costs) -> None:
        self.free, self.model, self.costs = free, model, costs

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
        self._copy, self._start = copy, len(ids)
        self._drafted = Proposal()
        if copy.tokens and self._of_copy(copy) >= self._of_model(k):
            return copy
        self._drafted = self._model.propose(ids, k, sampling, randomness, goes_on)
        return self._drafted

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

    def _of_copy(self, copy: Proposal) -> float:
        """Tokens a millisecond of checking the copy, at the length that promises most."""
        best, survival, expected = 0.0, 1.0, 1.0
        for n in range(1, len(copy.tokens) + 1):
            survival *= self._copies.chance(copy, n - 1)
            expected += survival
            best = max(best, expected / (self._costs.read(n + 1) + self._costs.host))
        return best

    def _of_model(self, k: int) -> float:
        """Tokens a millisecond of drafting with the model, at the length that promises most."""
        best, survival, expected = 1 / self._costs.plain_ms, 1.0, 1.0
        for n in range(1, k + 1):
            survival *= self._drafts.at(n - 1)
            expected += survival
            best = max(best, expected / self._costs.round_ms(n))
        return best
