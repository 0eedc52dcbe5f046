"""Tokens as bytes, and text as tokens that go on from a text: what vocabularies have in common.

Vocabularies store tokens in a spelling of their own: byte-level ones write each byte as a printable
letter ("Ġthe"), sentencepiece ones write a space as "▁" and lone bytes as "<0x0A>". Added tokens are
stored as they read.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain

from draftwise.text.tokenizer import Tokenizer

_LONE_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ANCHOR = "\n"


class Spelling:
    """The bytes of a tokenizer's tokens.

    bytes: of every id; None for an unused one. special: ids of special tokens. lone: id of each byte
    that is a token of its own. Ids from `size` on are left out of all three, and of continuations: a
    tokenizer may know more ids than its model has rows.
    """

    def __init__(self, tokenizer: Tokenizer, size: int | None = None) -> None:
        self.tokenizer = tokenizer
        spell = _from_byte_letters if tokenizer.byte_level else _from_sentencepiece
        added = tokenizer.added_ids
        self._all = [
            None if string is None else string.encode() if i in added else spell(string)
            for i, string in enumerate(tokenizer.token_strings())
        ]
        self.bytes: Sequence[bytes | None] = self._all[:size]
        self.special = frozenset(i for i in tokenizer.special_ids if i < len(self.bytes))
        self.lone = {b[0]: i for i, b in enumerate(self.bytes) if b is not None and len(b) == 1}

    def join(self, ids: Sequence[int]) -> bytes:
        """Bytes of a sequence, special tokens as they read."""
        return b"".join(self._all[i] or b"" for i in ids)

    def continuation(self, text: str) -> list[int]:
        """Tokens of text that goes on from earlier text, none of them special."""
        ids, known = self._continued(text), len(self.bytes)
        spelled = ([i] if i < known else self.lone_bytes(self._all[i] or b"") for i in ids)
        return [*chain.from_iterable(spelled)]

    def lone_bytes(self, spelled: bytes) -> list[int]:
        """Tokens of one byte each, as far as the vocabulary has them."""
        return [self.lone[byte] for byte in spelled if byte in self.lone]

    def _continued(self, text: str) -> list[int]:
        ids = self.tokenizer.encode_plain(text)
        if self.join(ids) == text.encode():
            return ids
        before = self.tokenizer.encode_plain(_ANCHOR)  # it puts a space before every text
        after = self.tokenizer.encode_plain(_ANCHOR + text)
        return after[len(before) :] if after[: len(before)] == before else ids


@cache
def byte_letters() -> dict[str, int]:
    """The letters that byte-level vocabularies write bytes with (Radford et al. 2019, GPT-2)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    letters = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in letters.values())
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}


def _from_byte_letters(string: str) -> bytes:
    letters = byte_letters()
    try:
        return bytes(letters[letter] for letter in string)
    except KeyError:  # not in the byte alphabet, so it reads as it stands
        return string.encode()


def _from_sentencepiece(string: str) -> bytes:
    if lone := _LONE_BYTE.fullmatch(string):
        return bytes.fromhex(lone[1])
    return string.replace("▁", " ").encode()
