"""How far to guess: policies that choose the number of drafted tokens, round by round.

One policy serves one text and learns from it. Every decision is made before the token that it is about
is drawn, from tokens that are kept: so the law of the text is untouched under every acceptance rule.

    Fixed        always k
    Heuristic    two more after a block that was accepted whole, one fewer otherwise (transformers)
    Threshold    stop behind a token that the draft was not sure of (transformers' confidence)
    CostRule     draft on while what is expected of it exceeds what it costs: `-k auto`
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

from draftwise.core.costs import Costs
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import Proposal

GoesOn = Callable[[Sequence[float | None]], bool]
"""Asked before each token with the confidences of those drafted before it in the round, None if unknown."""

LONGEST = 16
"""The most that a policy drafts at once, where it is not told otherwise."""


class Lookahead(Protocol):
    """Decides how many tokens to draft. confidence: see `core.proposals.Proposal`."""

    def limit(self) -> int:
        """The most tokens to ask for in this round; 0: decode plainly."""
        ...

    @property
    def goes_on(self) -> GoesOn | None:
        """Whether to draft one more, behind tokens drafted with these confidences; None: always."""
        ...

    def keep(self, proposal: Proposal) -> int:
        """How many tokens are worth checking of a proposal that cost nothing to make."""
        ...

    def learn(self, proposal: Proposal, emitted: Sequence[int]) -> None:
        """Hear what became of a proposal, as it was before `keep`: the tokens of its round."""
        ...


class Fixed:
    """The same k in every round."""

    def __init__(self, k: int) -> None:
        self._k = k

    def limit(self) -> int:
        """k."""
        return self._k

    @property
    def goes_on(self) -> GoesOn | None:
        """Always, and without looking at confidences."""
        return None

    def keep(self, proposal: Proposal) -> int:
        """All."""
        return len(proposal.tokens)

    def learn(self, proposal: Proposal, emitted: Sequence[int]) -> None:
        """Nothing."""


class Heuristic(Fixed):
    """transformers' schedule "heuristic": k += 2 after full acceptance, else k = max(1, k - 1)."""

    def __init__(self, k: int = 5, longest: int = LONGEST) -> None:
        super().__init__(k)
        self._longest = longest

    def learn(self, proposal: Proposal, emitted: Sequence[int]) -> None:
        """Lengthen or shorten. A round in which nothing was proposed says nothing."""
        if proposal.tokens:
            whole = common_prefix(list(proposal.tokens), list(emitted)) == len(proposal.tokens)
            self._k = min(self._k + 2, self._longest) if whole else max(1, self._k - 1)


class Threshold(Fixed):
    """Stop behind a token whose confidence is below a threshold (transformers' default is 0.4)."""

    def __init__(self, threshold: float = 0.4, longest: int = LONGEST) -> None:
        super().__init__(longest)
        self._threshold = threshold

    @property
    def goes_on(self) -> GoesOn:
        """While the last one was sure enough."""
        return lambda confidence: not confidence or self._sure(confidence[-1])

    def keep(self, proposal: Proposal) -> int:
        """Up to the first token that the drafter was not sure of."""
        unsure = [not self._sure(c) for c in proposal.confidence or ()]
        return unsure.index(True) + 1 if True in unsure else len(proposal.tokens)

    def _sure(self, confidence: float | None) -> bool:
        return confidence is None or confidence >= self._threshold


class Acceptance:
    """Running estimates of one drafter's acceptance: by its confidence, and by position.

    Each is a mean in which older observations fade, since a text changes its nature, on top of a prior
    of a few observations. The prior of a confidence is the confidence, corrected by how far it has been
    right over all: a draft that is too sure of itself is found out at every level at once. The prior of
    a position is the estimate of the one before: where four in a row were right, so may be the fifth.
    """

    _BINS, _PRIOR, _OVER_ALL, _FIRST, _FADES = 20, 3.0, 2.0, 0.6, 0.97

    def __init__(self) -> None:
        self._by_confidence = [_Mean(self._FADES) for _ in range(self._BINS)]
        self._by_position = [_Mean(self._FADES) for _ in range(LONGEST)]
        self._right, self._promised = _Mean(self._FADES), _Mean(self._FADES)

    def of(self, confidence: float) -> float:
        """The chance that a token proposed with this confidence is accepted, if it is examined."""
        place = self._bin(confidence)
        prior = min((place + 0.5) / self._BINS * self._correction, 0.99)
        return self._by_confidence[place].on(prior, self._PRIOR)

    def at(self, position: int) -> float:
        """The chance that a token at this place of a proposal (from 0) is accepted, if examined."""
        chance = self._FIRST
        for mean in self._by_position[: position + 1]:
            chance = mean.on(chance, self._PRIOR)
        return chance

    def chance(self, proposal: Proposal, position: int) -> float:
        """The chance of a token of a proposal: by its confidence, if there is one."""
        if proposal.confidence is None:
            return self.at(position)
        return self.of(proposal.confidence[position])

    def learn(self, proposal: Proposal, emitted: Sequence[int]) -> int:
        """Compare a proposal with what was written instead; returns how many agreed."""
        agreed = common_prefix(list(proposal.tokens), list(emitted))
        examined = min(agreed + 1, len(proposal.tokens), len(emitted))
        for position in range(examined):
            right = float(position < agreed)
            self._by_position[min(position, LONGEST - 1)].add(right)
            if proposal.confidence is not None:
                place = self._bin(proposal.confidence[position])
                self._by_confidence[place].add(right)
                self._right.add(right)
                self._promised.add((place + 0.5) / self._BINS)
        return agreed

    @property
    def _correction(self) -> float:
        """How often tokens were right over how often their confidence said so."""
        return (self._right.total + self._OVER_ALL) / (self._promised.total + self._OVER_ALL)

    def _bin(self, confidence: float) -> int:
        return min(int(confidence * self._BINS), self._BINS - 1)


