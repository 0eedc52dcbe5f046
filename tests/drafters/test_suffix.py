"""The suffix drafter: what followed most often in the text, and the array that finds it."""

from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.core.lookahead import LONGEST
from draftwise.drafters import suffix_array
from draftwise.drafters.copying import chance
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.drafters.suffix_array import SuffixArray
from draftwise.drafters.suffix_memory import DEPTH, END, SuffixMemory
from tests.decoding.rig import letters
from tests.drafters.copies import copied, in_order, proposed

# Few different tokens, so that matches abound and patterns repeat.
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)
ALL = 1000


def test_what_followed_the_same_words_is_proposed():
    assert copied("thecatsatonthe", k=3) == "cat"


def test_nothing_is_proposed_where_nothing_matches():
    assert copied("abcdef") == copied("") == copied("a") == copied("ab") == ""
    assert copied("abcab", k=0) == ""


def test_the_more_frequent_continuation_wins_over_the_more_recent_one():
    assert copied("qabxqabxqabyqab", k=1) == "x"


def test_of_equally_frequent_continuations_that_of_the_longer_match_wins_then_the_last():
    assert copied("qabxzabyqab", k=1) == "x"
    assert copied("abxabyab", k=1) == "y"


def test_a_short_match_of_many_places_wins_over_a_longer_one_of_a_single_place():
    """One place shares three tokens and says x; six share two of them and say y, and go on alike."""
    text = "qabx" + "abyhh" * 6 + "qab"
    assert copied(text, k=1) == "y"
    assert copied(text, k=3) == "yhh"
    assert copied("qabx" + "caby" + "qab", k=1) == "x"


@pytest.mark.parametrize("k", [1, 3, 7, 20])
def test_a_repeating_pattern_is_proposed_whole(k):
    assert copied("xyabcabcabcabc", k=k) == ("abc" * 7)[:k]
    assert copied("z" + "a" * 20, k=k) == "a" * k


def test_a_copy_from_one_place_is_as_long_as_its_match_allows():
    text = [*range(200)]
    for least, factor in ((0.2, 2.0), (0.5, 0.5)):
        for matched in (2, 4, 6):
            proposal = proposed(text + text[:matched], 99, least=least - 1e-9, vocab_size=200)
            assert len(proposal.tokens) == factor * matched
    assert proposed([1, 2, 3, 1, 2], least=1.0).tokens == ()


def test_confidence_is_the_tempered_frequency_of_each_token():
    proposal = proposed("abcdxabceyab", k=2, least=0.0)
    assert letters(proposal.tokens) == "ce"
    assert proposal.confidence == (chance(2, 2, 2, 0), chance(1, 2, 2, 1))


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 20), st.integers(0, 20))
def test_a_chance_is_a_probability_and_grows_with_all_that_speaks_for_a_token(
    a, n, matched, copied
):
    agreeing = min(a, n)
    here = chance(agreeing, n, matched, copied)
    assert 0 < here < 1
    assert here < chance(agreeing + 1, n + 1, matched, copied)
    assert here < chance(agreeing, n, matched + 1, copied)
    assert here < chance(agreeing, n, matched, copied + 1)


def test_it_needs_no_passes_and_no_distribution():
    proposal = proposed("thecatsatonthe")
    assert (proposal.passes, proposal.q, proposal.note) == (0, None, None)


def test_ids_that_no_logit_stands_for_end_a_copy():
    image = 900
    assert proposed([1, 2, 3, image, 4, 1, 2], least=0.0).tokens == (3,)
    assert proposed([1, 2, image, 4, 1, 2], least=0.0).tokens == ()


@pytest.mark.parametrize("options", [{"places": 0}, {"least": -0.1}, {"least": 1.1}])
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match="no sense"):
        SuffixDrafter(**options)


