"""Policies that choose k: what each decides, and that the cost rule finds what theory calls the best k."""

import itertools
from random import Random

import pytest
import torch

from draftwise.core.costs import Costs, Curve
from draftwise.core.distributions import OneHot
from draftwise.core.lookahead import Acceptance, CostRule, Fixed, Heuristic, Threshold
from draftwise.core.proposals import Proposal
from draftwise.core.theory import best_k

FLAT = Curve(((1, 100.0), (32, 100.0)))
RISING = Curve(((1, 100.0), (17, 180.0)))


def costs(c, read=FLAT):
    return Costs(read, Curve(((1, 100.0 * c), (2, 200.0 * c))))


def drafted(num, confidence=None):
    return Proposal(tuple(range(1, num + 1)), passes=num, confidence=confidence)


def a_round(rule, chance):
    """Draft as the rule says, each token right with `chance()`; returns drafted and accepted."""
    asked: list[float] = []
    while len(asked) < rule.limit() and rule.goes_on(asked):
        asked.append(0.5)
    right = 0
    while right < len(asked) and chance():
        right += 1
    emitted = [*range(1, right + 1), 99]
    rule.learn(drafted(len(asked), tuple(asked)), emitted)
    return len(asked), right


def test_a_fixed_k_never_asks():
    rule = Fixed(4)
    rule.learn(drafted(4), [9])
    assert (rule.limit(), rule.goes_on, rule.keep(drafted(3))) == (4, None, 3)


def test_the_heuristic_is_that_of_transformers():
    rule = Heuristic(5, longest=8)
    rule.learn(drafted(5), [1, 2, 3, 4, 5, 6])
    assert rule.limit() == 7
    rule.learn(drafted(7), [1, 2, 3, 4, 5, 6, 7, 8])
    assert rule.limit() == 8
    for left in (7, 6, 5, 4, 3, 2, 1, 1):
        rule.learn(drafted(3), [9])
        assert rule.limit() == left
    rule.learn(Proposal(), [9])
    assert rule.limit() == 1


def test_the_threshold_keeps_the_token_that_it_was_unsure_of_and_stops_behind_it():
    goes_on = Threshold(0.4).goes_on
    assert goes_on([])
    assert goes_on([0.9, 0.4])
    assert not goes_on([0.9, 0.39])


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.8, 0.9])
@pytest.mark.parametrize("c", [0.05, 0.2])
def test_with_a_constant_alpha_it_drafts_about_the_best_k_of_theory(alpha, c):
    random, rule = Random(1), CostRule(costs(c, RISING))
    rounds = [a_round(rule, lambda: random.random() < alpha) for _ in range(1500)]
    settled = rounds[300:]
    tokens = sum(right + 1 for _, right in settled)
    ms = sum(costs(c, RISING).round_ms(k) for k, _ in settled)
    best = best_k(alpha, c, lambda n: RISING(n) / RISING(1), max_k=16)
    assert 100 * tokens / ms > 0.95 * best.speedup


def test_a_draft_that_never_pays_is_left_alone_and_tried_more_and_more_rarely():
    rule = CostRule(costs(1.2))
    tried = [i for i in range(600) if a_round(rule, lambda: False)[0]]
    late = [b - a for a, b in itertools.pairwise(tried)][-4:]
    assert len(tried) < 25
    assert min(late) > 40
    assert all(a_round(rule, lambda: False)[0] <= 1 for _ in range(100))


def test_it_comes_back_when_the_text_turns_easy():
    rule = CostRule(costs(0.25))
    for _ in range(60):
        a_round(rule, lambda: False)
    hard = [a_round(rule, lambda: False)[0] for _ in range(40)]
    easy = [a_round(rule, lambda: True)[0] for _ in range(200)]
    assert sum(hard) < 20
    assert min(easy[-20:]) >= 8


def test_of_a_free_proposal_it_keeps_the_length_with_the_greatest_gain():
    rule = CostRule(costs(0.0, Curve(((1, 100.0), (4, 110.0), (5, 160.0), (17, 600.0)))))
    sure = Proposal((1, 2, 3, 4, 5, 6), confidence=(0.97,) * 6)
    assert rule.keep(sure) >= 3
    assert rule.keep(Proposal((1, 2, 3), confidence=(0.01, 0.9, 0.9))) == 0
    assert rule.keep(Proposal()) == 0


