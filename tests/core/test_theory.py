"""The formulas of Leviathan et al. 2023, arXiv 2211.17192, section 3, and the paper's tables."""

import math
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from draftwise.core.theory import (
    BestK,
    alpha_from_utilisation,
    best_k,
    ceiling,
    draft_utilisation,
    expected_tokens,
    operations_factor,
    paper_speedup,
    predicted_speedup,
    speedup,
    speedup_from_tokens,
)

alphas = st.floats(0, 1)
inner_alphas = st.floats(0.01, 0.99)
ks = st.integers(0, 40)
costs = st.floats(0.005, 1.5)


# The paper's tables


@pytest.mark.parametrize(
    ("alpha", "k", "operations", "faster"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_table_1_of_the_paper_is_reproduced_to_two_decimals(
    alpha: float, k: int, operations: float, faster: float
) -> None:
    assert round(operations_factor(alpha, k, c_hat=0.0), 2) == operations
    assert round(paper_speedup(alpha, k, c=0.0), 2) == faster


@pytest.mark.parametrize(
    ("k", "alpha", "c", "predicted"),
    [
        pytest.param(7, 0.75, 0.02, 3.2, id="En-De small T=0"),
        pytest.param(7, 0.80, 0.04, 3.3, id="En-De base T=0"),
        pytest.param(7, 0.82, 0.11, 2.5, id="En-De large T=0"),
        pytest.param(7, 0.62, 0.02, 2.3, id="En-De small T=1"),
        pytest.param(5, 0.68, 0.04, 2.4, id="En-De base T=1"),
        pytest.param(3, 0.71, 0.11, 2.0, id="En-De large T=1"),
        pytest.param(5, 0.65, 0.02, 2.4, id="CNN-DM small T=0"),
        pytest.param(5, 0.73, 0.04, 2.6, id="CNN-DM base T=0"),
        pytest.param(3, 0.74, 0.11, 2.0, id="CNN-DM large T=0"),
        pytest.param(5, 0.53, 0.02, 1.9, id="CNN-DM small T=1"),
        pytest.param(3, 0.55, 0.04, 1.8, id="CNN-DM base T=1"),
        pytest.param(3, 0.56, 0.11, 1.6, id="CNN-DM large T=1"),
    ],
)
def test_the_predicted_column_of_table_2_is_reproduced(
    k: int, alpha: float, c: float, predicted: float
) -> None:
    # The paper rounds alpha and c to two decimals, hence the tolerance.
    assert paper_speedup(alpha, k, c) == pytest.approx(predicted, abs=0.07)


BEST_K_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BEST_K = {
    0.01: ((5, 1.88), (7, 2.30), (9, 2.97), (14, 4.23), (24, 7.49), (40, 12.54)),
    0.02: ((4, 1.79), (6, 2.17), (8, 2.76), (11, 3.82), (19, 6.37), (31, 9.95)),
    0.05: ((3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67), (21, 6.60)),
    0.10: ((2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43), (15, 4.48)),
    0.20: ((1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37), (10, 2.87)),
    0.30: ((1, 1.15), (1, 1.23), (2, 1.37), (3, 1.55), (5, 1.87), (8, 2.18)),
    0.50: ((0, 1.00), (1, 1.07), (1, 1.13), (2, 1.22), (3, 1.38), (5, 1.51)),
}


@pytest.mark.parametrize(
    ("c", "alpha", "k", "faster"),
    [
        (c, alpha, *best)
        for c, row in BEST_K.items()
        for alpha, best in zip(BEST_K_ALPHAS, row, strict=True)
    ],
)
def test_the_best_k_of_every_alpha_and_cost_is_found(
    c: float, alpha: float, k: int, faster: float
) -> None:
    best = best_k(alpha, c)
    assert (best.k, round(best.speedup, 2)) == (k, faster)


# Tokens a round


@given(alphas, ks)
def test_a_round_makes_from_one_token_to_k_plus_one_and_never_beats_the_ceiling(
    alpha: float, k: int
) -> None:
    tokens = expected_tokens(alpha, k)
    assert 1 <= tokens <= k + 1
    assert tokens <= ceiling(alpha) * (1 + 1e-12)


@given(alphas, alphas, ks)
def test_a_better_draft_never_makes_fewer_tokens_a_round(a: float, b: float, k: int) -> None:
    low, high = sorted((a, b))
    assert expected_tokens(low, k) <= expected_tokens(high, k) * (1 + 1e-12)


@given(st.floats(0.1, 0.99), st.integers(0, 8))
def test_a_longer_draft_makes_more_tokens_a_round_and_each_adds_less(alpha: float, k: int) -> None:
    first, second, third = (expected_tokens(alpha, k + more) for more in range(3))
    assert first < second
    assert third - second < second - first


@given(inner_alphas, ks)
def test_the_sum_of_survivals_is_the_closed_form_of_the_paper(alpha: float, k: int) -> None:
    closed = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert expected_tokens(alpha, k) == pytest.approx(closed, rel=1e-9)


@given(ks)
def test_a_perfect_draft_makes_exactly_k_plus_one_and_a_useless_one_exactly_one(k: int) -> None:
    assert expected_tokens(1.0, k) == k + 1
    assert expected_tokens(0.0, k) == 1


def test_the_ceiling_is_what_an_endless_draft_would_make() -> None:
    assert ceiling(0.8) == pytest.approx(expected_tokens(0.8, 500))
    assert ceiling(0.0) == 1
    assert ceiling(1.0) == math.inf


# Speed-up


@given(alphas, costs)
def test_with_one_drafted_token_the_speedup_is_one_plus_alpha_over_one_plus_c(
    alpha: float, c: float
) -> None:
    assert paper_speedup(alpha, 1, c) == pytest.approx((1 + alpha) / (1 + c))


@given(alphas, costs)
def test_one_drafted_token_helps_if_and_only_if_alpha_exceeds_c(alpha: float, c: float) -> None:
    assume(abs(alpha - c) > 1e-9)
    assert (speedup(alpha, 1, c, v=1.0) > 1) == (alpha > c)


@given(alphas, costs)
def test_where_one_drafted_token_does_not_help_no_k_does(alpha: float, c: float) -> None:
    assume(abs(alpha - c) > 1e-9)
    assert (best_k(alpha, c).k > 0) == (alpha > c)


@given(inner_alphas, costs)
def test_the_best_k_drafts_the_next_token_exactly_while_it_pays_its_cost(
    alpha: float, c: float
) -> None:
    best = best_k(alpha, c, max_k=400)
    assume(best.k < 400)
    cost = c * best.speedup
    slack = 1 + 1e-9
    assert all(alpha**token > cost / slack for token in range(1, best.k + 1))
    assert alpha ** (best.k + 1) <= cost * slack


@given(alphas, ks, costs, st.floats(1, 5), st.floats(0, 2))
def test_the_papers_speedup_is_the_bound_that_overheads_take_away_from(
    alpha: float, k: int, c: float, v: float, o: float
) -> None:
    real = speedup(alpha, k, c, v, o)
    assert real == pytest.approx(expected_tokens(alpha, k) / (k * c + v + o))
    assert real <= paper_speedup(alpha, k, c)


def test_dear_checking_and_overhead_turn_a_predicted_gain_into_a_loss() -> None:
    assert paper_speedup(0.6, 4, 0.3) > 1
    assert speedup(0.6, 4, 0.3, v=1.4) < 1
    assert speedup(0.6, 4, 0.3, v=1.0, o=0.4) < 1


def test_tokens_a_round_as_counted_give_the_speedup_without_any_alpha() -> None:
    assert speedup_from_tokens(tau=3.0, k=4, c=0.1, v=1.2, o=0.4) == pytest.approx(1.5)
    assert speedup_from_tokens(tau=2.5, k=2.5, c=0.2, v=1.5) == pytest.approx(1.25)


def test_no_drafted_token_is_plain_decoding() -> None:
    assert paper_speedup(0.7, 0, 0.2) == 1
    assert speedup_from_tokens(tau=1.0, k=0, c=0.9, v=1.0) == 1


# The best k


def test_the_best_k_of_a_free_and_perfect_draft_is_the_longest_allowed() -> None:
    assert best_k(1.0, 0.0, max_k=7) == BestK(7, 8.0)


def test_the_best_k_is_the_smallest_of_equals() -> None:
    assert best_k(0.5, 0.5) == BestK(0, 1.0)
    assert best_k(0.0, 0.0) == BestK(0, 1.0)


def test_the_best_k_looks_past_a_jump_in_the_verify_overhead() -> None:
    def jump(tokens: int) -> float:
        return 1.0 if tokens == 1 else 2.0

    assert speedup(0.9, 1, 0.02, jump(2)) < 1  # one token does not pay,
    best = best_k(0.9, 0.02, v=jump)
    assert best.k > 10  # but many do
    assert best.speedup == speedup(0.9, best.k, 0.02, 2.0)


def test_the_best_k_shrinks_as_checking_grows_dearer_and_reaches_none() -> None:
    flat = best_k(0.8, 0.05).k
    sloped = best_k(0.8, 0.05, v=lambda tokens: 1 + 0.1 * (tokens - 1)).k
    linear = best_k(0.8, 0.05, v=float)
    assert 0 < sloped < flat
    assert linear == BestK(0, 1.0)


def test_the_rounds_other_time_can_make_speculation_not_worth_it() -> None:
    assert best_k(0.6, 0.3, o=0.1).k > 0
    assert best_k(0.6, 0.3, o=0.5) == BestK(0, 1.0)


# Alpha is not the draft utilisation


def test_an_alpha_of_080_with_five_drafted_uses_only_0538_of_them() -> None:
    assert draft_utilisation(0.8, 5) == pytest.approx(0.538, abs=0.0005)


@given(inner_alphas, st.integers(1, 30))
def test_utilisation_is_the_accepted_share_of_the_drafted(alpha: float, k: int) -> None:
    used = draft_utilisation(alpha, k)
    assert used == pytest.approx((expected_tokens(alpha, k) - 1) / k, rel=1e-9)
    assert used == pytest.approx(alpha * (1 - alpha**k) / (k * (1 - alpha)), rel=1e-9)
    assert used < alpha if k > 1 else used == alpha


@pytest.mark.parametrize("k", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("alpha", [0.0, 0.02, 0.3, 0.538, 0.72, 0.8, 0.99, 1.0])
def test_alpha_is_found_again_from_the_utilisation(alpha: float, k: int) -> None:
    assert alpha_from_utilisation(draft_utilisation(alpha, k), k) == pytest.approx(alpha, abs=1e-13)


@pytest.mark.parametrize("k", [1, 5, 64])
def test_a_draft_that_is_never_or_always_used_has_exactly_that_alpha(k: int) -> None:
    assert alpha_from_utilisation(0.0, k) == 0
    assert alpha_from_utilisation(1.0, k) == 1


def test_72_percent_of_75_drafted_tokens_is_no_alpha_of_072() -> None:
    """A published run: k = 5, 15 rounds, 54 of 75 drafted tokens accepted, 64 emitted or more."""
    k, rounds, drafted, accepted = 5, 15, 75, 54
    utilisation = accepted / drafted
    assert utilisation == 0.72
    # At most every round ended in a rejection; each threw away from 1 to k of the 21 discarded.
    most, fewest = rounds, math.ceil((drafted - accepted) / k)
    lowest, highest = accepted / (accepted + most), accepted / (accepted + fewest)
    assert (round(lowest, 2), round(highest, 2)) == (0.78, 0.92)
    assert lowest < alpha_from_utilisation(utilisation, k) < highest
    # Taken for alpha, it forbids what the run did.
    assert round(ceiling(utilisation), 1) == 3.6
    assert ceiling(utilisation) < 64 / rounds < ceiling(lowest)


# Operations


def test_the_drafts_own_operations_are_added_for_each_drafted_token() -> None:
    assert operations_factor(0.8, 5, 0.1) == pytest.approx(
        (1 - 0.8) * (5 * 0.1 + 5 + 1) / (1 - 0.8**6)
    )
    assert operations_factor(1.0, 5, 0.0) == 1
    assert operations_factor(0.3, 0, 0.5) == 1


@given(alphas, ks, costs)
def test_speculation_never_saves_operations(alpha: float, k: int, c_hat: float) -> None:
    assert operations_factor(alpha, k, c_hat) >= 1


# Input that means nothing


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, math.inf])
def test_an_alpha_that_is_no_probability_is_refused(alpha: float) -> None:
    for call in (
        lambda: expected_tokens(alpha, 3),
        lambda: ceiling(alpha),
        lambda: paper_speedup(alpha, 3, 0.1),
        lambda: operations_factor(alpha, 3, 0.1),
        lambda: draft_utilisation(alpha, 3),
        lambda: best_k(alpha, 0.1, max_k=0),
    ):
        with pytest.raises(ValueError, match="alpha is a probability"):
            call()


def test_a_negative_k_is_refused_and_utilisation_needs_a_drafted_token() -> None:
    with pytest.raises(ValueError, match="at least 0, not -1"):
        expected_tokens(0.5, -1)
    with pytest.raises(ValueError, match="at least 0, not -1"):
        best_k(0.5, 0.1, max_k=-1)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        draft_utilisation(0.5, 0)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        alpha_from_utilisation(0.5, 0)


@pytest.mark.parametrize("ratio", [-0.1, math.nan, math.inf])
def test_a_cost_that_is_negative_or_not_finite_is_refused_by_its_name(ratio: float) -> None:
    with pytest.raises(ValueError, match=r"^c must be"):
        speedup(0.5, 3, ratio, 1.0)
    with pytest.raises(ValueError, match=r"^v must be"):
        speedup(0.5, 3, 0.1, ratio)
    with pytest.raises(ValueError, match=r"^o must be"):
        speedup(0.5, 3, 0.1, 1.0, ratio)
    with pytest.raises(ValueError, match=r"^c_hat must be"):
        operations_factor(0.5, 3, ratio)


def test_a_verify_pass_that_takes_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="v must be above 0"):
        speedup(0.5, 3, 0.1, 0.0)


