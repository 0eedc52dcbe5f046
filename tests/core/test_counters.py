"""Raw counts obey their invariants, and every rate is the one its name promises."""

import json
import math
import random
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.core.counters import Counters, RoundCount, acceptance_by_position, rates
from draftwise.core.estimates import wilson_interval
from draftwise.core.theory import draft_utilisation, expected_tokens


@st.composite
def round_counts(draw: st.DrawFn) -> RoundCount:
    drafted = draw(st.integers(0, 8))
    accepted = draw(st.integers(0, drafted))
    emitted = draw(st.integers(0, accepted + 1))
    return RoundCount(drafted, accepted, emitted, draft_passes=draw(st.integers(0, 9)))


runs = st.lists(round_counts(), max_size=12)

RUN = (
    RoundCount(drafted=5, accepted=5, emitted=6, draft_passes=5),
    RoundCount(drafted=5, accepted=2, emitted=3, draft_passes=6),
    RoundCount(drafted=5, accepted=0, emitted=1, draft_passes=5),
    RoundCount(drafted=0, accepted=0, emitted=1),
    RoundCount(drafted=2, accepted=2, emitted=1, draft_passes=2),  # a stop cut two tokens off
)


def simulated_run(alpha: float, k: int, rounds: int) -> list[RoundCount]:
    draw = random.Random(5).random
    run = []
    for _ in range(rounds):
        accepted = 0
        while accepted < k and draw() < alpha:
            accepted += 1
        run.append(RoundCount(k, accepted, accepted + 1, draft_passes=k))
    return run


# Counts


def test_a_run_is_the_sum_of_its_rounds_with_prefill_kept_apart() -> None:
    made = Counters.from_rounds(RUN, prompt_tokens=40, prefill_tokens=30, prefill_passes=2)
    assert made == Counters(
        rounds=5,
        target_passes=5,
        draft_passes=18,
        drafted=17,
        accepted=9,
        emitted=12,
        rejections=2,
        prompt_tokens=40,
        prefill_tokens=30,
        prefill_passes=2,
    )
    assert made.discarded == 8
    assert made.examined == 11


def test_plain_decoding_of_n_tokens_is_n_target_passes() -> None:
    plain = Counters.from_rounds([RoundCount(0, 0, 1)] * 32)
    assert plain.target_passes == plain.emitted == plain.rounds == 32
    assert rates(plain).tokens_per_round == 1


@given(runs, runs)
def test_two_runs_added_up_are_the_run_of_all_their_rounds(
    first: list[RoundCount], second: list[RoundCount]
) -> None:
    a = Counters.from_rounds(first, prompt_tokens=9, prefill_tokens=8, prefill_passes=1)
    b = Counters.from_rounds(second, prompt_tokens=5, prefill_tokens=4, prefill_passes=2)
    both = Counters.from_rounds(
        first + second, prompt_tokens=14, prefill_tokens=12, prefill_passes=3
    )
    assert a + b == both
    assert sum([a, b], start=Counters()) == both


def test_the_names_of_the_json_are_all_there_and_all_whole_numbers() -> None:
    counts = Counters.from_rounds(RUN).as_dict()
    names = "rounds target_passes draft_passes drafted accepted discarded emitted"
    assert set(names.split()) <= set(counts)
    assert counts["discarded"] == 8
    assert all(type(count) is int for count in counts.values())


