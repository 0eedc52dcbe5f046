"""Tiny vocabularies, spelled out, some of whose words two models share."""

from collections.abc import Sequence

from draftwise.drafters.translation import Dictionary


class Words:
    """A tokenizer of the words it is given: the longest that fits; what fits none is left out."""

    name, end_ids, bos_id, has_chat_template, byte_level = "words", frozenset(), None, False, False
    added_ids: frozenset[int] = frozenset()

    def __init__(self, words: Sequence[str], special: Sequence[int] = ()) -> None:
        self._words = words
        self.special_ids = frozenset(special)

    @property
    def vocab_size(self) -> int:
        return len(self._words)

    def encode(self, text: str) -> list[int]:
        return self.encode_plain(text)

    def encode_plain(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            fitting = [word for word in self._words if text.startswith(word)]
            word = max(fitting, key=len, default="")
            ids += [self._words.index(word)] if word else []
            text = text[len(word) or 1 :]
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return "".join(self._words[i] for i in ids)

    def chat(self, messages) -> list[int]:
        raise NotImplementedError

    def token_strings(self) -> Sequence[str | None]:
        return self._words


def partly_shared(size: int) -> Dictionary:
    """A target of one letter a token; of the draft's words, every third is a pair of letters.

    The draft's others are letters of the target's under other ids; so the draft cannot write every
    letter, nor read it.
    """
    letters = [chr(0x100 + i) for i in range(size)]
    words = [letters[i - 1] if i % 3 else letters[i - 1] + letters[i] for i in range(size)]
    return Dictionary(Words(letters), Words(words), size, size)
