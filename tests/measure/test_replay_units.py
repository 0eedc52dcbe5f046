"""Replay against a loop that decides token by token, on foresight of every kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.core.counters import RoundCount
from draftwise.measure.records import AgreementRecord, Conditions, Foresight, PromptRef
from draftwise.measure.replay import replay

LONGEST = 6


def kept_of(guess, rest):
    """What a record keeps of a guess: as far as the text goes, cut behind the first refused token."""
    kept = []
    for said, written in zip(guess, rest, strict=False):
        kept.append(said)
        if said != written:
            break
    return tuple(kept)


def record_of(text, guesses, max_tokens, passes_per_token=1):
    foresight = tuple(
        Foresight(tokens=kept_of(guess, text[at:]), drafted=len(guess))
        for at, guess in enumerate(guesses)
    )
    return AgreementRecord(
        conditions=Conditions(target="toy", machine="a machine", threads=1),
        drafter="draft",
        prompt=PromptRef(workload="prose", index=0, sha256="", tokens=4),
        seed=0,
        token_ids=tuple(text),
        max_tokens=max_tokens,
        foresight=foresight,
        longest=LONGEST,
        passes_per_token=passes_per_token,
    )


def brute_force(text, guesses, max_tokens, k):
    """Rounds as the loop makes them, from whole guesses: the target writes `text` and stops at its end."""
    rounds, at = [], 0
    while at < len(text):
        guess = guesses[at][: min(k, max_tokens - at - 1)]
        accepted = 0
        while accepted < len(guess) and at + accepted < len(text):
            if guess[accepted] != text[at + accepted]:
                break
            accepted += 1
        emitted = accepted if at + accepted == len(text) else accepted + 1
        rounds.append(RoundCount(len(guess), accepted, emitted, len(guess)))
        at += emitted
    return rounds


@st.composite
def stories(draw):
    text = draw(st.lists(st.integers(0, 2), min_size=1, max_size=24))
    guesses = []
    for at in range(len(text)):
        right = [*text[at:], *draw(st.lists(st.integers(0, 2), min_size=LONGEST, max_size=LONGEST))]
        guess = right[: draw(st.integers(0, LONGEST))]
        for i in range(len(guess)):
            if draw(st.integers(0, 3)) == 0:
                guess[i] = draw(st.integers(0, 2))
        guesses.append(guess)
    return text, guesses, len(text) + draw(st.integers(0, 3))


@given(stories(), st.integers(0, LONGEST))
def test_replayed_rounds_are_those_of_a_loop_that_decides_token_by_token(story, k):
    text, guesses, max_tokens = story
    rounds = replay(record_of(text, guesses, max_tokens), k)
    assert rounds == brute_force(text, guesses, max_tokens, k)
    assert sum(r.emitted for r in rounds) == len(text)


@given(stories())
def test_no_token_drafted_is_plain_decoding(story):
    text, guesses, max_tokens = story
    assert replay(record_of(text, guesses, max_tokens), 0) == [RoundCount(0, 0, 1)] * len(text)


def test_a_perfect_drafter_fills_every_round_and_drafts_no_token_beyond_the_budget():
    text = list(range(10))
    guesses = [(text + [99] * LONGEST)[at : at + LONGEST] for at in range(10)]
    rounds = replay(record_of(text, guesses, max_tokens=10), 3)
    assert rounds == [RoundCount(3, 3, 4, 3), RoundCount(3, 3, 4, 3), RoundCount(1, 1, 2, 1)]


def test_a_drafter_without_a_model_makes_no_passes():
    rounds = replay(record_of([1, 2], [[1], []], 2, passes_per_token=0), 2)
    assert rounds == [RoundCount(1, 1, 2, 0)]


@pytest.mark.parametrize("k", [-1, LONGEST + 1])
def test_a_k_that_the_record_knows_nothing_of_is_refused(k):
    with pytest.raises(ValueError, match="up to 6 tokens"):
        replay(record_of([1], [[]], 1), k)
