"""What things cost on one machine: a table of measured times, and the price of a round made of it.

Whoever measures fills it (`decoding.passes`, records); lookahead, replay and advice spend by it.

A measured v jumps and then stays flat, so between two measured lengths a line is drawn, and nothing is
fitted. Beyond the longest length, the line of the last two goes on.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from draftwise.core.counters import RoundCount


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds for n tokens, for every n >= 1; `measured` has n ascending."""

    measured: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        lengths = [n for n, _ in self.measured]
        if not lengths or lengths != sorted(set(lengths)) or lengths[0] < 1:
            raise ValueError(f"a curve needs lengths in ascending order, 1 or more: {lengths}")

    def __call__(self, n: int) -> float:
        """Milliseconds for n tokens; 0 for none."""
        if n <= 0:
            return 0.0
        lengths = [length for length, _ in self.measured]
        if len(lengths) == 1:
            return self.measured[0][1] * n / lengths[0]
        after = min(max(bisect_left(lengths, n), 1), len(lengths) - 1)
        (a, ms_a), (b, ms_b) = self.measured[after - 1], self.measured[after]
        return max(ms_a + (ms_b - ms_a) * (n - a) / (b - a), 0.0)

    def plus(self, other: "Curve", times: float) -> "Curve":
        """This and so many times the other: a negative number of times takes away, down to nothing."""
        return Curve(tuple((n, max(ms + times * other(n), 0.0)) for n, ms in self.measured))

    @staticmethod
    def of(samples: Mapping[int, tuple[float, ...]]) -> "Curve":
        """The medians of repeated timings."""
        return Curve(tuple((n, median(samples[n])) for n in sorted(samples)))


_NOTHING = Curve(((1, 0.0),))


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds on one machine, for one target and one drafter.

    read: a target pass over n tokens. propose: n drafted tokens, whatever makes them. plain_host: a plain
    round outside of its pass; host: a speculative one outside of its passes and of proposing. change: what
    a target pass takes longer behind one of another length, where runners prepare for lengths. context:
    tokens that both were measured behind; read_more, propose_more: what they take longer for each token
    more of it.
    """

    read: Curve
    propose: Curve
    host: float = 0.0
    plain_host: float = 0.0
    change: float = 0.0
    context: int = 0
    read_more: Curve = _NOTHING
    propose_more: Curve = _NOTHING

    def behind(self, context: int) -> "Costs":
        """What all this costs behind so many tokens."""
        more = context - self.context
        return replace(
            self,
            read=self.read.plus(self.read_more, more),
            propose=self.propose.plus(self.propose_more, more),
            context=context,
        )

    def read_behind(self, last: int, n: int) -> float:
        """A target pass over n tokens behind one over `last`."""
        return self.read(n) + (self.change if n != last else 0.0)

    @property
    def plain_ms(self) -> float:
        """One token of plain decoding."""
        return self.read(1) + self.plain_host

    def round_ms(self, drafted: int, passes: int | None = None) -> float:
        """One round that drafts so many tokens. With none, it is a round of plain decoding.

        passes: tokens that the draft model was run for, where these are not those that were drafted.
        """
        made = self.propose(drafted if passes is None else passes)
        if drafted == 0:
            return self.plain_ms + made
        return made + self.read(drafted + 1) + self.host

    def total_ms(self, rounds: list[RoundCount]) -> float:
        """Rounds of one text together, or of several one behind the other."""
        widths = [r.drafted + 1 for r in rounds]
        changes = sum(a != b for a, b in pairwise(widths))
        return sum(self.round_ms(r.drafted) for r in rounds) + changes * self.change

    def speedup(self, rounds: list[RoundCount]) -> float:
        """Plain time for the tokens of these rounds over their own time."""
        return self.plain_ms * sum(r.emitted for r in rounds) / self.total_ms(rounds)

    def c(self, k: int) -> float:
        """The cost ratio: a drafted token over a plain pass, where k are drafted at once."""
        return self.propose(k) / k / self.read(1)

    def v(self, n: int) -> float:
        """The verify overhead: a pass over n tokens over one over a single token."""
        return self.read(n) / self.read(1)

    @property
    def o(self) -> float:
        """The other time of a round over a plain pass."""
        return self.host / self.read(1)
