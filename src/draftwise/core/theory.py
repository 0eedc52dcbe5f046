"""What speculative decoding should gain: the formulas of Leviathan, Kalman and Matias, and beyond.

Source: "Fast Inference from Transformers via Speculative Decoding", 2023, arXiv 2211.17192. The
paper's gamma is `k` here. Nothing is measured in this module; `counters` turns counts into rates.

Symbols, the same in every function:
    alpha   probability that the target accepts a drafted token, given that it examines it; 0 to 1.
            Never the share of all drafted tokens that were accepted: that is the draft utilisation.
    k       drafted tokens a round, each of them one pass of the draft model.
    c       one draft pass / one plain target pass of one token (time over time).
    v       one verify pass over k + 1 tokens / one plain target pass. The paper takes it to be 1.
    o       all other time of a round / one plain target pass. The paper takes it to be 0.
    tau     tokens a round, the correction or bonus token included; 1 to k + 1.
Speed-ups are factors against plain decoding: 1.0 is no gain, below 1.0 is a loss.

    >>> round(paper_speedup(alpha=0.8, k=5, c=0.0), 2)
    3.69
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

VerifyOverhead = Callable[[int], float]
"""v(n): the time of a target pass over n new tokens / that of a pass over one."""


class BestK(NamedTuple):
    """The number of drafted tokens a round that pays most; k = 0 means: do not speculate."""

    k: int
    speedup: float


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens a round, the correction or bonus token included: E = (1 - a^(k+1)) / (1 - a).

    Section 3.1, equation 1; between 1 and k + 1. Token i of the block is emitted when the i - 1
    drafted tokens before it were accepted, so E is the sum of a^0 to a^k; summed, it needs no limit
    at alpha = 1, where E = k + 1.
    """
    _check_alpha(alpha)
    _check_k(k)
    return math.fsum(alpha**i for i in range(k + 1))


def ceiling(alpha: float) -> float:
    """Tokens a round that no k can exceed: 1 / (1 - a), the limit of E (section 3.1); inf at 1."""
    _check_alpha(alpha)
    return math.inf if alpha == 1 else 1 / (1 - alpha)


def paper_speedup(alpha: float, k: int, c: float) -> float:
    """Speed-up where checking k + 1 tokens costs what one costs: S = E / (k c + 1).

    Section 3.3, theorem 3.8. Some k helps if and only if alpha > c (corollary 3.9); with k = 1 the
    speed-up is (1 + a) / (1 + c).
    """
    return speedup(alpha, k, c, v=1.0)


def speedup(alpha: float, k: int, c: float, v: float, o: float = 0.0) -> float:
    """Speed-up on a real machine: S = E / (k c + v + o), where v is v(k + 1).

    Section 3.3 of the paper without its two assumptions, v = 1 and o = 0.
    """
    return speedup_from_tokens(expected_tokens(alpha, k), k, c, v, o)


def speedup_from_tokens(tau: float, k: float, c: float, v: float, o: float = 0.0) -> float:
    """Speed-up from tokens a round as counted: S = tau / (k c + v + o).

    k may be a mean, where it varies from round to round. This needs no alpha, so it holds too where
    acceptance is not the same at every position.
    """
    _check_k(k)
    if not 0 <= tau <= (k + 1) * (1 + 1e-9):  # the slack is for means that were rounded
        raise ValueError(f"tau must lie between 0 and k + 1 = {k + 1} tokens a round, not {tau}")
    for name, ratio in (("c", c), ("v", v), ("o", o)):
        _check_ratio(name, ratio)
    if v == 0:
        raise ValueError("v must be above 0: a verify pass takes time")
    return tau / (k * c + v + o)


def predicted_speedup(
    alpha: float, rounds: Sequence[tuple[int, int]], *, c: float, v: float, o: float = 0.0
) -> float:
    """Speed-up of rounds of different lengths: the tokens that alpha promises over what they cost.

    rounds: (drafted tokens l, draft passes) of each. v: one verify pass over one plain pass; a round
    that drafted nothing verifies in a plain pass. o: the rest of a round over a plain pass.
    sum of E(alpha, l) / sum of (passes c + v + o); with equal rounds this is `speedup`.
    """
    if not rounds:
        raise ValueError("there are no rounds to predict")
    tokens = sum(expected_tokens(alpha, drafted) for drafted, _ in rounds)
    cost = sum(passes * c + (v if drafted else 1.0) + o for drafted, passes in rounds)
    return tokens / cost


def operations_factor(alpha: float, k: int, c_hat: float) -> float:
    """Arithmetic operations against plain decoding: (1 - a)(k ĉ + k + 1) / (1 - a^(k+1)).

    Section 3.4, theorem 3.11. c_hat is the draft's operations for a token / the target's. Never
    below 1: speculation buys time with arithmetic.
    """
    _check_ratio("c_hat", c_hat)
    return (k * c_hat + k + 1) / expected_tokens(alpha, k)


def best_k(
    alpha: float,
    c: float,
    v: VerifyOverhead = lambda _: 1.0,
    o: float = 0.0,
    max_k: int = 64,
) -> BestK:
    """The k in 0..max_k with the greatest speed-up, the smallest on ties.

    Section 3.5. k = 0 is plain decoding, which has the speed-up 1 and no overhead o. Every k is
    tried, since a measured v jumps and then stays flat, so the first maximum need not be the best.
    """
    _check_alpha(alpha)
    _check_k(max_k)
    choices = [BestK(0, 1.0)]
    choices += (BestK(k, speedup(alpha, k, c, v(k + 1), o)) for k in range(1, max_k + 1))
    return max(choices, key=lambda choice: choice.speedup)


def draft_utilisation(alpha: float, k: int) -> float:
    """Expected share of drafted tokens that are accepted: a (1 - a^k) / (k (1 - a)).

    It follows from section 3.1: the accepted tokens of a round are E - 1 = a E(k - 1). Below alpha
    for every k > 1, because what follows a rejection is thrown away unexamined.
    """
    _check_k(k, least=1)
    return alpha * expected_tokens(alpha, k - 1) / k


def alpha_from_utilisation(utilisation: float, k: int) -> float:
    """The alpha whose draft utilisation at k is `utilisation`: its inverse, by bisection.

    It supposes one alpha at every position. Where rejections were counted, `counters.rates` needs
    no such assumption and is the better estimate.
    """
    if not 0 <= utilisation <= 1:
        raise ValueError(f"utilisation must lie between 0 and 1, not {utilisation}")
    _check_k(k, least=1)
    if utilisation in (0, 1):
        return float(utilisation)
    low, high = 0.0, 1.0
    for _ in range(52):
        middle = (low + high) / 2
        if draft_utilisation(middle, k) < utilisation:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability: it must lie between 0 and 1, not {alpha}")


def _check_k(k: float, least: int = 0) -> None:
    if not least <= k < math.inf:
        raise ValueError(f"k counts drafted tokens a round: it must be at least {least}, not {k}")


def _check_ratio(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite ratio of at least 0, not {value}")
