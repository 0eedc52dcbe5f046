"""Every rule lets through exactly the target's law, whatever the draft: by enumeration."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.core.acceptance import RULES, match, rejection
from draftwise.core.distributions import Dense, OneHot
from draftwise.core.proposals import Proposal, Verdict
from draftwise.testing.enumeration import law, total_variation

P, Q = (0.1, 0.6, 0.3), (0.5, 0.3, 0.2)


def dense(*rows):
    return Dense(torch.tensor(rows, dtype=torch.float64))


class MarkovModel:
    """A language model whose next-token law depends on the whole prefix through a fixed table."""

    def __init__(self, vocab_size, seed, sharpness=2.0):
        self.vocab_size, self.sharpness = vocab_size, sharpness
        self.seed = seed

    def row(self, prefix):
        generator = torch.Generator().manual_seed(hash((self.seed, *prefix)) % 2**31)
        logits = torch.randn(self.vocab_size, generator=generator, dtype=torch.float64)
        return torch.softmax(self.sharpness * logits, -1)


def emitted_law(rule, target, draft, k, length):
    """The law of the first `length` tokens when they are written by rounds of draft and rule."""

    def run(randomness):
        text = ()
        while len(text) < length:
            drafted, rows = (), []
            for _ in range(k):
                rows.append(draft.row(text + drafted))
                drafted += tuple(randomness.draw(Dense(rows[-1][None]), 0))
            p = Dense(torch.stack([target.row(text + drafted[:i]) for i in range(k + 1)]))
            verdict = rule(Proposal(drafted, Dense(torch.stack(rows))), p, randomness, len(text))
            text += drafted[: verdict.num_accepted] + (verdict.token,)
        return text[:length]

    return law(run)


def plain_law(target, length):
    result = {}
    for text in itertools.product(range(target.vocab_size), repeat=length):
        result[text] = math.prod(float(target.row(text[:i])[text[i]]) for i in range(length))
    return result


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    ("vocab_size", "k", "length"),
    [(2, 1, 3), (2, 2, 3), (2, 3, 2), (3, 2, 2), (4, 1, 2), (5, 1, 1)],
)
def test_text_written_by_rounds_follows_the_targets_law(name, vocab_size, k, length):
    target, draft = MarkovModel(vocab_size, 1), MarkovModel(vocab_size, 2)
    written = emitted_law(RULES[name], target, draft, k, length)
    assert total_variation(written, plain_law(target, length)) < 1e-12


@pytest.mark.parametrize("name", RULES)
def test_a_draft_without_q_is_as_exact_as_one_with_it(name):
    target = MarkovModel(3, 5)

    def run(randomness):
        p = Dense(torch.stack([target.row((2, 0)[:i]) for i in range(3)]))
        verdict = RULES[name](Proposal((2, 0)), p, randomness, 0)
        text = (2, 0)[: verdict.num_accepted] + (verdict.token,)
        while len(text) < 3:
            text += tuple(randomness.draw(Dense(target.row(text)[None]), len(text)))
        return text

    assert total_variation(law(run), plain_law(target, 3)) < 1e-12


def first_token_law(rule, p, q):
    """Law of the first emitted token for k = 1, with the draft drawn from q."""

    def run(randomness):
        token = randomness.draw(dense(q), 0)[0]
        verdict = rule(Proposal((token,), dense(q)), dense(p, p), randomness, 0)
        return token if verdict.num_accepted else verdict.token

    return law(run)


def resample_from_p(proposal, p, randomness, position):
    """Wrong: after a rejection draws from p instead of the residual."""
    p_x = float(p.p[0, proposal.tokens[0]])
    q_x = float(proposal.q.p[0, proposal.tokens[0]])
    if randomness.accept(p_x, q_x):
        return Verdict(1, randomness.draw(Dense(p.p[1:]), 1)[0])
    return Verdict(0, randomness.draw(Dense(p.p[:1]), 0)[0])


def accept_the_top_token(proposal, p, randomness, position):
    """Wrong: accepts iff the draft is the target's top token, else samples from p."""
    if proposal.tokens[0] == int(p.p[0].argmax()):
        return Verdict(1, randomness.draw(Dense(p.p[1:]), 1)[0])
    return Verdict(0, randomness.draw(Dense(p.p[:1]), 0)[0])


def greedy_draft_with_softmax_q(proposal, p, randomness, position):
    """Wrong: the draft took its top token, yet is judged as if it had been drawn from q."""
    top = int(proposal.q.p[0].argmax())
    return rejection(Proposal((top,), proposal.q), p, randomness, position)


def greedy_first_token_law(p, q):
    top = int(torch.tensor(q).argmax())

    def run(randomness):
        verdict = greedy_draft_with_softmax_q(
            Proposal((top,), dense(q)), dense(p, p), randomness, 0
        )
        return top if verdict.num_accepted else verdict.token

    return law(run)


def softmax_of_the_clipped_difference(proposal, p, randomness, position):
    """Wrong: normalises the residual by a softmax, which gives mass to tokens that have none."""
    verdict = rejection(proposal, p, randomness, position)
    if verdict.num_accepted:
        return verdict
    residual = torch.softmax((p.p[0] - proposal.q.p[0]).clamp(min=0), -1)
    return Verdict(0, randomness.draw(Dense(residual[None]), 0)[0])


