"""The scripted drafter does what its script says, whatever the rounds are."""

import pytest

from draftwise.core.clock import FakeClock
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.testing.scripted import ScriptedDrafter

TEXT = [i % 50 for i in range(2000)]
SIZE = 50
STATE = Sampler(SamplingOptions(), vocab_size=SIZE).start([0])


def propose(drafter, length, k):
    return drafter.open().propose(TEXT[:length], k, STATE, KeyedNoise(0))


def said(drafter, k, end=2000):
    """What it says at every position when it is always asked for k tokens at once."""
    return [
        token
        for length in range(1, end, k)
        for token in propose(drafter, length, min(k, end - length)).tokens
    ]


@pytest.mark.parametrize("accuracy", [0.0, 0.3, 0.8, 1.0])
def test_it_is_right_as_often_as_it_is_told_to(accuracy):
    right = [
        a == b
        for a, b in zip(
            said(ScriptedDrafter(TEXT, accuracy, vocab_size=SIZE), 5), TEXT[1:], strict=True
        )
    ]
    assert sum(right) / len(right) == pytest.approx(accuracy, abs=0.035)


def test_which_tokens_are_right_does_not_depend_on_the_rounds():
    drafter = ScriptedDrafter(TEXT, 0.6, vocab_size=SIZE, seed=3)
    expected = said(drafter, 1, end=200)
    for k in (2, 3, 7, 50):
        assert said(drafter, k, end=200) == expected
    assert said(ScriptedDrafter(TEXT, 0.6, vocab_size=SIZE, seed=3), 4, end=200) == expected
    assert said(ScriptedDrafter(TEXT, 0.6, vocab_size=SIZE, seed=4), 4, end=200) != expected


def test_wrong_tokens_are_tokens_of_the_vocabulary_and_never_right():
    wrong = said(ScriptedDrafter(TEXT, 0.0, vocab_size=SIZE), 5)
    assert all(0 <= token < SIZE for token in wrong)
    assert all(a != b for a, b in zip(wrong, TEXT[1:], strict=True))
    assert len(set(wrong)) == SIZE


def test_the_smallest_vocabulary_has_one_wrong_token():
    drafter = ScriptedDrafter([0, 1, 1, 0], 0.0, vocab_size=2)
    assert drafter.open().propose([0], 3, STATE, KeyedNoise(0)).tokens == (0, 0, 1)


def test_a_reference_may_be_the_output_alone():
    whole = ScriptedDrafter(TEXT, 0.5, vocab_size=SIZE)
    output = ScriptedDrafter(TEXT[100:], 0.5, vocab_size=SIZE, prompt_length=100)
    assert propose(output, 100, 20) == propose(whole, 100, 20)
    assert propose(output, 130, 20) == propose(whole, 130, 20)
    assert propose(output, 99, 20).tokens == ()


def test_beyond_the_reference_it_proposes_nothing():
    drafter = ScriptedDrafter(TEXT[:10], 1.0, vocab_size=SIZE)
    assert propose(drafter, 8, 5).tokens == (8, 9)
    assert propose(drafter, 10, 5).tokens == ()
    assert propose(drafter, 15, 5).tokens == ()


def test_it_spends_the_time_of_its_tokens_and_counts_them_as_passes():
    clock = FakeClock()
    drafter = ScriptedDrafter(
        TEXT[:12], 0.5, vocab_size=SIZE, seconds_per_token=0.25, sleep=clock.advance
    )
    assert propose(drafter, 3, 4).passes == 4
    assert clock.now() == 1.0
    assert propose(drafter, 10, 4).passes == 2
    assert clock.now() == 1.5
    assert propose(drafter, 12, 4).passes == 0
    assert clock.now() == 1.5


def test_a_shortfall_is_of_any_size_and_says_so():
    drafter = ScriptedDrafter(TEXT, 1.0, vocab_size=SIZE, shortfall=0.5)
    proposals = [propose(drafter, length, 4) for length in range(1, 1001)]
    lengths = [len(proposal.tokens) for proposal in proposals]
    assert lengths.count(4) == pytest.approx(500, abs=60)
    assert set(lengths) == {0, 1, 2, 3, 4}
    assert all((len(p.tokens) < 4) == (p.note is not None) for p in proposals)
    always = ScriptedDrafter(TEXT, 1.0, vocab_size=SIZE, shortfall=1.0)
    assert max(len(propose(always, length, 4).tokens) for length in range(1, 200)) == 3


@pytest.mark.parametrize(
    "wrong", [{"accuracy": 1.1}, {"accuracy": -0.1}, {"shortfall": 2.0}, {"vocab_size": 1}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"probabilities|at least two"):
        ScriptedDrafter(TEXT, **{"accuracy": 0.5, "vocab_size": SIZE} | wrong)
