"""Acceptance rules: pure functions that decide which proposed tokens stand.

A rule takes a proposal of k tokens, the target's distributions p at the k + 1 positions that one pass
answered, and the randomness to use. It returns how many tokens stand and the target's own token after
them. Whatever the proposal was, the tokens that a rule lets through follow the target's law exactly;
`draftwise.testing.enumeration` proves this for each rule on small vocabularies.

To add a rule, write a function of this signature, enter it in RULES, and add it to the law test.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from draftwise.core.distributions import Dense, Distribution, OneHot
from draftwise.core.noise import DeviceRandomness, Randomness
from draftwise.core.proposals import DeviceTokens, Proposal, Verdict

Rule = Callable[[Proposal, Distribution, Randomness, int], Verdict]
"""(proposal, p with k + 1 rows, randomness, position of the first proposed token) -> verdict."""


def match(proposal: Proposal, p: Distribution, randomness: Randomness, position: int) -> Verdict:
    """Draw the target's own token at each position and accept while the proposal says the same.

    Exact for any draft, greedy included, since q is not looked at. With keyed noise the text is a
    function of the seed alone.
    """
    proposed, own = _in_one_copy(proposal.tokens, p, randomness, position)
    num_accepted = 0
    for token, target_token in zip(proposed, own, strict=False):
        if token != target_token:
            break
        num_accepted += 1
    return Verdict(num_accepted, own[num_accepted])


def rejection(
    proposal: Proposal, p: Distribution, randomness: Randomness, position: int
) -> Verdict:
    """Token rejection: accept x with probability min(1, p(x)/q(x)), else draw from norm(max(p - q, 0)).

    Leviathan et al. 2023 (arXiv 2211.17192), section 2.3; Chen et al. 2023 (arXiv 2302.01318).
    """
    if isinstance(p, OneHot):  # a single token has all the mass, and the rule only compares
        return match(proposal, p, randomness, position)
    p_of, q_of = _probabilities(proposal, p)
    for i, (p_x, q_x) in enumerate(zip(p_of, q_of, strict=True)):
        if not randomness.accept(p_x, q_x):
            return _draw_residual(i, 1.0, proposal, p, randomness, position)
    return _draw_bonus(p, randomness, position)


def block(proposal: Proposal, p: Distribution, randomness: Randomness, position: int) -> Verdict:
    """Block verification: decide on the block as a whole; never fewer tokens than token rejection.

    Sun et al. 2024 (arXiv 2403.10444), algorithm 2. weight[i] is the paper's p_i.
    """
    if isinstance(p, OneHot):
        return match(proposal, p, randomness, position)
    k = len(proposal.tokens)
    p_of, q_of = _probabilities(proposal, p)
    weight = [1.0]
    for p_x, q_x in zip(p_of, q_of, strict=True):
        weight.append(min(1.0, weight[-1] * p_x / q_x) if q_x > 0 else 0.0)
    surplus = [
        float(_residual(weight[i], p.p[i], _q_row(proposal, i, p)).sum()) for i in range(1, k)
    ]
    longest = 0
    for i in range(1, k + 1):
        if i == k:
            h = weight[k]
        else:
            missing = surplus[i - 1] + 1.0 - weight[i]
            h = surplus[i - 1] / missing if missing > 0 else 1.0
        if randomness.accept(h, 1.0):  # a failure is not final: a longer prefix may still pass
            longest = i
    if longest == k:
        return _draw_bonus(p, randomness, position)
    return _draw_residual(longest, weight[longest], proposal, p, randomness, position)


def _in_one_copy(
    proposed: Sequence[int], p: Distribution, randomness: Randomness, position: int
) -> tuple[Sequence[int], list[int]]:
    """The proposed tokens, and the target's own."""
    if not isinstance(proposed, DeviceTokens) or not isinstance(randomness, DeviceRandomness):
        return proposed, randomness.draw(p, position)
    own = randomness.choose(p, position)
    both = torch.cat([proposed.ids.to(own.device), own]).tolist()
    proposed.tell(both[: len(proposed)])
    return proposed, both[len(proposed) :]


RULES: Mapping[str, Rule] = {"match": match, "rejection": rejection, "block": block}


def _probabilities(proposal: Proposal, p: Distribution) -> tuple[list[float], list[float]]:
    """p(x_i) and q(x_i) of the proposed tokens, in one copy from the device."""
    tokens = torch.tensor(proposal.tokens, dtype=torch.long)
    p_of = p.probability(tokens)
    q_of = torch.ones_like(p_of) if proposal.q is None else proposal.q.probability(tokens)
    both = torch.stack([p_of, q_of.to(device=p_of.device, dtype=p_of.dtype)]).tolist()
    return both[0], both[1]


def _q_row(proposal: Proposal, i: int, p: Dense) -> Tensor:
    """The row of q at proposed token i, like a row of p; a drafter without q gave x_i all its mass."""
    q = proposal.q or OneHot(torch.tensor(proposal.tokens, device=p.p.device))
    return q.dense(i, p.p.shape[1]).to(p.p)


def _residual(weight: float, p_row: Tensor, q_row: Tensor) -> Tensor:
    return (weight * p_row - q_row).clamp(min=0)


def _draw_residual(
    i: int, weight: float, proposal: Proposal, p: Dense, randomness: Randomness, position: int
) -> Verdict:
    """Keep i proposed tokens and draw the correction; from p where the residual has no mass at all."""
    residual = _residual(weight, p.p[i], _q_row(proposal, i, p))
    mass = residual.sum()
    row = residual / mass if 0 < float(mass) < float("inf") else p.p[i]
    return Verdict(i, randomness.draw(Dense(row[None]), position + i)[0])


def _draw_bonus(p: Dense, randomness: Randomness, position: int) -> Verdict:
    k = len(p) - 1
    return Verdict(k, randomness.draw(Dense(p.p[k:]), position + k)[0])
