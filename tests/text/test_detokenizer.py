"""Text as it grows, on real tokenizers of both kinds.

The oracle knows the bytes of every token (`Rig.certain`) and says after each what is certain.
"""

import codecs
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_rigs import BYTE_FALLBACK, BYTE_LEVEL, LINES, Rig

from draftwise.text.detokenizer import Detokenizer

BAD = "\ufffd"
both = pytest.mark.parametrize("rig", [BYTE_LEVEL, BYTE_FALLBACK], ids=["bytes", "fallback"])

texts = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "👩\u200d👩\u200d👧",
                "👍🏽",
                "你好",
                "世界",
                "한국어",
                "e\u0301",
                "\u0301",
                "ﷺ",
                "\U0001d518",
            ]
        ),
        st.sampled_from([" ", "  ", "\n    ", "\t", " the", "the", "x1234567890", "\r\n"]),
        st.sampled_from(["<|end|>", "</s>", "<0x41>", "<s", "▁", BAD, BAD * 4, f" {BAD} a"]),
        st.text(max_size=6),
    ),
    max_size=12,
).map("".join)


def bytes_as_tokens(raw: bytes) -> list[int]:
    """Tokens of one byte each."""
    return [BYTE_LEVEL.token_bytes.index(bytes([byte])) for byte in raw]


def run(rig: Rig, ids: Sequence[int], context: Sequence[int] = ()) -> tuple[list[str], str]:
    """The pieces of all tokens, and what is left at the end."""
    detokenizer = rig.detokenizer()
    state, pieces = detokenizer.start(context), []
    for token in ids:
        state, piece = detokenizer.advance(state, token)
        pieces.append(piece)
    return pieces, detokenizer.flush(state)


def test_the_rigs_are_what_they_claim():
    def ends_inside_a_character(raw: bytes) -> bool:
        reader = codecs.getincrementaldecoder("utf-8")()
        try:
            return bool(reader.decode(raw)) and bool(reader.getstate()[0])
        except UnicodeDecodeError:
            return False

    assert any(map(ends_inside_a_character, BYTE_LEVEL.token_bytes))
    assert BYTE_FALLBACK.decode(BYTE_FALLBACK.encode(" the")) == " the"
    assert len(BYTE_FALLBACK.encode("👍")) == 5
    for rig in (BYTE_LEVEL, BYTE_FALLBACK):
        for line in LINES:
            assert rig.decode(rig.encode(line)) == line


@both
@settings(deadline=None)
@given(text=texts)
@example(text=f"{BAD}好{BAD}{BAD}的👍{BAD}")
@example(text="你好" * 30)
def test_joined_pieces_are_the_decoded_text(rig, text):
    ids = rig.encode(text)
    pieces, rest = run(rig, ids)
    assert "".join(pieces) + rest == rig.decode(ids)


@both
@settings(deadline=None)
@given(text=texts.map(lambda text: text.replace(BAD, "")))
def test_every_token_delivers_all_its_complete_characters_and_no_part_of_one(rig, text):
    ids = rig.encode(text)
    pieces, rest = run(rig, ids)
    strip = int(rig is BYTE_FALLBACK)
    sent = ""
    for piece, certain in zip(pieces, rig.certain(ids), strict=True):
        sent += piece
        assert sent == certain[strip:]
    assert rest == ""


@both
@settings(deadline=None)
@given(text=texts)
def test_replacement_characters_of_the_text_itself_wait_for_three_tokens_at_most(rig, text):
    ids = rig.encode(text)
    pieces, _ = run(rig, ids)
    certain = ["", "", "", *rig.certain(ids)]
    for i in range(len(ids)):
        early = certain[i].removeprefix(" ") if rig is BYTE_FALLBACK else certain[i]
        assert "".join(pieces[: i + 1]).startswith(early)


@settings(deadline=None)
@given(
    ids=st.lists(
        st.one_of(
            st.integers(0, len(BYTE_LEVEL.token_bytes) - 1),
            st.sampled_from(BYTE_LEVEL.encode("👍你" + BAD)),
        ),
        max_size=40,
    )
)
def test_any_tokens_at_all_give_the_decoded_text_byte_for_byte(ids):
    pieces, rest = run(BYTE_LEVEL, ids)
    assert "".join(pieces) + rest == BYTE_LEVEL.decode(ids)
    certain = ["", "", "", *BYTE_LEVEL.certain(ids)]
    visible = [i for i in range(len(ids)) if ids[i] not in BYTE_LEVEL.special]
    for n, i in enumerate(visible):
        late = visible[n - 3] + 3 if n >= 3 else 0
        assert "".join(pieces[: i + 1]).startswith(certain[late])


