"""What a drafter hands to a rule, and what the rule hands back."""

from dataclasses import dataclass

from draftwise.core.distributions import Distribution


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that a drafter proposes, and the very distribution that they were drawn from.

    q: one row a token, or None where the drafter gave each token all of its mass (prompt lookup).
    passes: forward passes of a draft model that this proposal took.
    note: why there are fewer tokens than were asked for, where the drafter knows.
    """

    tokens: tuple[int, ...] = ()
    q: Distribution | None = None
    passes: int = 0
    note: str | None = None

    def __post_init__(self) -> None:
        if self.q is not None and len(self.q) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} tokens, but {len(self.q)} rows of q")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many proposed tokens stand, and the target's own token that follows them.

    token is a correction where a proposed token was rejected, a bonus where all were accepted; it is
    never counted as accepted.
    """

    num_accepted: int
    token: int
