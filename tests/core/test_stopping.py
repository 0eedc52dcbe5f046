"""Where a block is cut: case by case, then against a reference that searches the whole text."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.core.errors import OptionError
from draftwise.core.stopping import Cut, StopConditions, cut, held_back

END, STOP = 90, 91


def conditions(*stop_strings: str, max_tokens: int = 100, min_tokens: int = 0) -> StopConditions:
    return StopConditions(
        end_ids=frozenset({END}),
        stop_ids=frozenset({STOP}),
        stop_strings=stop_strings,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
    )


def cut_pieces(*pieces: str, tail: str = "", generated: int = 0, at: StopConditions) -> Cut:
    """Cut a block whose tokens are 1, 2, 3, ..."""
    return cut(range(1, len(pieces) + 1), pieces, tail, generated, at)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("token", [END, STOP, 0])
def test_a_stopping_token_counts_first_in_the_middle_last_and_as_the_extra_token(place, token):
    block = [1, 2, 3, 4]
    block[place] = token
    at = StopConditions(end_ids=frozenset({END, 0}), stop_ids=frozenset({STOP}), max_tokens=100)
    assert cut(block, [""] * 4, "", 0, at) == Cut(place + 1, "stop", token)


def test_without_a_reason_the_whole_block_stands():
    assert cut_pieces("a", "b", at=conditions("c")) == Cut(2)
    assert cut([], [], "", 0, conditions()) == Cut(0)


def test_ignoring_end_tokens_is_having_none():
    assert cut([END, 1], ["", "a"], "", 0, StopConditions(max_tokens=9)) == Cut(2)


def test_text_after_a_stop_string_inside_one_token_is_dropped():
    assert cut_pieces("a", "bc\n\nd", at=conditions("\n\n")) == Cut(2, "stop", "\n\n", 3)


def test_a_stop_string_may_begin_in_the_text_of_earlier_blocks():
    assert cut_pieces("p", ">x", tail="so <sto", at=conditions("<stop>")) == Cut(
        2, "stop", "<stop>", 3
    )


def test_what_was_complete_before_the_block_is_not_found_again():
    assert cut_pieces("a", "b", tail="stop", at=conditions("stop")) == Cut(2)


def test_tokens_without_text_neither_stop_nor_hide_what_surrounds_them():
    assert cut_pieces("s", "", "t", at=conditions("st")) == Cut(3, "stop", "st", 0)


def test_of_two_strings_in_one_token_the_first_in_the_text_counts_whatever_the_order_given():
    for strings in [("cd", "bc"), ("bc", "cd")]:
        assert cut_pieces("abcd", at=conditions(*strings)) == Cut(1, "stop", "bc", 1)


def test_of_two_strings_that_begin_together_the_shorter_is_complete_first():
    assert cut_pieces("abc", at=conditions("abc", "ab")) == Cut(1, "stop", "ab", 0)


def test_the_earlier_token_decides_before_the_earlier_character_does():
    assert cut_pieces("abc", "d", at=conditions("abcd", "c")) == Cut(1, "stop", "c", 2)


def test_a_stop_within_the_budget_beats_the_length_and_none_is_found_beyond_it():
    at = conditions("c", max_tokens=7)
    assert cut_pieces("a", "c", "x", generated=5, at=at) == Cut(2, "stop", "c", 1)
    assert cut([1, END], ["a", ""], "", 5, at) == Cut(2, "stop", END)
    assert cut_pieces("a", "b", "c", generated=5, at=at) == Cut(2, "length")
    assert cut([1, 2, END], ["a", "b", ""], "", 5, at) == Cut(2, "length")


def test_a_spent_budget_lets_nothing_stand():
    assert cut_pieces("a", generated=3, at=conditions(max_tokens=3)) == Cut(0, "length")


def test_a_stop_token_that_completes_a_stop_string_is_named_and_its_text_still_ends_before():
    assert cut([STOP], ["a\n"], "", 0, conditions("\n")) == Cut(1, "stop", STOP, 1)


def test_nothing_stops_before_the_least_number_of_tokens_counted_in_tokens():
    at = conditions("a", min_tokens=3)
    assert cut([1, END, STOP, 4], ["a", "", "", ""], "", 0, at) == Cut(3, "stop", STOP)
    assert cut_pieces("a", "a", "b", at=at) == Cut(3)  # passed over, not remembered
    assert cut_pieces("a", "a", "a", at=at) == Cut(3, "stop", "a", 2)
    assert cut_pieces("a", generated=2, at=at) == Cut(1, "stop", "a", 0)


def test_a_string_that_begins_before_the_least_number_of_tokens_may_end_after_it():
    assert cut_pieces("x<", ">", at=conditions("<>", min_tokens=2)) == Cut(2, "stop", "<>", 1)


def test_the_length_holds_even_below_the_least_number_of_tokens():
    assert cut_pieces("a", "b", at=conditions(max_tokens=1, min_tokens=5)) == Cut(1, "length")


def test_an_empty_stop_string_and_negative_counts_are_refused():
    with pytest.raises(OptionError, match="stop string is empty"):
        conditions("a", "")
    with pytest.raises(OptionError, match="max_tokens is -1"):
        conditions(max_tokens=-1)
    with pytest.raises(OptionError, match="min_tokens is -2"):
        conditions(min_tokens=-2)


def test_a_block_without_the_text_of_each_token_is_refused():
    with pytest.raises(ValueError, match="2 tokens, but 1 pieces"):
        cut([1, 2], ["a"], "", 0, conditions())


def test_another_budget_changes_nothing_else():
    at = conditions("a", min_tokens=2)
    assert at.with_max_tokens(5) == conditions("a", min_tokens=2, max_tokens=5)


@pytest.mark.parametrize(
    ("text", "strings", "held"),
    [
        ("ab<", ("<stop>",), 1),
        ("ab<sto", ("<stop>",), 4),
        ("ab<stop>", ("<stop>",), 0),  # complete: it was a stop, or passed over
        ("ab<stx", ("<stop>",), 0),
        ("aab", ("aabaac",), 3),
        ("aabaab", ("aabaac",), 3),  # a false start may hold the next start
        ("xa", ("ab", "xac"), 2),
        ("", ("ab",), 0),
        ("ab", (), 0),
        ("a", ("a",), 0),
    ],
)
def test_a_stream_holds_back_what_may_become_a_stop_string_and_no_more(text, strings, held):
    assert held_back(text, strings) == held


LETTERS = "ab"
strings = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3).map(tuple)


@settings(deadline=None)
@given(text=st.text(LETTERS, max_size=12), stop_strings=strings)
def test_held_back_is_the_longest_suffix_that_is_a_proper_prefix(text, stop_strings):
    proper = {s[:n] for s in stop_strings for n in range(len(s))} | {""}
    longest = max(n for n in range(len(text) + 1) if text[len(text) - n :] in proper)
    assert held_back(text, stop_strings) == longest


@dataclass(frozen=True)
class Outcome:
    ids: list[int]
    text: str
    reason: str | None
    matched: int | str | None


def naive(ids: list[int], pieces: list[str], at: StopConditions) -> Outcome:
    """One token at a time, with a search of the whole text for whatever just became complete."""
    text = ""
    for n, (token, piece) in enumerate(zip(ids, pieces, strict=True), start=1):
        before, text = len(text), text + piece
        found = [
            (start, len(s), s)
            for s in at.stop_strings
            for start in range(len(text))
            if text.startswith(s, start) and start + len(s) > before
        ]
        by_id = token in at.end_ids | at.stop_ids
        if n >= at.min_tokens and (found or by_id):
            start, _, string = min(found, default=(len(text), 0, None))
            return Outcome(ids[:n], text[:start], "stop", token if by_id else string)
        if n == at.max_tokens:
            return Outcome(ids[:n], text, "length", None)
    return Outcome(ids, text, None, None)


def stream(blocks: list[list[tuple[int, str]]], at: StopConditions) -> tuple[Outcome, list[str]]:
    """What a stream makes of blocks: only the text it still holds back is the next block's tail."""
    ids: list[int] = []
    deltas: list[str] = []
    held, verdict = "", Cut(0)
    for block in blocks:
        tokens, pieces = [token for token, _ in block], [piece for _, piece in block]
        verdict = cut(tokens, pieces, held, len(ids), at)
        ids += tokens[: verdict.num_tokens]
        text = held + "".join(pieces[: verdict.num_tokens])
        if verdict.reason:
            deltas.append(text[: verdict.text_end])
            break
        ready = len(text) - held_back(text, at.stop_strings)
        deltas.append(text[:ready])
        held = text[ready:]
    else:
        deltas.append(held)
    return Outcome(ids, "".join(deltas), verdict.reason, verdict.matched), deltas