@both
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_the_window_stays_small_whatever_comes(rig, data):
    token = st.integers(0, len(rig.token_bytes) - 1)
    pattern = data.draw(st.lists(token, min_size=1, max_size=5))
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return rig.decode(ids)

    for skipped in (rig.special, frozenset()):
        detokenizer = Detokenizer(decode, skipped)
        state = detokenizer.start()
        for step in range(60):
            state, _ = detokenizer.advance(state, pattern[step % len(pattern)])
    assert longest <= 20


@both
@pytest.mark.parametrize("text", [BAD * 40, "好" * 40, "👍" * 20, "x" * 100, "的" + BAD * 40])
def test_text_without_spaces_and_text_of_replacement_characters_never_stalls(rig, text):
    ids = rig.encode(text)
    pieces, _ = run(rig, ids)
    # The first token of the fallback rig is the space that its decoder drops.
    waits = "".join("x" if piece else "." for piece in pieces[1:]).split("x")
    assert max(map(len, waits)) <= 3


def test_a_character_that_follows_broken_bytes_is_whole():
    ids = [*bytes_as_tokens(b"\xff" * 5), *BYTE_LEVEL.encode("好 the")]
    pieces, rest = run(BYTE_LEVEL, ids)
    assert "".join(pieces) + rest == BAD * 5 + "好 the"


def test_text_flows_even_where_no_token_ends_with_a_character():
    vocabulary = [b"\xe5", b"\xa5", b"\xbd\xe5"]  # 好 is e5 a5 bd
    detokenizer = Detokenizer(
        lambda ids: b"".join(vocabulary[i] for i in ids).decode(errors="replace")
    )
    state, piece = detokenizer.advance(detokenizer.start(), 0)
    for _ in range(30):
        state, piece = detokenizer.advance(state, 1)
        assert piece == ""
        state, piece = detokenizer.advance(state, 2)
        assert piece == "好"
    assert detokenizer.flush(state) == BAD


def test_an_incomplete_last_character_is_flushed_and_what_is_out_stays_as_it_is():
    good = "好".encode()
    pieces, rest = run(BYTE_LEVEL, bytes_as_tokens(b"a" + good + good[:2]))
    assert ("".join(pieces), rest) == ("a好", BAD)
    # Here decode takes back the first 好 as well: the run of bytes as a whole is not UTF-8.
    ids = [3 + byte for byte in good + good[:2]]
    assert BYTE_FALLBACK.decode(ids) == BAD * 5
    pieces, rest = run(BYTE_FALLBACK, ids)
    assert ("".join(pieces), rest) == ("好", BAD * 2)


@both
@pytest.mark.parametrize("generated", [" the fox", "  the", "\n the", "the", "好 the"])
def test_with_a_context_the_first_word_keeps_its_space(rig, generated):
    prompt = rig.encode("The quick 👍")
    whole = rig.encode("The quick 👍" + generated)
    assert whole[: len(prompt)] == prompt
    pieces, rest = run(rig, whole[len(prompt) :], context=prompt)
    assert "".join(pieces) + rest == generated


def test_a_context_of_special_tokens_alone_is_none():
    ids = BYTE_FALLBACK.encode("the")
    assert "".join(run(BYTE_FALLBACK, ids, context=[1, 2])[0]) == "the"


@both
def test_special_tokens_between_the_bytes_of_a_character_do_not_break_it(rig):
    ids = rig.encode("a👍 the")
    mixed = [token for i in ids for token in (i, 1, 1, 1, 1)]
    pieces, rest = run(rig, mixed)
    assert "".join(pieces) + rest == "a👍 the"


def test_special_tokens_shown_as_text_are_text():
    detokenizer = Detokenizer(lambda ids: BYTE_LEVEL.raw.decode(ids, skip_special_tokens=False))
    state, piece = detokenizer.advance(detokenizer.start(), 0)
    assert piece == "<|end|>"
    assert detokenizer.advance(state, 1)[1] == "<|user|>"


@both
def test_a_dropped_branch_leaves_no_trace(rig):
    detokenizer = rig.detokenizer()
    *shared, last = rig.encode("a🦊")
    state = detokenizer.start()
    for token in shared:
        state, _ = detokenizer.advance(state, token)
    first = detokenizer.advance(state, last)
    dropped = detokenizer.advance(state, rig.encode("b")[-1])
    assert detokenizer.advance(state, last) == first != dropped
    assert first[1] == "🦊"
