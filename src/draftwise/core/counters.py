"""Raw counts of a run, and the one place where rates are made of them.

Counts are kept, rates are derived: a rate can be had from counts, never the reverse. Invariants,
checked on construction: 0 <= accepted <= drafted; a rejection discards at least one drafted token;
at most one token a round (correction or bonus) is emitted beyond the accepted ones, and it is never
counted as accepted. A round of plain decoding is a round with nothing drafted.

A rate that nothing defines (alpha when nothing was drafted) is None, never NaN.

    >>> run = [RoundCount(drafted=5, accepted=5, emitted=6), RoundCount(5, 2, 3)]
    >>> rates(Counters.from_rounds(run), run).alpha  # 7 accepted, 1 rejected, 2 never examined
    0.875
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from operator import add

from draftwise.core.estimates import wilson_interval


@dataclass(frozen=True, slots=True)
class RoundCount:
    """What one round did.

    drafted: tokens proposed.
    accepted: the verdict on them, before a stop or a cap cuts the block.
    emitted: tokens that the caller received.
    draft_passes: forward passes of the draft model.
    """

    drafted: int
    accepted: int
    emitted: int
    draft_passes: int = 0

    def __post_init__(self) -> None:
        _check(0 <= self.accepted <= self.drafted, "0 <= accepted <= drafted", self)
        _check(0 <= self.emitted <= self.accepted + 1, "0 <= emitted <= accepted + 1", self)
        _check(self.draft_passes >= 0, "draft_passes >= 0", self)

    @property
    def rejected(self) -> bool:
        """Whether the round ended in a rejection: the target examined one token that it refused."""
        return self.accepted < self.drafted


@dataclass(frozen=True, slots=True)
class Counters:
    """Raw counts of a run, or of several added up.

    rounds: propose, verify, commit; one token of plain decoding is a round too.
    target_passes, draft_passes: forward passes, prefill apart.
    drafted, accepted: tokens proposed, and those that the target confirmed.
    emitted: tokens that the caller received; less than accepted + rounds where a stop cut a block.
    rejections: rounds in which the target refused a token.
    prompt_tokens: length of the prompt.
    prefill_tokens, prefill_passes: what the target read of it, and in how many passes; fewer tokens
        than the prompt has, where an earlier turn was kept. Prefill emits nothing.
    """

    rounds: int = 0
    target_passes: int = 0
    draft_passes: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    rejections: int = 0
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    prefill_passes: int = 0

    def __post_init__(self) -> None:
        _check(min(astuple(self)) >= 0, "every count >= 0", self)
        _check(self.accepted <= self.drafted, "accepted <= drafted", self)
        _check(self.rejections <= self.rounds, "rejections <= rounds", self)
        _check(self.rejections <= self.discarded, "rejections <= drafted - accepted", self)
        _check(self.emitted <= self.accepted + self.rounds, "emitted <= accepted + rounds", self)
        _check(self.prefill_tokens <= self.prompt_tokens, "prefill_tokens <= prompt_tokens", self)
        _check(self.prefill_passes <= self.prefill_tokens, "prefill_passes <= prefill_tokens", self)

    @classmethod
    def from_rounds(
        cls,
        rounds: Iterable[RoundCount],
        *,
        prompt_tokens: int = 0,
        prefill_tokens: int = 0,
        prefill_passes: int = 0,
    ) -> "Counters":
        """Add up rounds of one target pass each."""
        rounds = tuple(rounds)
        return cls(
            rounds=len(rounds),
            target_passes=len(rounds),
            draft_passes=sum(r.draft_passes for r in rounds),
            drafted=sum(r.drafted for r in rounds),
            accepted=sum(r.accepted for r in rounds),
            emitted=sum(r.emitted for r in rounds),
            rejections=sum(r.rejected for r in rounds),
            prompt_tokens=prompt_tokens,
            prefill_tokens=prefill_tokens,
            prefill_passes=prefill_passes,
        )

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(*map(add, astuple(self), astuple(other)))

    @property
    def discarded(self) -> int:
        """Drafted tokens thrown away: the refused ones and all that was drafted behind them."""
        return self.drafted - self.accepted

    @property
    def examined(self) -> int:
        """Drafted tokens that the target said yes or no to; not those behind a rejection."""
        return self.accepted + self.rejections

    def as_dict(self) -> dict[str, int]:
        """The counts under the names of `generate --json`."""
        return asdict(self) | {"discarded": self.discarded}


@dataclass(frozen=True, slots=True)
class Rates:
    """What the counts and times of a run amount to; None where nothing defines a rate.

    alpha: accepted / examined, with the 95 % interval alpha_low to alpha_high.
    draft_utilisation: accepted / drafted. Not alpha: it counts what was never examined.
    tokens_per_round: emitted / rounds, the paper's E and tau.
    cost_ratio: c, one draft pass / one plain target pass.
    verify_overhead: v, one verify pass / one plain target pass.
    acceptance_by_position: for i = 1, 2, ..., how often token i was accepted, given that the i - 1
        before it were.
    """

    alpha: float | None
    alpha_low: float | None
    alpha_high: float | None
    draft_utilisation: float | None
    tokens_per_round: float | None
    cost_ratio: float | None
    verify_overhead: float | None
    acceptance_by_position: tuple[float | None, ...]

    def as_dict(self) -> dict[str, float | list[float | None] | None]:
        """The rates by name, ready for JSON."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return named | {"acceptance_by_position": list(self.acceptance_by_position)}


def rates(
    counters: Counters,
    rounds: Sequence[RoundCount] = (),
    *,
    target_ms: float | None = None,
    draft_ms: float | None = None,
    verify_ms: float | None = None,
) -> Rates:
    """Derive every rate of a run.

    rounds: those that `counters` adds up; without them there is no acceptance by position.
    target_ms, draft_ms, verify_ms: one plain target pass over one token, one draft pass, one verify
        pass, in milliseconds; without a time the ratio made of it is None.
    """
    if rounds and len(rounds) != counters.rounds:
        raise ValueError(f"{len(rounds)} rounds given, but the counters hold {counters.rounds}")
    examined = counters.examined
    interval = wilson_interval(counters.accepted, examined) if examined else None
    return Rates(
        alpha=_ratio(counters.accepted, examined),
        alpha_low=interval.low if interval else None,
        alpha_high=interval.high if interval else None,
        draft_utilisation=_ratio(counters.accepted, counters.drafted),
        tokens_per_round=_ratio(counters.emitted, counters.rounds),
        cost_ratio=_ratio(draft_ms, target_ms),
        verify_overhead=_ratio(verify_ms, target_ms),
        acceptance_by_position=acceptance_by_position(rounds),
    )


def acceptance_by_position(rounds: Sequence[RoundCount]) -> tuple[float | None, ...]:
    """Position i: rounds with accepted >= i / rounds with accepted >= i - 1 and drafted >= i."""
    longest = max((r.drafted for r in rounds), default=0)
    return tuple(
        _ratio(
            sum(r.accepted >= i for r in rounds),
            sum(r.accepted >= i - 1 and r.drafted >= i for r in rounds),
        )
        for i in range(1, longest + 1)
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    if part is None or whole is None:
        return None
    if not (0 <= part < math.inf and 0 <= whole < math.inf):
        raise ValueError(f"counts and times are finite and at least 0, not {part} and {whole}")
    return part / whole if whole else None


def _check(holds: bool, rule: str, counts: RoundCount | Counters) -> None:
    if not holds:
        raise ValueError(f"counts must obey {rule}: {counts}")
