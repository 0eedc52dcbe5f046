"""Should I speculate? A decision from what was measured: pure, so that it can be judged by replay.

For each drafter and k the recorded agreement is replayed and priced; the interval comes from a bootstrap
in which prompts, the rounds within them, and the timings are all drawn anew. The advice is "do" only
where the whole interval of a choice lies above 1, and "do not" where no interval holds a gain that is
worth the trouble.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from draftwise.core.costs import Costs, Curve
from draftwise.core.counters import Counters, RoundCount, rates
from draftwise.core.estimates import bootstrap
from draftwise.core.lookahead import LONGEST
from draftwise.core.theory import expected_tokens
from draftwise.measure.records import AgreementRecord, Choice, PassesRecord, Verdict
from draftwise.measure.replay import replay

_RESAMPLES = 400
_WORTH = 1.1
"""What nothing may exceed for a plain "do not": a gain that is at most a tenth, if it is one at all."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was measured of one drafter. host, plain_host: see `core.costs.Costs`."""

    drafter: str
    agreements: tuple[AgreementRecord, ...]
    read: PassesRecord
    propose: PassesRecord
    host: float
    plain_host: float

    @property
    def costs(self) -> Costs:
        """By the medians of all timings."""
        read, propose = Curve.of(self.read.samples_ms), Curve.of(self.propose.samples_ms)
        return Costs(read, propose, self.host, self.plain_host, self.read.change_ms or 0.0)

    def drawn(self, random: Random) -> Costs:
        """By the medians of timings drawn anew."""
        read, propose = (
            Curve.of({n: tuple(random.choices(s, k=len(s))) for n, s in record.samples_ms.items()})
            for record in (self.read, self.propose)
        )
        return Costs(read, propose, self.host, self.plain_host, self.read.change_ms or 0.0)


def choose_k(candidate: Candidate, max_k: int = LONGEST) -> Choice:
    """The k with the greatest predicted speed-up for one drafter, the smallest on ties."""
    costs = candidate.costs
    by_k = {
        k: [replay(record, k) for record in candidate.agreements]
        for k in range(1, min(max_k, *(r.longest for r in candidate.agreements)) + 1)
    }
    k = max(by_k, key=lambda k: costs.speedup(_joined(by_k[k])))
    texts, rounds = by_k[k], _joined(by_k[k])
    interval = bootstrap(
        lambda random: candidate.drawn(random).speedup(_resampled(texts, random)),
        seed=0,
        resamples=_RESAMPLES,
    )
    counters = Counters.from_rounds(rounds)
    counted = rates(counters, rounds)
    return Choice(
        drafter=candidate.drafter,
        k=k,
        speedup=costs.speedup(rounds),
        low=interval.low,
        high=interval.high,
        tokens_per_round=counters.emitted / counters.rounds,
        alpha=counted.alpha,
        c=costs.c(k),
        v=costs.v(k + 1),
        o=costs.o,
        share_drafted=sum(r.drafted > 0 for r in rounds) / len(rounds),
        break_even_alpha=break_even_alpha(costs, max_k),
    )


def break_even_alpha(costs: Costs, max_k: int = LONGEST) -> float | None:
    """The least alpha at which some k pays, by bisection; None if none does.

    It supposes the same alpha at every position, and a proposal of k tokens in every round.
    """

    def pays(alpha: float) -> bool:
        return any(
            expected_tokens(alpha, k) * costs.plain_ms > costs.round_ms(k)
            for k in range(1, max_k + 1)
        )

    if not pays(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def decide(choices: Sequence[Choice], too_noisy: str | None) -> tuple[Verdict, Choice, list[str]]:
    """The verdict, the choice that it is about, and why."""
    sure = [choice for choice in choices if choice.low > 1]
    best = max(sure or choices, key=lambda choice: choice.speedup)
    if too_noisy is not None:
        return "too noisy to say", best, [too_noisy]
    if best.low > 1:
        return "do", best, [_gain(best)]
    if max(choice.high for choice in choices) > _WORTH:
        close = (
            f"the interval of the best choice, {best.low:.2f}x to {best.high:.2f}x, is not above 1x"
        )
        return "too close to say", best, [close, *map(why_not, choices)]
    return "do not", best, list(map(why_not, choices))


def why_not(choice: Choice) -> str:
    """What stands in the way of a drafter, the greatest obstacle first."""
    name, alpha, needed = choice.drafter, choice.alpha, choice.break_even_alpha
    costs = f"c = {choice.c:.2f}, v({choice.k + 1}) = {choice.v:.2f}, o = {choice.o:.2f}"
    if (needed is None or needed > 0.9) and choice.c > 0.9:
        return (
            f"{name}: a guess costs as much as the token that it might save ({costs}): next to nothing "
            "is gained even if every guess is right; a draft has to be several times faster"
        )
    if needed is None:
        return f"{name}: guessing and checking cost more than they can save ({costs})"
    if choice.share_drafted < 0.1:
        return (
            f"{name}: it has something to propose in {choice.share_drafted:.0%} of the rounds only: this "
            "text repeats too little"
        )
    if alpha is not None and alpha >= needed:
        return (
            f"{name}: alpha is {alpha:.2f}, where {needed:.2f} would do if every round had a proposal; "
            f"{choice.share_drafted:.0%} have one, which gains {choice.speedup:.2f}x ({costs})"
        )
    said = "no guess was examined" if alpha is None else f"alpha is {alpha:.2f}"
    return f"{name}: {said}; at these costs ({costs}) it would pay from about alpha = {needed:.2f}"


def _gain(best: Choice) -> str:
    return (
        f"{best.drafter} at k = {best.k}: {best.tokens_per_round:.2f} tokens a round for the price of "
        f"{best.tokens_per_round / best.speedup:.2f} plain ones (c = {best.c:.2f}, "
        f"v({best.k + 1}) = {best.v:.2f}, o = {best.o:.2f})"
    )


def _joined(texts: Sequence[list[RoundCount]]) -> list[RoundCount]:
    return [round_ for rounds in texts for round_ in rounds]


def _resampled(texts: Sequence[list[RoundCount]], random: Random) -> list[RoundCount]:
    """Prompts drawn anew, and the rounds within each."""
    return [
        round_
        for rounds in random.choices(texts, k=len(texts))
        for round_ in random.choices(rounds, k=len(rounds))
    ]