def counted(texts, ids, k, least):
    """The same by counting, for each length of match, what followed it anywhere in the texts.

    texts: the sequence itself first, then earlier answers. Each continuation goes on from where those
    that agreed so far ended.
    """
    best = (0.0, ())
    for length in range(min(len(ids), DEPTH), 0, -1):
        places = [
            (text, i)
            for text in texts
            for i in range(length, len(text) + (text is not ids))
            if text[i - length : i] == ids[-length:]
        ]
        tokens, survival, expected = [], 1.0, 0.0
        while places and len(tokens) < max(k, LONGEST):  # compared at one length, whatever k is
            grown = ids + tokens
            said = [(text, i, grown[i] if text is ids else [*text, END][i]) for text, i in places]
            votes = Counter(token for _, _, token in said)
            token, num = votes.most_common(1)[0]
            if list(votes.values()).count(num) > 1:
                return None  # a tie: which wins is told elsewhere
            survival *= chance(num, len(said), length, len(tokens))
            if survival < least or token == END:
                break
            tokens.append(token)
            expected += survival
            places = [(text, i + 1) for text, i, said_token in said if said_token == token]
        best = max(best, (expected, tuple(tokens)), key=lambda found: found[0])
    return best[1][:k]


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=3), st.integers(0, 6), st.sampled_from([0.0, 0.15, 0.4]))
def test_it_proposes_what_a_naive_counter_of_continuations_expects_most_of(ids, answers, k, least):
    memory = SuffixMemory("toy")
    for text in answers:
        memory.add(text)
    session = SuffixDrafter(places=ALL, least=least, memory=memory).open()
    expected = counted([ids, *answers], ids, k, least)
    if expected is not None:
        assert proposed(ids, k, session).tokens == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), TEXTS), max_size=8))
def test_a_session_is_as_good_as_a_fresh_one_after_any_change_of_sequence(changes):
    session, ids = SuffixDrafter(places=3).open(), []
    for keep, new in changes:
        ids = ids[:keep] + new
        assert proposed(ids, session=session) == proposed(ids, places=3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60), TEXTS), max_size=6))
def test_a_suffix_array_stays_in_order_wherever_it_is_cut(changes):
    array = SuffixArray(3)
    for start, length, new in changes:
        array.cut(min(start, len(array.tokens)), min(start + length, len(array.tokens)))
        assert in_order(array)
        array.extend(new)
        assert in_order(array)


@pytest.mark.parametrize("left", range(1, 60, 4))
def test_an_interrupt_half_way_through_reading_leaves_no_wrong_order(left, monkeypatch):
    chance = Random(3)
    text = [chance.randrange(3) for _ in range(200)]
    other = [*text[:190], *(chance.randrange(3) for _ in range(4))]
    session, calls = SuffixDrafter(places=3).open(), 0
    past = SuffixArray._past

    def interrupted(array, place):
        nonlocal calls
        calls += 1
        if calls == left:
            raise KeyboardInterrupt
        return past(array, place)

    session.prefill(text)
    monkeypatch.setattr(SuffixArray, "_past", interrupted)
    with suppress(KeyboardInterrupt):
        session.prefill(other)
    calls = left
    for ids in (other, text, text[:30]):
        assert proposed(ids, session=session) == proposed(ids, places=3)


@pytest.mark.parametrize("period", [1, 2, 50])
def test_a_hundred_thousand_tokens_that_repeat_are_searched_without_a_look_at_all(
    period, monkeypatch
):
    ids = [i % period for i in range(100_000)]
    session, looks = SuffixDrafter().open(), 0
    session.prefill(ids[:-1])
    past = SuffixArray._past

    def counting(array, place):
        nonlocal looks
        looks += 1
        return past(array, place)

    monkeypatch.setattr(SuffixArray, "_past", counting)
    assert proposed(ids, 16, session, vocab_size=50).tokens == tuple(
        i % period for i in range(100_000, 100_016)
    )
    assert looks < 150  # ranking one token, ranking the context, 32 places on either side of it
    assert len(session._array._places) == 100_000


def test_both_ways_of_ranking_give_the_same_order(monkeypatch):
    chance, arrays = Random(5), []
    text = [chance.randrange(3) for _ in range(500)]
    for worth_sorting in (0, 10**9):
        monkeypatch.setattr(suffix_array, "_WORTH_SORTING", worth_sorting)
        array = SuffixArray(DEPTH)
        array.extend(text[:200])
        array.extend(text[200:])
        arrays.append(array._places)
    assert arrays[0] == arrays[1]