WRONG = [
    (resample_from_p, (0.45, 0.33, 0.22)),
    (accept_the_top_token, (0.70, 0.18, 0.12)),
]


@pytest.mark.parametrize(("rule", "biased"), WRONG)
def test_the_law_test_catches_wrong_rules(rule, biased):
    p, q = (0.5, 0.3, 0.2), (0.4, 0.4, 0.2)
    written = first_token_law(rule, p, q)
    assert total_variation(written, dict(enumerate(p))) > 0.02
    assert [written[x] for x in range(3)] == pytest.approx(biased)


def test_the_law_test_catches_a_greedy_draft_judged_by_its_softmax():
    p, q = (0.3, 0.5, 0.2), (0.6, 0.3, 0.1)
    written = greedy_first_token_law(p, q)
    assert [written[x] for x in range(3)] == pytest.approx((0.5, 1 / 3, 1 / 6))


def test_published_biases_have_the_size_that_theory_gives_them():
    p, q = (0.40, 0.25, 0.15, 0.10, 0.06, 0.04), (0.10, 0.40, 0.05, 0.30, 0.10, 0.05)
    truth = dict(enumerate(p))
    assert total_variation(first_token_law(rejection, p, q), truth) < 1e-12
    assert total_variation(
        first_token_law(softmax_of_the_clipped_difference, p, q), truth
    ) == pytest.approx(0.25, abs=0.005)
    assert total_variation(first_token_law(resample_from_p, p, q), truth) == pytest.approx(
        0.18, abs=0.005
    )
    assert total_variation(greedy_first_token_law(p, q), truth) == pytest.approx(0.375, abs=0.005)


def test_token_rejection_accepts_the_overlap_and_corrects_from_the_residual():
    def run(randomness):
        token = randomness.draw(dense(Q), 0)[0]
        verdict = rejection(Proposal((token,), dense(Q)), dense(P, P), randomness, 0)
        return "accepted" if verdict.num_accepted else verdict.token

    outcomes = law(run)
    assert outcomes["accepted"] == pytest.approx(0.6)
    assert outcomes[1] / 0.4 == pytest.approx(0.75)
    assert outcomes[2] / 0.4 == pytest.approx(0.25)


def expected_accepted(rule, p, q, k):
    def run(randomness):
        tokens = tuple(randomness.draw(dense(*[q] * k), 0))
        return rule(
            Proposal(tokens, dense(*[q] * k)), dense(*[p] * (k + 1)), randomness, 0
        ).num_accepted

    return sum(count * probability for count, probability in law(run).items())


def test_block_verification_accepts_eleven_ninths_where_token_rejection_accepts_ten():
    p, q = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
    assert expected_accepted(RULES["rejection"], p, q, 2) == pytest.approx(10 / 9)
    assert expected_accepted(RULES["block"], p, q, 2) == pytest.approx(11 / 9)


def rows(vocab_size):
    return (
        st.lists(st.integers(0, 6), min_size=vocab_size, max_size=vocab_size)
        .filter(any)
        .map(lambda weights: tuple(w / sum(weights) for w in weights))
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 3).flatmap(lambda v: st.tuples(rows(v), rows(v))), st.integers(1, 2))
def test_block_verification_never_accepts_fewer_even_with_zeros_in_p_and_q(pair, k):
    p, q = pair
    block, token = (expected_accepted(RULES[name], p, q, k) for name in ("block", "rejection"))
    assert block >= token - 1e-12
    for name in RULES:
        assert total_variation(first_token_law(RULES[name], p, q), dict(enumerate(p))) < 1e-12


@pytest.mark.parametrize("name", RULES)
def test_at_temperature_zero_every_rule_compares(name):
    p = OneHot(torch.tensor([4, 0, 2]))
    for tokens, expected in [
        ((4, 0), Verdict(2, 2)),
        ((4, 1), Verdict(1, 0)),
        ((0, 0), Verdict(0, 4)),
    ]:
        proposal = Proposal(tokens, OneHot(torch.tensor(tokens)))
        assert law(lambda r, t=proposal: RULES[name](t, p, r, 0)) == {expected: 1.0}


@pytest.mark.parametrize("name", RULES)
def test_an_empty_proposal_is_one_plain_token(name):
    assert (
        total_variation(
            law(lambda r: RULES[name](Proposal(), dense(P), r, 7).token), dict(enumerate(P))
        )
        < 1e-12
    )


def test_token_zero_is_a_token_like_any_other():
    p = OneHot(torch.tensor([0, 0]))
    assert law(lambda r: match(Proposal((0,)), p, r, 0)) == {Verdict(1, 0): 1.0}


def test_a_residual_without_mass_falls_back_to_p():
    p = q = (0.25, 0.75)

    class NeverAccept:
        def accept(self, p, q):
            return False

        def draw(self, p, position):
            assert torch.isfinite(p.p).all()
            return [int(p.p[0].argmax())]

    assert rejection(Proposal((0,), dense(q)), dense(p, p), NeverAccept(), 0) == Verdict(0, 1)
