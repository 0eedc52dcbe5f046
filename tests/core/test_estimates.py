"""Intervals against published values, and whether they cover what they say they cover."""

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.core.estimates import (
    Interval,
    Spread,
    bootstrap_interval,
    spread,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_agrees_with_the_table_of_newcombe_1998(
    successes: int, trials: int, low: float, high: float
) -> None:
    """Statistics in Medicine 17, 857-872, table I, method 3."""
    interval = wilson_interval(successes, trials)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_holds_the_proportion_and_stays_within_zero_and_one(
    counts: tuple[int, int],
) -> None:
    successes, trials = counts
    interval = wilson_interval(successes, trials)
    assert 0 <= interval.low <= successes / trials <= interval.high <= 1
    mirrored = wilson_interval(trials - successes, trials)
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-12)


def test_even_a_perfect_draft_leaves_doubt_on_one_side_only() -> None:
    assert wilson_interval(30, 30).high == 1
    assert 0.8 < wilson_interval(30, 30).low < 0.9
    assert wilson_interval(0, 30).low == 0


def test_more_trials_and_less_confidence_both_narrow_the_interval() -> None:
    def width(interval: Interval) -> float:
        return interval.high - interval.low

    usual = width(wilson_interval(40, 50))
    assert width(wilson_interval(400, 500)) < usual
    assert width(wilson_interval(40, 50, confidence=0.5)) < usual
    assert width(wilson_interval(40, 50, confidence=0.99)) > usual


@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.95])
def test_wilson_covers_the_truth_about_as_often_as_it_says(alpha: float) -> None:
    draw = random.Random(7).random
    runs, trials = 2000, 60
    covered = 0
    for _ in range(runs):
        interval = wilson_interval(sum(draw() < alpha for _ in range(trials)), trials)
        covered += interval.low <= alpha <= interval.high
    assert 0.92 < covered / runs < 0.98


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_what_is_no_proportion_has_no_interval(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="not a proportion"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_lies_between_zero_and_one(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        wilson_interval(1, 2, confidence)


def test_a_spread_is_the_median_and_the_quartiles_of_the_runs() -> None:
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(median=3.0, low=2.0, high=4.0, runs=5)
    assert spread([4.0, 1.0]) == Spread(median=2.5, low=1.75, high=3.25, runs=2)
    assert spread([7.0]) == Spread(median=7.0, low=7.0, high=7.0, runs=1)


def test_one_disturbed_run_hardly_moves_the_spread() -> None:
    calm, disturbed = [40.0, 41.0, 42.0, 43.0, 44.0], [40.0, 41.0, 42.0, 43.0, 4400.0]
    assert spread(calm) == spread(disturbed)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_the_spread_agrees_with_the_statistics_module(values: list[float]) -> None:
    made = spread(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    assert (made.low, made.median, made.high) == pytest.approx((low, middle, high), abs=1e-6)


def test_a_spread_of_nothing_or_of_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        spread([])
    with pytest.raises(ValueError, match="finite"):
        spread([1.0, math.nan])
    with pytest.raises(ValueError, match="at least one run"):
        Spread(1.0, 1.0, 1.0, runs=0)
    with pytest.raises(ValueError, match="does not lie between"):
        Spread(median=3.0, low=1.0, high=2.0, runs=2)


def test_an_interval_runs_upwards_and_holds_numbers() -> None:
    with pytest.raises(ValueError, match="upwards"):
        Interval(2.0, 1.0)
    with pytest.raises(ValueError, match="upwards"):
        Interval(math.nan, 1.0)


def test_the_bootstrap_repeats_itself_for_a_seed_and_leaves_global_randomness_alone() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 9.0]
    before = random.getstate()
    first = bootstrap_interval(values, statistics.fmean, seed=1)
    assert first == bootstrap_interval(values, statistics.fmean, seed=1)
    assert first != bootstrap_interval(values, statistics.fmean, seed=2)
    assert random.getstate() == before


def test_the_bootstrap_of_a_mean_is_as_wide_as_the_normal_theory_says() -> None:
    draw = random.Random(3)
    values = [draw.gauss(10, 2) for _ in range(200)]
    interval = bootstrap_interval(values, statistics.fmean, seed=5)
    error = statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    assert interval.low == pytest.approx(mean - 1.96 * error, abs=0.25 * error)
    assert interval.high == pytest.approx(mean + 1.96 * error, abs=0.25 * error)


def test_the_bootstrap_covers_the_truth_most_of_the_time() -> None:
    draw = random.Random(11)
    covered = 0
    for seed in range(150):
        values = [draw.expovariate(1.0) for _ in range(25)]
        interval = bootstrap_interval(values, statistics.fmean, seed=seed, resamples=200)
        covered += interval.low <= 1 <= interval.high
    assert 0.83 < covered / 150 < 0.99  # known to be a little narrow with few values


def test_the_bootstrap_resamples_whole_prompts_for_a_ratio_of_sums() -> None:
    prompts = [(8, 10), (30, 60), (45, 50), (5, 5)]

    def alpha(sample: Sequence[tuple[int, int]]) -> float:
        return sum(accepted for accepted, _ in sample) / sum(examined for _, examined in sample)

    interval = bootstrap_interval(prompts, alpha, seed=0)
    assert interval.low < alpha(prompts) < interval.high
    assert interval.low >= 0.5  # no resample is worse than its worst prompt


def test_a_sample_without_variation_has_an_interval_without_width() -> None:
    assert bootstrap_interval([3.0] * 4, statistics.fmean, seed=0) == Interval(3.0, 3.0)


def test_a_bootstrap_without_values_or_resamples_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval([], statistics.fmean, seed=0)
    with pytest.raises(ValueError, match="at least one resample"):
        bootstrap_interval([1.0], statistics.fmean, seed=0, resamples=0)