class _Mean:
    """A mean in which older observations fade."""

    def __init__(self, fades: float) -> None:
        self._fades = fades
        self.total = self._seen = 0.0

    def add(self, value: float) -> None:
        self.total = self.total * self._fades + value
        self._seen = self._seen * self._fades + 1

    def on(self, prior: float, weight: float) -> float:
        """The mean on top of a prior that is worth so many observations."""
        return (self.total + weight * prior) / (self._seen + weight)


class CostRule:
    """Draft on while the tokens to be expected exceed what the time would earn otherwise.

    With i tokens drafted, survival s of all of them, and a_1, a_2, ... the chances of those behind, go on
    if for some m >= 1

        s (a_1 + a_1 a_2 + ... + a_1...a_m)  >  rate (propose m more + read(i + 1 + m) - read(i + 1)),

    where rate is what is earned now, in tokens a millisecond, never less than plain decoding earns, and a
    little more out of caution: the best of several sums of estimates promises more than it keeps.
    Looking one token ahead would do only if the marginal cost of reading never fell; measured costs jump
    and then stay flat, and a pass as long as the last one may be cheaper than a shorter one. At i = 0 this
    decides whether to draft at all; after some plain rounds a token is tried all the same, the more rarely
    the more often it failed.

    prompt: how many tokens stand before the text; None: as many as the costs were measured behind. A long
    context makes a token that is read, and one that is drafted, dearer beside a pass.
    """

    _FADES, _CAUTION = 0.95, 1.15
    _FIRST_PAUSE, _LONGEST_PAUSE = 4, 64

    def __init__(self, costs: Costs, longest: int = LONGEST, prompt: int | None = None) -> None:
        self._longest, self._length = longest, costs.context if prompt is None else prompt
        self._measured, self._costs = costs, costs.behind(self._length)
        self._model, self._free = Acceptance(), Acceptance()
        self._tokens, self._ms = 1.0, self._costs.plain_ms
        self._idle, self._pause, self._tries = 0, self._FIRST_PAUSE, False
        self._kept, self._last = 0, 1

    def limit(self) -> int:
        """As many as it ever drafts."""
        return self._longest

    @property
    def goes_on(self) -> GoesOn:
        """While one more token of a draft model is worth its price."""
        return self._goes_on

    def _goes_on(self, confidence: Sequence[float | None]) -> bool:
        if not confidence:
            return self._begins()
        if self._tries:
            return False
        survival = prod(
            self._model.at(i) if c is None else self._model.of(c) for i, c in enumerate(confidence)
        )
        return self._pays(len(confidence), survival)

    def keep(self, proposal: Proposal) -> int:
        """The length with the greatest gain over reading one token."""
        gains, survival, expected = [0.0], 1.0, 0.0
        for n in range(1, len(proposal.tokens) + 1):
            survival *= self._free.chance(proposal, n - 1)
            expected += survival
            gains.append(expected - self._rate * (self._read(n + 1) - self._read(1)))
        self._kept = max(range(len(gains)), key=gains.__getitem__)
        return self._kept

    def learn(self, proposal: Proposal, emitted: Sequence[int]) -> None:
        """Update the estimates, and what is earned."""
        kind = self._model if proposal.passes else self._free
        agreed = kind.learn(proposal, emitted)
        if self._tries and proposal.passes:
            self._pause = self._FIRST_PAUSE if agreed else min(2 * self._pause, self._LONGEST_PAUSE)
        drafted = len(proposal.tokens) if proposal.passes else self._kept
        self._tokens = self._tokens * self._FADES + len(emitted)
        change = self._read(drafted + 1) - self._costs.read(drafted + 1)
        self._ms *= self._FADES
        self._ms += self._costs.round_ms(drafted, proposal.passes) + change
        self._last, self._kept, self._tries = drafted + 1, 0, False
        self._length += len(emitted)
        self._costs = self._measured.behind(self._length)

    def _read(self, n: int) -> float:
        return self._costs.read_behind(self._last, n)

    @property
    def _rate(self) -> float:
        """Tokens a millisecond, as of late."""
        return self._CAUTION * max(self._tokens / self._ms, 1 / self._costs.plain_ms)

    def _begins(self) -> bool:
        if self._pays(0, 1.0):
            self._idle = 0
            return True
        self._idle += 1
        self._tries = self._idle > self._pause
        if self._tries:
            self._idle = 0
        return self._tries

    def _pays(self, drafted: int, survival: float) -> bool:
        costs, expected = self._costs, 0.0
        for m in range(1, self._longest - drafted + 1):
            survival *= self._model.at(drafted + m - 1)
            expected += survival
            price = costs.propose(drafted + m) - costs.propose(drafted)
            price += self._read(drafted + 1 + m) - self._read(drafted + 1)
            if expected > self._rate * price:
                return True
        return False