def test_counts_cannot_be_changed_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        Counters().rounds = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("counts", "rule"),
    [
        ({"rounds": -1}, "every count >= 0"),
        ({"prefill_passes": -1}, "every count >= 0"),
        ({"rounds": 2, "drafted": 3, "accepted": 4}, "accepted <= drafted"),
        ({"rounds": 1, "drafted": 9, "rejections": 2}, "rejections <= rounds"),
        ({"rounds": 3, "drafted": 3, "accepted": 2, "rejections": 2}, "rejections <= drafted"),
        ({"rounds": 2, "drafted": 3, "accepted": 3, "emitted": 6}, "emitted <= accepted"),
        ({"prompt_tokens": 3, "prefill_tokens": 4}, "prefill_tokens <= prompt_tokens"),
        (
            {"prompt_tokens": 3, "prefill_tokens": 1, "prefill_passes": 2},
            "prefill_passes <= prefill_tokens",
        ),
    ],
)
def test_counts_that_contradict_each_other_are_refused(counts: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Counters(**counts)


def test_the_extra_token_is_never_accepted_and_a_round_never_emits_two_of_them() -> None:
    with pytest.raises(ValueError, match="accepted <= drafted"):
        RoundCount(drafted=3, accepted=4, emitted=4)
    with pytest.raises(ValueError, match="emitted <= accepted"):
        RoundCount(drafted=3, accepted=2, emitted=4)
    with pytest.raises(ValueError, match="0 <= accepted"):
        RoundCount(drafted=3, accepted=-1, emitted=0)
    with pytest.raises(ValueError, match="0 <= emitted"):
        RoundCount(drafted=3, accepted=1, emitted=-1)
    with pytest.raises(ValueError, match="draft_passes"):
        RoundCount(drafted=3, accepted=1, emitted=1, draft_passes=-1)


def test_a_round_is_a_rejection_exactly_when_it_accepted_less_than_it_drafted() -> None:
    assert [r.rejected for r in RUN] == [False, True, True, False, False]


# Rates


def test_alpha_counts_examined_tokens_and_utilisation_counts_drafted_ones() -> None:
    made = rates(Counters.from_rounds(RUN))
    assert made.alpha == 9 / 11
    assert made.draft_utilisation == 9 / 17
    assert made.tokens_per_round == 12 / 5
    interval = wilson_interval(9, 11)
    assert (made.alpha_low, made.alpha_high) == (interval.low, interval.high)


def test_acceptance_at_a_position_is_given_that_all_before_it_were_accepted() -> None:
    made = rates(Counters.from_rounds(RUN), RUN)
    # Position 1: four rounds drafted it, three accepted it. Position 3: of the three that came to
    # accept two, one had drafted no third token, so two were examined. One accepted all the rest.
    assert made.acceptance_by_position == (3 / 4, 3 / 3, 1 / 2, 1 / 1, 1 / 1)


def test_a_position_that_no_round_reached_has_no_acceptance() -> None:
    assert acceptance_by_position([RoundCount(3, 0, 1)]) == (0.0, None, None)


@given(runs)
def test_the_positions_together_hold_the_same_acceptances_as_alpha(run: list[RoundCount]) -> None:
    reached = [sum(r.accepted >= i - 1 and r.drafted >= i for r in run) for i in range(1, 9)]
    by_position = acceptance_by_position(run)
    accepted = sum(
        share * n for share, n in zip(by_position, reached, strict=False) if share is not None
    )
    counters = Counters.from_rounds(run)
    assert accepted == pytest.approx(counters.accepted)
    assert sum(reached) == counters.examined


@given(runs)
def test_every_rate_is_in_its_range_or_none_and_json_needs_no_nan(run: list[RoundCount]) -> None:
    counters = Counters.from_rounds(run)
    made = rates(counters, run)
    assert (made.alpha is None) == (counters.drafted == 0)
    if made.alpha is not None:
        assert made.alpha_low is not None
        assert made.alpha_high is not None
        assert made.draft_utilisation is not None
        assert 0 <= made.alpha_low <= made.alpha <= made.alpha_high <= 1
        assert made.draft_utilisation <= made.alpha
    if run:
        assert made.tokens_per_round is not None
        assert made.tokens_per_round <= max(r.drafted for r in run) + 1
    text = json.dumps(made.as_dict(), allow_nan=False)
    assert json.loads(text) == made.as_dict()


def test_a_run_of_nothing_has_no_rates_at_all() -> None:
    named = rates(Counters()).as_dict()
    assert named.pop("acceptance_by_position") == []
    assert set(named.values()) == {None}


def test_costs_are_ratios_to_a_plain_target_pass() -> None:
    made = rates(Counters(), target_ms=66.0, draft_ms=11.0, verify_ms=99.0)
    assert made.cost_ratio == pytest.approx(1 / 6)
    assert made.verify_overhead == pytest.approx(1.5)


def test_a_missing_or_vanishing_time_leaves_the_ratio_undefined() -> None:
    assert rates(Counters(), draft_ms=11.0, verify_ms=9.0).cost_ratio is None
    assert rates(Counters(), target_ms=0.0, draft_ms=11.0).cost_ratio is None
    only_draft = rates(Counters(), target_ms=66.0, draft_ms=0.0)
    assert only_draft.cost_ratio == 0  # a drafter without a model costs nothing
    assert only_draft.verify_overhead is None


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0])
def test_a_time_that_is_no_time_is_refused(time: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        rates(Counters(), target_ms=66.0, draft_ms=time)
    with pytest.raises(ValueError, match="finite"):
        rates(Counters(), target_ms=time, verify_ms=66.0)


def test_rounds_that_are_not_those_of_the_counters_are_refused() -> None:
    with pytest.raises(ValueError, match="4 rounds given, but the counters hold 5"):
        rates(Counters.from_rounds(RUN), RUN[1:])


def test_counting_finds_the_alpha_that_was_put_in_where_utilisation_does_not() -> None:
    run = simulated_run(alpha=0.8, k=5, rounds=1500)
    made = rates(Counters.from_rounds(run), run)
    assert made.alpha == pytest.approx(0.8, abs=0.015)
    assert made.alpha_low is not None
    assert made.alpha_high is not None
    assert made.alpha_low < 0.8 < made.alpha_high
    assert made.draft_utilisation == pytest.approx(draft_utilisation(0.8, 5), abs=0.02)
    assert made.tokens_per_round == pytest.approx(expected_tokens(0.8, 5), abs=0.1)
    assert made.acceptance_by_position == pytest.approx((0.8,) * 5, abs=0.04)


def test_54_of_75_drafted_is_72_percent_used_but_an_alpha_of_at_least_78_percent() -> None:
    """A published run, k = 5: both ways in which 15 rounds can discard 21 tokens."""

    def alpha(accepted: list[int]) -> float | None:
        made = rates(Counters.from_rounds(RoundCount(5, j, j + 1) for j in accepted))
        assert made.draft_utilisation == 0.72
        return made.alpha

    assert alpha([4] * 9 + [3] * 6) == pytest.approx(0.78, abs=0.005)  # every round rejects
    assert alpha([5] * 10 + [0] * 4 + [4]) == pytest.approx(0.92, abs=0.005)  # five rounds reject
