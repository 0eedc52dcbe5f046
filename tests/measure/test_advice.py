"""The decision, against cases that were worked out by hand."""

from random import Random

import pytest

from draftwise.core.costs import Costs, Curve
from draftwise.core.theory import speedup
from draftwise.measure.advice import Candidate, break_even_alpha, choose_k, decide, why_not
from draftwise.measure.records import (
    AgreementRecord,
    Choice,
    Conditions,
    Foresight,
    PassesRecord,
    PromptRef,
)

HERE = Conditions(target="big", machine="test", threads=1)
LENGTH = 170


def costs(c, v=lambda n: 1.0, o=0.0):
    """A target whose plain pass takes 100 ms."""
    return Costs(
        read=Curve(tuple((n, 100 * v(n)) for n in range(1, 18))),
        propose=Curve(((1, 100 * c), (16, 1600 * c))),
        host=100 * o,
    )


def agreement(alpha, name="a", longest=16, passes_per_token=1):
    """A drafter that is right with this probability, and proposes all that it is asked for."""
    random, text = Random(name), tuple(range(LENGTH))
    right = [random.random() < alpha for _ in text]

    def proposal(position):
        tokens = []
        for token in text[position : position + longest]:
            tokens.append(token if right[token] else 1000)
            if not right[token]:
                break
        return Foresight(tokens=tuple(tokens), drafted=longest)

    return AgreementRecord(
        conditions=HERE,
        drafter="small",
        prompt=PromptRef(workload="prose", index=0, sha256=name, tokens=5),
        seed=0,
        token_ids=text,
        max_tokens=LENGTH,
        foresight=tuple(map(proposal, text)),
        longest=longest,
        passes_per_token=passes_per_token,
    )


def passes(ms, drafter=None, noise=0.0):
    return PassesRecord(
        conditions=HERE,
        drafter=drafter,
        context=0,
        samples_ms={n: tuple(ms(n) * (1 + noise * d) for d in (-1, 0, 0, 1)) for n in range(1, 18)},
    )


def candidate(c, v=lambda n: 1.0, alphas=(1.0,), noise=0.0, host=0.0, **given):
    return Candidate(
        drafter="small",
        agreements=tuple(agreement(a, f"text {i}", **given) for i, a in enumerate(alphas)),
        read=passes(lambda n: 100 * v(n), noise=noise),
        propose=passes(lambda n: 100 * c * n, "small", noise=noise),
        host=host,
        plain_host=0.0,
    )


def choice(**given):
    fields = {
        "drafter": "small", "k": 3, "speedup": 1.2, "low": 1.1, "high": 1.3, "tokens_per_round": 2.4,
        "alpha": 0.7, "c": 0.2, "v": 1.1, "o": 0.1, "share_drafted": 1.0, "break_even_alpha": 0.5,
    }  # fmt: skip
    return Choice(**fields | given)


def test_a_free_draft_that_is_always_right_is_worth_every_token_that_was_looked_at():
    found = choose_k(candidate(c=0.0))
    assert found.k == 16
    assert found.speedup == found.tokens_per_round == LENGTH / 10  # 170 tokens, 17 a round
    assert (found.low, found.high) == (17, 17)
    assert (found.alpha, found.c, found.v, found.share_drafted) == (1, 0, 1, 1)
    assert found.break_even_alpha == pytest.approx(0, abs=1e-5)
    verdict, best, (reason,) = decide([found], None)
    assert (verdict, best) == ("do", found)
    assert reason.startswith(
        "small at k = 16: 17.00 tokens a round for the price of 1.00 plain ones"
    )


def test_a_draft_as_slow_as_its_target_gains_nothing_even_if_it_is_always_right():
    found = choose_k(candidate(c=1.0))
    assert found.speedup == 1.0
    assert found.break_even_alpha is None
    verdict, _, (reason,) = decide([found], None)
    assert verdict == "do not"
    assert "a guess costs as much as the token that it might save (c = 1.00, v(" in reason
    assert "nothing is gained even if every guess is right" in reason


def test_cheap_guesses_do_not_help_where_checking_costs_by_the_token():
    found = choose_k(candidate(c=0.01, v=lambda n: n))
    assert found.break_even_alpha is None
    verdict, _, (reason,) = decide([found], None)
    assert verdict == "do not"
    assert "guessing and checking cost more than they can save (c = 0.01" in reason


def test_a_text_without_repetition_gives_lookup_nothing_to_propose():
    silent = agreement(0.0, passes_per_token=0).model_copy(
        update={"foresight": (Foresight(tokens=(), drafted=0),) * LENGTH}
    )
    found = choose_k(
        Candidate("lookup", (silent,), passes(lambda n: 100), passes(lambda n: 0, "lookup"), 0, 0)
    )
    assert (found.k, found.speedup, found.alpha, found.share_drafted) == (1, 1, None, 0)
    verdict, _, (reason,) = decide([found], None)
    assert verdict == "do not"
    assert "something to propose in 0% of the rounds only: this text repeats too little" in reason


