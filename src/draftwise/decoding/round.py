"""A round: what one propose, verify, commit gave. The unit from which everything else is made."""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from draftwise.core.clock import Times
from draftwise.core.counters import RoundCount
from draftwise.decoding.evidence import Leading

FinishReason = Literal["stop", "length"]


class Origin(Enum):
    """Where an emitted token comes from."""

    ACCEPTED = "accepted"
    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"  # a round that proposed nothing


@dataclass(frozen=True, slots=True)
class Round:
    """One round as its consumer sees it.

    tokens: emitted, after a stop has cut the block. segments: text that may be delivered now, by the
    origin of its tokens; may hold text of earlier rounds that a stop string might have begun in.
    count: the raw numbers, where accepted is the verdict before the cut. leading: one entry a token,
    if kept. note: why the drafter proposed less than asked. finish_reason: set in the last round.
    """

    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    segments: tuple[tuple[str, Origin], ...]
    count: RoundCount
    leading: tuple[Leading, ...] = ()
    finish_reason: FinishReason | None = None
    matched: int | str | None = None
    note: str | None = None
    times: Times = field(default_factory=Times)

    @property
    def text(self) -> str:
        """The text delivered in this round."""
        return "".join(text for text, _ in self.segments)

    def timed(self, times: Times) -> "Round":
        """The same round, with the time that it took."""
        return replace(self, times=times)
