"""What a drafter hands to a rule, and what the rule hands back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

from torch import Tensor

from draftwise.core.distributions import Distribution


class DeviceTokens(Sequence[int]):
    """Tokens that lie on a device, int64 [n]. The host learns them when it is told, or first looks.

    A round has to bring two things to the host, what was drafted and what the target says to it. So the
    target reads the one where it lies, and a rule may bring both in one copy.
    """

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids
        self._known: tuple[int, ...] | None = None

    def tell(self, tokens: Sequence[int]) -> None:
        """Say what they are, whoever has copied them."""
        self._known = tuple(tokens)

    def __len__(self) -> int:
        return self.ids.shape[0]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if self._known is None:
            self.tell(self.ids.tolist())
        assert self._known is not None
        return self._known[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == tuple(other)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that a drafter proposes, and the very distribution that they were drawn from.

    q: one row a token, or None where the drafter gave each token all of its mass (prompt lookup).
    passes: forward passes of a draft model that this proposal took.
    confidence: for each token a number in 0..1, the higher the surer, and known before the token was
        drawn: a draft model's highest probability. None where the drafter has none. Estimates calibrate it.
    note: why there are fewer tokens than were asked for, where the drafter knows.
    """

    tokens: Sequence[int] = ()
    q: Distribution | None = None
    passes: int = 0
    note: str | None = None
    confidence: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.confidence is not None and len(self.confidence) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} tokens, {len(self.confidence)} confidences")
        if self.q is not None and len(self.q) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} tokens, but {len(self.q)} rows of q")

    def first(self, num: int) -> "Proposal":
        """Its first tokens. Only for a proposal whose tokens were not drawn: a drawn one is kept."""
        if num == len(self.tokens):
            return self
        if self.q is not None:
            raise ValueError(
                "drawn tokens are kept: to drop one after it was seen would bias the law"
            )
        return replace(
            self,
            tokens=self.tokens[:num],
            confidence=None if self.confidence is None else self.confidence[:num],
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many proposed tokens stand, and the target's own token that follows them.

    token is a correction where a proposed token was rejected, a bonus where all were accepted; it is
    never counted as accepted.
    """

    num_accepted: int
    token: int