def test_a_draft_that_guesses_too_badly_is_told_from_which_alpha_it_would_pay():
    found = choose_k(candidate(c=0.5, alphas=(0.2, 0.2)))
    assert found.speedup < 1
    verdict, _, (reason,) = decide([found], None)
    assert verdict == "do not"
    assert reason == (
        f"small: alpha is {found.alpha:.2f}; at these costs (c = 0.50, v(2) = 1.00, o = 0.00) it would pay "
        "from about alpha = 0.50"
    )


def test_an_interval_that_holds_1_is_too_close_to_say():
    close = choice(speedup=1.05, low=0.95, high=1.2)
    verdict, best, (reason, obstacle) = decide([close], None)
    assert (verdict, best) == ("too close to say", close)
    assert "0.95x to 1.20x, is not above 1x" in reason
    assert obstacle == why_not(close)


@pytest.mark.parametrize(
    ("low", "speedup", "high", "told"),
    [
        (1.01, 1.1, 1.2, "do"),
        (1.0, 1.1, 1.2, "too close to say"),
        (0.9, 0.99, 1.2, "too close to say"),
        (0.8, 0.9, 1.0, "do not"),
        (0.97, 1.01, 1.05, "do not"),  # a draft as slow as its target, always right
    ],
)
def test_advice_is_to_do_it_only_where_the_whole_interval_is_a_gain(low, speedup, high, told):
    assert decide([choice(low=low, speedup=speedup, high=high)], None)[0] == told


def test_a_sure_gain_is_advised_before_a_greater_one_that_is_not_sure():
    sure = choice(drafter="sure", speedup=1.15, low=1.08, high=1.22)
    bold = choice(drafter="bold", speedup=1.2, low=0.9, high=1.6)
    verdict, best, _ = decide([bold, sure], None)
    assert (verdict, best) == ("do", sure)


def test_a_copy_that_is_right_and_rare_is_said_to_be_rare():
    rare = choice(drafter="lookup", alpha=0.55, break_even_alpha=0.12, share_drafted=0.15)
    assert "15% have one" in why_not(rare)


def test_the_verdict_is_about_the_best_of_several_and_the_reasons_about_all():
    choices = [
        choice(drafter="a", speedup=0.7, high=0.8),
        choice(drafter="b", speedup=0.9, high=0.95),
    ]
    verdict, best, reasons = decide([c.model_copy(update={"low": 0.5}) for c in choices], None)
    assert (verdict, best.drafter) == ("do not", "b")
    assert [reason.split(":")[0] for reason in reasons] == ["a", "b"]


def test_a_noisy_machine_gets_no_verdict_however_good_the_numbers_look():
    assert decide([choice()], "this machine is too noisy")[::2] == (
        "too noisy to say", ["this machine is too noisy"],
    )  # fmt: skip


@pytest.mark.parametrize("c", [0.05, 0.3, 0.9])
def test_where_checking_is_free_it_pays_from_alpha_equal_to_c(c):
    """Leviathan et al. 2023, corollary 3.9."""
    for max_k in (1, 16):
        assert break_even_alpha(costs(c), max_k) == pytest.approx(c, abs=1e-5)


def test_checking_and_the_rest_of_a_round_raise_the_alpha_from_which_it_pays():
    needed = break_even_alpha(costs(0.1, v=lambda n: 1 + 0.1 * (n - 1), o=0.2))
    assert 0.1 < needed < 1
    at = [
        speedup(needed + d, k, 0.1, 1 + 0.1 * k, 0.2) for d in (-1e-4, 1e-4) for k in range(1, 17)
    ]
    assert max(at[:16]) < 1 < max(at[16:])


def test_the_host_time_of_a_plain_round_is_a_cost_that_speculation_saves():
    costly = Costs(costs(0.3).read, costs(0.3).propose, host=0, plain_host=100)
    # 1 + a tokens at 200 ms each, for 130 ms
    assert break_even_alpha(costly, 1) == pytest.approx(0, abs=1e-5)


def test_more_noise_and_more_varied_prompts_widen_the_interval_and_not_the_prediction():
    steady, noisy = (choose_k(candidate(c=0.1, alphas=(0.7,), noise=n)) for n in (0.0, 0.15))
    assert noisy.speedup == steady.speedup
    assert noisy.high - noisy.low > steady.high - steady.low
    alike, varied = (
        choose_k(candidate(c=0.1, alphas=a)) for a in ((0.7,) * 4, (0.5, 0.6, 0.8, 0.9))
    )
    assert varied.high - varied.low > 1.5 * (alike.high - alike.low)
    for found in (steady, noisy, alike, varied):
        assert found.low < found.speedup < found.high


def test_advice_is_the_same_each_time():
    assert choose_k(candidate(c=0.1, alphas=(0.7, 0.8))) == choose_k(
        candidate(c=0.1, alphas=(0.7, 0.8))
    )


def test_no_k_beyond_what_was_looked_at_is_chosen():
    assert choose_k(candidate(c=0.0, longest=4)).k == 4
    assert choose_k(candidate(c=0.0), max_k=6).k == 6