@pytest.mark.parametrize("tau", [-0.1, 4.01, math.nan])
def test_more_tokens_a_round_than_k_plus_one_are_a_counting_error(tau: float) -> None:
    with pytest.raises(ValueError, match=r"between 0 and k \+ 1 = 4"):
        speedup_from_tokens(tau, 3, 0.1, 1.0)


@pytest.mark.parametrize("utilisation", [-0.1, 1.1, math.nan])
def test_a_utilisation_outside_zero_to_one_is_refused(utilisation: float) -> None:
    with pytest.raises(ValueError, match="utilisation must lie between"):
        alpha_from_utilisation(utilisation, 5)


def test_the_numeric_core_loads_without_torch_and_numpy() -> None:
    modules = ("theory", "counters", "estimates", "clock")
    program = "import sys\n" + "".join(f"import draftwise.core.{name}\n" for name in modules)
    program += "sys.exit(bool({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@given(st.floats(0, 0.99), st.integers(1, 12), st.floats(0, 1), st.floats(0.5, 3), st.floats(0, 1))
def test_rounds_of_one_length_are_predicted_as_the_formula_says(alpha, k, c, v, o):
    expected = speedup(alpha, k, c, v, o)
    assert predicted_speedup(alpha, [(k, k)] * 3, c=c, v=v, o=o) == pytest.approx(expected)


def test_a_round_without_a_guess_costs_a_plain_pass_and_gives_one_token():
    assert predicted_speedup(0.5, [(0, 0)] * 4, c=0.1, v=2.0) == 1.0
    with pytest.raises(ValueError, match="no rounds"):
        predicted_speedup(0.5, [], c=0.1, v=1.0)
