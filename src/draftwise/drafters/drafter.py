"""What a drafter is. The loop asks for up to k tokens and takes whatever comes, none included.

A drafter opens a session for each sequence that it drafts for. A session may remember what it has
read, under the one cache rule: whatever it holds is a prefix of some sequence; before it proposes, it
keeps what is common with the sequence that it is given and reads the rest. So it needs no word about
which of its tokens were accepted, and an aborted request leaves nothing to repair.

To add a drafter, write the two classes, name it in MODEL_FREE of `engine.load` if the command line
shall know it, and add it to the list in tests/drafters/test_every_drafter.py.
"""

from typing import Protocol, Self

from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState


class DraftSession(Protocol):
    """Drafts for one sequence."""

    def prefill(self, ids: list[int]) -> None:
        """Read the sequence so far, before the clock of the rounds starts. Proposes nothing."""
        ...

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Propose at most k tokens to follow `ids`, each of the target's vocabulary.

        sampling: how the target samples at this point; a drafter with distributions of its own should
        sample likewise. randomness: draw the token at position p of the sequence with position p, so
        that under the match rule the draft is given the target's own noise. goes_on: to be asked before
        each token that costs a pass, with the confidences of those before it; where nothing is asked,
        confidences need not be computed.
        """
        ...

    def synchronize(self) -> None:
        """Wait until the device that drafts has done what was asked of it."""
        ...

    def close(self) -> None:
        """Give back what the session holds."""
        ...


class Drafter(Protocol):
    """Opens sessions. Holds what sessions share, such as the weights of a draft model."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def usual_k(self) -> int:
        """Tokens to propose a round where nothing else decides."""
        ...

    @property
    def adapts(self) -> bool:
        """Whether k should follow costs where the user names none; a control keeps its k."""
        ...

    def open(self) -> DraftSession:
        """Open a session for one sequence."""
        ...


class Stateless:
    """What a drafter needs beside `propose` if it holds nothing: it is its own session."""

    def open(self) -> Self:
        """Return itself."""
        return self

    def prefill(self, ids: list[int]) -> None:
        """Nothing to read."""

    def synchronize(self) -> None:
        """No device."""

    def close(self) -> None:
        """Nothing held."""
