"""Prices: a line between measured lengths, and the price of a round."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.core.costs import Costs, Curve
from draftwise.core.counters import RoundCount
from draftwise.core.theory import speedup_from_tokens
from draftwise.measure.records import Conditions, PassesRecord

READ = Curve(((1, 10.0), (2, 11.0), (4, 12.0), (8, 20.0)))


def test_a_curve_meets_what_was_measured_and_draws_lines_between():
    assert [READ(n) for n in (1, 2, 3, 4, 6, 8)] == [10, 11, 11.5, 12, 16, 20]


def test_a_curve_goes_on_beyond_its_ends_and_never_below_nothing():
    assert READ(12) == 28
    assert Curve(((4, 12.0), (8, 20.0)))(1) == 6
    assert Curve(((4, 4.0), (8, 20.0)))(2) == 0
    assert Curve(((1, 10.0), (2, 4.0)))(9) == 0


def test_a_curve_of_one_length_is_proportional_and_nothing_costs_nothing():
    assert Curve(((4, 12.0),))(1) == 3
    assert READ(0) == 0


@pytest.mark.parametrize("measured", [(), ((2, 1.0), (1, 1.0)), ((1, 1.0), (1, 2.0)), ((0, 1.0),)])
def test_lengths_that_do_not_ascend_from_one_are_refused(measured):
    with pytest.raises(ValueError, match="ascending order"):
        Curve(measured)


@given(
    st.dictionaries(st.integers(1, 64), st.floats(0, 1e4), min_size=2).map(
        lambda measured: Curve(tuple(sorted(measured.items())))
    )
)
def test_between_neighbours_a_curve_stays_between_them(curve):
    for (a, ms_a), (b, ms_b) in pairwise(curve.measured):
        low, high = sorted((ms_a, ms_b))
        assert all(low - 1e-6 <= curve(n) <= high + 1e-6 for n in range(a, b + 1))


def test_a_record_is_read_by_its_medians_in_order_of_length():
    record = PassesRecord(
        conditions=Conditions(target="toy", machine="a machine", threads=1),
        context=8,
        samples_ms={8: (20.0, 90.0, 19.0), 1: (10.0, 10.0)},
    )
    assert Curve.of(record.samples_ms) == Curve(((1, 10.0), (8, 20.0)))


COSTS = Costs(read=READ, propose=Curve(((1, 2.0), (3, 6.0))), host=1.0, plain_host=0.5)


def test_a_round_costs_proposing_reading_and_the_host():
    assert COSTS.plain_ms == 10.5
    assert COSTS.round_ms(0) == 10.5
    assert COSTS.round_ms(1) == 2 + 11 + 1
    assert COSTS.round_ms(3) == 6 + 12 + 1
    assert (COSTS.c(3), COSTS.v(4), COSTS.o) == (0.2, 1.2, 0.1)


def test_the_speed_up_of_equal_rounds_is_that_of_the_formula():
    costs = Costs(read=READ, propose=COSTS.propose, host=1.0)
    rounds = [RoundCount(3, 3, 4), RoundCount(3, 0, 1), RoundCount(3, 1, 2)]
    expected = speedup_from_tokens(7 / 3, 3, costs.c(3), costs.v(4), costs.o)
    assert costs.speedup(rounds) == pytest.approx(expected)


def test_rounds_that_draft_nothing_are_plain_decoding():
    assert COSTS.speedup([RoundCount(0, 0, 1)] * 5) == pytest.approx(1)
    assert COSTS.total_ms([RoundCount(0, 0, 1), RoundCount(3, 2, 3)]) == 10.5 + 19


def test_a_round_of_another_length_than_the_one_before_pays_for_the_change():
    rounds = [RoundCount(drafted, 0, 1) for drafted in (3, 3, 0, 0, 3)]
    dear = replace(COSTS, change=7.0)
    assert dear.total_ms(rounds) == pytest.approx(COSTS.total_ms(rounds) + 2 * 7.0)
    assert dear.speedup(rounds) < COSTS.speedup(rounds)
    assert dear.read_behind(4, 4) == COSTS.read(4)
    assert dear.read_behind(1, 4) == COSTS.read(4) + 7.0


def test_a_context_adds_to_each_token_and_may_be_shorter_than_the_measured_one():
    more = {"read_more": Curve(((1, 0.01), (9, 0.09))), "propose_more": Curve(((1, 0.005),))}
    costs = replace(COSTS, context=100, **more)
    longer = costs.behind(300)
    assert longer.read(4) == pytest.approx(costs.read(4) + 4 * 200 * 0.01)
    assert longer.propose(3) == pytest.approx(6.0 + 3 * 200 * 0.005)
    assert longer.behind(100).read(4) == pytest.approx(costs.read(4))
    assert costs.behind(50).read(1) == pytest.approx(costs.read(1) - 0.5)
    assert costs.behind(0).propose(1) >= 0
    assert COSTS.behind(5000).read == COSTS.read