def test_it_learns_from_a_free_proposal_that_it_did_not_check():
    rule = CostRule(costs(0.0, Curve(((1, 100.0), (2, 150.0)))))
    copy = Proposal((1, 2), confidence=(0.3, 0.3))
    assert rule.keep(copy) == 0
    for _ in range(40):
        rule.learn(copy, [1])
    assert rule.keep(copy) > 0


def test_confidence_is_calibrated_and_positions_lean_on_the_ones_before():
    acceptance = Acceptance()
    before = acceptance.of(0.92)
    for _ in range(30):
        acceptance.learn(Proposal((1,), confidence=(0.93,)), [9])
    assert acceptance.of(0.92) < 0.2 < before
    assert acceptance.of(0.6) < 0.3  # a draft that is too sure is found out at every level
    fresh = Acceptance()
    for _ in range(30):
        fresh.learn(Proposal((1, 2, 3)), [1, 2, 3, 4])
    assert fresh.at(2) > 0.95
    assert fresh.at(8) > 0.9
    assert Acceptance().at(8) == pytest.approx(0.6)


def test_what_lies_behind_a_rejection_teaches_nothing():
    acceptance = Acceptance()
    assert acceptance.learn(Proposal((1, 2, 3)), [1, 9]) == 1
    assert acceptance.at(0) > 0.6
    assert acceptance.at(1) < acceptance.at(0)
    seen = Acceptance()
    seen.learn(Proposal((1, 2)), [1, 9])
    assert [acceptance.at(i) for i in range(16)] == [seen.at(i) for i in range(16)]


def test_confidences_come_one_a_token_and_drawn_tokens_are_not_dropped():
    with pytest.raises(ValueError, match="confidences"):
        Proposal((1, 2), confidence=(0.5,))
    drawn = Proposal((1, 2), OneHot(torch.tensor([1, 2])), confidence=(0.5, 0.4))
    with pytest.raises(ValueError, match="kept"):
        drawn.first(1)
    assert drawn.first(2) is drawn
    assert Proposal((1, 2), confidence=(0.5, 0.4)).first(1) == Proposal((1,), confidence=(0.5,))


def test_the_cost_rule_stays_at_a_length_that_is_prepared():
    """Two copies of a middling chance: where a new length is dear, as many are checked as last time."""
    even = Curve(((1, 100.0), (2, 130.0), (3, 160.0), (17, 580.0)))
    copy = Proposal((1, 2, 3))
    kept = {}
    for change in (0.0, 60.0):
        rule = CostRule(Costs(even, Curve(((1, 0.0), (2, 0.0))), change=change))
        kept[change] = []
        for right in (3, 3, 0, 0, 3, 3):
            kept[change].append(rule.keep(copy))
            rule.learn(copy, [*copy.tokens[:right], 99])
    changes = {at: sum(a != b for a, b in itertools.pairwise(ks)) for at, ks in kept.items()}
    assert changes[60.0] < changes[0.0], kept


def test_what_a_new_length_costs_is_counted_in_what_is_earned():
    rule = CostRule(Costs(FLAT, Curve(((1, 10.0), (2, 20.0))), change=50.0))
    copy = Proposal((1,))
    assert rule.keep(copy) == 1
    rule.learn(copy, [1, 99])
    assert rule._ms == pytest.approx(100 * CostRule._FADES + 100 + 50)
    assert rule.keep(copy) == 1
    rule.learn(copy, [1, 99])
    assert rule._ms == pytest.approx((100 * CostRule._FADES + 150) * CostRule._FADES + 100)


MORE = Curve(((1, 0.02),))


def test_a_long_context_makes_tokens_dearer_and_copies_shorter():
    """Where each token adds the time of looking at all of the context, what is doubtful is left out."""
    costs = Costs(FLAT, Curve(((1, 0.0), (2, 0.0))), context=100, read_more=MORE)
    copy, lengths = Proposal(tuple(range(16))), []
    for prompt in (None, 100, 1100):
        rule = CostRule(costs, prompt=prompt)
        for right in (4, 3, 2, 0, 3):
            rule.keep(copy)
            rule.learn(copy, [*copy.tokens[:right], 99])
        lengths.append(rule.keep(copy))
    assert lengths[0] == lengths[1] > lengths[2] > 0


def test_the_context_grows_with_the_text():
    rule = CostRule(Costs(FLAT, Curve(((1, 0.0), (2, 0.0))), read_more=MORE), prompt=10)
    before = rule._costs.plain_ms
    for _ in range(20):
        rule.learn(Proposal(), [1] * 10)
    assert rule._costs.context == 10 + 200
    assert rule._costs.plain_ms == pytest.approx(before + 0.02 * (rule._costs.context - 10))
