"""Prompt lookup: the longest match, of equals the last one, and copies that run into themselves."""

import math
from contextlib import suppress
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftwise.core.noise import KeyedNoise
from draftwise.drafters.copying import chance
from draftwise.drafters.lookup import PromptLookup
from tests.decoding.rig import letters, naive_lookup, request, tokens_of


def proposed(text, k=4, session=None, vocab_size=26, **settings):
    ids = tokens_of(text) if isinstance(text, str) else text
    session = session or PromptLookup(**settings).open()
    state = request(ids or [0], vocab_size=vocab_size).sampler.start(ids)
    return session.propose(ids, k, state, KeyedNoise(1))


def copied(text, k=4, **settings):
    return letters(proposed(text, k, **settings).tokens)


def test_what_followed_the_same_words_last_time_is_proposed():
    assert copied("thecatsatonthe", k=3) == "cat"


def test_nothing_is_proposed_where_nothing_matches():
    assert copied("abcdef") == ""
    assert copied("") == copied("a") == copied("ab") == ""
    assert proposed("abcdef").note is None


def test_a_match_needs_its_shortest_length():
    assert copied("xaybza", k=1) == ""
    assert copied("xaybza", k=1, shortest=1) == "y"
    assert copied("xabyabzab", k=1, shortest=3) == ""
    assert copied("abc", k=2, shortest=5) == ""


def test_the_longest_match_wins_over_a_more_recent_one():
    assert copied("abcdXbcdYabcd".lower(), k=1) == "x"


def test_among_matches_of_equal_length_the_most_recent_wins():
    assert copied("abxabyabzab", k=1) == "z"


def test_matches_are_compared_up_to_the_longest_length_only():
    text = "pqabxrsabypqab"
    assert copied(text, k=1, longest=4) == "x"
    assert copied(text, k=1, longest=2) == "y"


@pytest.mark.parametrize("k", [1, 3, 7, 20])
def test_a_repeating_pattern_is_proposed_whole(k):
    assert copied("xyabcabc", k=k) == ("abc" * 7)[:k]
    assert copied("zaaa", k=k) == "a" * k
    assert copied("qababab", k=k) == ("ab" * 10)[:k]


def test_a_copy_that_reaches_the_end_goes_on_into_itself():
    assert copied("abqab", k=9) == "qabqabqab"


def test_the_prompts_ids_that_no_logit_stands_for_end_a_copy():
    image = 900
    assert proposed([1, 2, 3, image, 4, 1, 2]).tokens == (3,)
    assert proposed([1, 2, image, 4, 1, 2]).tokens == ()


def test_it_needs_no_passes_and_no_distribution():
    proposal = proposed("thecatsatonthe")
    assert (proposal.passes, proposal.q) == (0, None)


def test_confidence_grows_with_the_match_and_along_the_copy():
    proposal = proposed("thecatsatonthe")
    assert proposal.confidence == tuple(chance(1, 1, 3, i) for i in range(4))
    assert proposed("hecatsatonzhe").confidence < proposal.confidence


@pytest.mark.parametrize(("shortest", "longest"), [(0, 4), (5, 4), (-1, -1)])
def test_lengths_that_make_no_sense_are_refused(shortest, longest):
    with pytest.raises(ValueError, match="makes no sense"):
        PromptLookup(shortest, longest)


# Few different tokens, so that matches abound and patterns repeat.
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def searched(ids, k, shortest):
    """The same by searching the whole text anew for every token."""
    text = list(ids)
    while len(text) < len(ids) + k and (token := naive_lookup(text, shortest)) is not None:
        text.append(token)
    return tuple(text[len(ids) :])


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(0, 6), st.integers(1, 4))
def test_it_finds_what_a_naive_search_finds(ids, k, shortest):
    session = PromptLookup(shortest, longest=100).open()
    assert proposed(ids, k, session).tokens == searched(ids, k, shortest)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), TEXTS), max_size=8), st.integers(1, 3))
@example([(0, [0, 0, 0, 0]), (2, [1, 0, 0]), (1, [0])], 2)
def test_the_index_is_right_after_any_rollback_to_another_sequence(changes, shortest):
    session, ids = PromptLookup(shortest, longest=100).open(), []
    for keep, new in changes:
        ids = ids[:keep] + new
        assert proposed(ids, 4, session).tokens == searched(ids, 4, shortest)


class Interrupted(dict):
    """An index at which Ctrl-C comes when it has been asked so many times."""

    left = math.inf

    def __getitem__(self, key):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.setdefault(key, [])


@pytest.mark.parametrize("left", range(1, 200, 7))
def test_an_interrupt_half_way_through_indexing_leaves_no_wrong_index(left):
    chance = Random(3)
    text = [chance.randrange(3) for _ in range(60)]
    other = [*text[:20], *(chance.randrange(3) for _ in range(60))]
    session = PromptLookup(shortest=1).open()
    session._ends = Interrupted()
    session._ends.left = left
    with suppress(KeyboardInterrupt):
        session.prefill(text)
        session.prefill(other)
    session._ends.left = math.inf
    for ids in (text, other, text[:30]):
        assert proposed(ids, 4, session).tokens == proposed(ids, 4, shortest=1).tokens


def test_an_index_forgets_what_a_session_of_many_requests_no_longer_holds():
    session, chance = PromptLookup().open(), Random(1)
    for _ in range(300):
        session.prefill([chance.randrange(1000) for _ in range(50)])
    assert sum(map(len, session._ends.values())) == 49
    assert len(session._ends) <= 49


def test_a_phrase_that_is_very_common_is_found_without_a_look_at_every_place():
    ids = [1, 2] * 20_000
    session = PromptLookup(longest=16).open()
    session.prefill(ids)
    compared = 0
    original = session._match_length

    def counted_length(text, end):
        nonlocal compared
        compared += 1
        return original(text, end)

    session._match_length = counted_length
    assert proposed(ids, 3, session).tokens == (1, 2, 1)
    assert compared <= 100
