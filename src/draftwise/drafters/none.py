"""The drafter that never proposes: plain decoding through the speculative loop."""

from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.drafter import DraftSession


class NoDraft:
    """Proposes nothing. Needs no state, so it is its own session."""

    name = "none"
    usual_k = 0
    adapts = False

    def open(self) -> DraftSession:
        """Return itself."""
        return self

    def prefill(self, ids: list[int]) -> None:
        """Nothing to read."""

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Propose nothing."""
        return Proposal()

    def synchronize(self) -> None:
        """No device."""

    def close(self) -> None:
        """Nothing held."""