token_and_piece = st.tuples(
    st.one_of(st.integers(0, 9), st.sampled_from([END, STOP])), st.text(LETTERS, max_size=3)
)


@settings(deadline=None)
@given(
    blocks=st.lists(st.lists(token_and_piece, min_size=1, max_size=6), min_size=1, max_size=6),
    stop_strings=strings,
    max_tokens=st.integers(1, 30),
    min_tokens=st.integers(0, 12),
    by_id=st.booleans(),
)
def test_blocks_of_any_size_end_where_a_walk_token_by_token_ends(
    blocks, stop_strings, max_tokens, min_tokens, by_id
):
    at = StopConditions(
        end_ids=frozenset({END}) if by_id else frozenset(),
        stop_ids=frozenset({STOP}) if by_id else frozenset(),
        stop_strings=stop_strings,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
    )
    flat = [pair for block in blocks for pair in block]
    expected = naive([token for token, _ in flat], [piece for _, piece in flat], at)
    outcome, _ = stream(blocks, at)
    assert outcome == expected
    assert stream([[pair] for pair in flat], at)[0] == expected
    assert stream([flat], at)[0] == expected


@settings(deadline=None)
@given(
    blocks=st.lists(st.lists(token_and_piece, min_size=1, max_size=4), min_size=1, max_size=8),
    stop_strings=strings,
)
def test_every_block_delivers_at_once_all_that_cannot_start_a_stop_string(blocks, stop_strings):
    outcome, deltas = stream(blocks, StopConditions(stop_strings=stop_strings, max_tokens=100))
    text, sent = "", ""
    for block, delta in zip(blocks, deltas[:-1], strict=False):
        text += "".join(piece for _, piece in block)
        sent += delta
        assert sent == text[: len(text) - held_back(text, stop_strings)]
    assert "".join(deltas) == outcome.text
    assert not any(string in outcome.text for string in stop_strings)
