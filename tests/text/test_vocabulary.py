"""When two vocabularies are the same, and when they only look it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.text.vocabulary import Difference, VocabularyInfo, compare

WORDS = ["the", "Ġcat", "Ġsat", "<|end|>"]


def info(strings: list[str | None], rows: int | None = None, special=(3,)) -> VocabularyInfo:
    return VocabularyInfo(strings, frozenset(special), len(strings) if rows is None else rows)


def test_the_same_tokens_in_the_same_rows_are_the_same():
    verdict = compare(info(WORDS), info(list(WORDS)))
    assert (verdict.kind, verdict.common_size) == ("same", 4)
    assert verdict.differences == ()
    assert verdict.summary == "the same vocabulary of 4 tokens"


def test_a_list_and_a_tuple_of_the_same_tokens_are_the_same():
    assert compare(info(WORDS), VocabularyInfo(tuple(WORDS), frozenset(), 4)).kind == "same"


def test_more_rows_after_the_same_tokens_are_padding_whichever_model_has_them():
    qwen = [f"t{i}" for i in range(151_665)]
    small, large = info(qwen, rows=151_936), info(qwen, rows=152_064)
    for target, draft in [(small, large), (large, small)]:
        verdict = compare(target, draft)
        assert (verdict.kind, verdict.common_size) == ("padding", 151_665)
        assert "151,665 tokens" in verdict.summary


def test_ids_listed_but_unused_are_padding_too():
    assert compare(info([*WORDS, None, None]), info(WORDS)).kind == "padding"
    assert compare(info([*WORDS, None, None]), info(WORDS, rows=6)).kind == "same"


def test_equal_sizes_prove_nothing_and_the_first_differences_are_named():
    gpt2 = ["!", "The", "a", "b", "c", "d"]
    qwen = ["!", "\t\t\t\t", "a", "x", "y", "z"]
    verdict = compare(info(gpt2, special=()), info(qwen, special=()))
    assert (verdict.kind, verdict.common_size) == ("different", 6)
    assert verdict.num_different == 4
    assert verdict.differences == (
        Difference(1, "The", "\t\t\t\t"),
        Difference(3, "b", "x"),
        Difference(4, "c", "y"),
    )
    assert not verdict.only_special
    assert (
        "4 ids differ (1 is 'The' for the target, '\\t\\t\\t\\t' for the draft" in verdict.summary
    )


@pytest.mark.parametrize("swap", [False, True])
def test_a_used_token_beyond_the_common_size_makes_them_different(swap):
    longer, shorter = info([*WORDS, "<|tool|>"], rows=8, special=(3, 4)), info(WORDS, rows=8)
    verdict = compare(shorter, longer) if swap else compare(longer, shorter)
    assert (verdict.kind, verdict.common_size, verdict.num_different) == ("different", 4, 1)
    assert verdict.only_special
    assert "unused for the " + ("target" if swap else "draft") in verdict.summary
    assert "all special tokens" in verdict.summary


def test_a_used_token_in_a_hole_of_the_other_makes_them_different():
    verdict = compare(info(["a", None, "c"], special=()), info(["a", "b", "c"], special=()))
    assert verdict.differences == (Difference(1, None, "b"),)


def test_the_same_strings_under_other_ids_are_different():
    assert compare(info(WORDS), info(WORDS[::-1])).kind == "different"


def test_a_token_without_a_row_is_not_usable():
    short = info(WORDS, rows=3)
    assert (short.size, short.largest_id, short.embedding_rows) == (3, 3, 3)
    assert compare(info(WORDS), short).differences == (Difference(3, "<|end|>", None),)


def test_the_three_numbers_of_a_model():
    qwen = info(["a", None, "c", None, None], rows=8)
    assert (qwen.size, qwen.largest_id, qwen.embedding_rows) == (3, 2, 8)
    nothing = info([None, None])
    assert (nothing.size, nothing.largest_id) == (0, -1)


vocabularies = st.lists(st.sampled_from(["a", "b", "c", None]), max_size=5)


@settings(deadline=None)
@given(
    first=vocabularies, second=vocabularies, rows=st.tuples(st.integers(0, 7), st.integers(0, 7))
)
def test_anything_but_different_means_that_every_usable_id_is_usable_by_both(first, second, rows):
    one, two = info(first, rows[0], ()), info(second, rows[1], ())
    usable = [
        {i: s for i, s in enumerate(v.strings[: v.embedding_rows]) if s is not None}
        for v in (one, two)
    ]
    verdict = compare(one, two)
    assert (verdict.kind != "different") == (usable[0] == usable[1])
    assert verdict.num_different == len(dict(usable[0].items() ^ usable[1].items()))
    assert all(max(ids, default=-1) >= verdict.common_size - 1 for ids in usable)
    assert compare(two, one).kind == verdict.kind
