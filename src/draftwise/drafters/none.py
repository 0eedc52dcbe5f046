"""The drafter that never proposes: plain decoding through the speculative loop."""

from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.drafter import Stateless


class NoDraft(Stateless):
    """Proposes nothing."""

    name = "none"
    usual_k = 0
    adapts = False

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
