"""Text of a growing sequence of tokens, piece by piece.

A token's text depends on its neighbours: a character may be split over up to four tokens, and a
sentencepiece decoder drops the space before the first word of whatever it is given. So a small
window is decoded: tokens whose text is out, for context, then those whose text is pending (the
prefix and read offsets of text-generation-inference and vLLM). Unlike there, a token that ends
inside a character delivers what it completes: text flows even where tokens never end where
characters do.

Invariants
- Pieces are only ever appended; joined, with `flush` at the end, they are decode(all tokens).
- No piece shows U+FFFD for a character that later tokens complete. A U+FFFD that stands for itself,
  or for bytes that no token can complete any more, is out after three more tokens at most.
- The window, and so the work for a token, is bounded.

One decoder takes its own words back: byte fallback turns a whole run of byte tokens into U+FFFD
when the run is not UTF-8, complete characters included. What is out stays out; the text of the
request is then the joined pieces.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

REPLACEMENT = "\ufffd"

# A character has at most 4 bytes, and every token at least one: an incomplete character lies in the
# last 3 tokens, and 4 tokens hold all that is not yet out.
_DOUBTFUL = 3
_KEPT = 4
_LONGEST = 8


@dataclass(frozen=True, slots=True)
class DetokenizerState:
    """What has to be remembered between two tokens; a branch that is dropped leaves no trace.

    ids: the window. read: how many of its tokens are context, their text all out. sent: how many
    characters of the text of the others are out.
    """

    ids: tuple[int, ...] = ()
    read: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Detokenizer:
    """Turns tokens into pieces of text.

    decode: text of any tokens, with no clean-up of spaces.
    skipped: the tokens that decode leaves out, if any.
    """

    decode: Callable[[Sequence[int]], str]
    skipped: frozenset[int] = frozenset()

    def start(self, context: Sequence[int] = ()) -> DetokenizerState:
        """The state before the first token.

        context: tokens that come before, such as a raw prompt's. With them the first word keeps the
        space that parts it from them; without them the text is decode(tokens), on its own.
        """
        for size in range(1, min(len(context), _LONGEST) + 1):
            ids = tuple(context[-size:])
            text = self.decode(ids)
            if text and not text.startswith(REPLACEMENT):
                return DetokenizerState(ids, size)
        return DetokenizerState()

    def advance(self, state: DetokenizerState, token: int) -> tuple[DetokenizerState, str]:
        """Read one token: the next state, and the text that is now certain, perhaps none."""
        if token in self.skipped:
            return state, ""
        ids, read = (*state.ids, token), state.read
        text = self._pending(ids, read)
        if not text:
            return (state if len(ids) - read > _LONGEST else DetokenizerState(ids, read)), ""
        if self._is_complete(text, ids, read):
            return DetokenizerState(ids[read:], len(ids) - read), text[state.sent :]
        settled = self._pending(ids[:-_DOUBTFUL], read)
        sent = max(state.sent, len(text.rstrip(REPLACEMENT)), len(settled))
        return self._bounded(ids, read, sent, len(text)), text[state.sent : sent]

    def flush(self, state: DetokenizerState) -> str:
        """Text that is left when no token follows: usually none, or an incomplete character."""
        return self._pending(state.ids, state.read)[state.sent :]

    def _pending(self, ids: tuple[int, ...], read: int) -> str:
        """Text of ids[read:] in the context of ids[:read]."""
        if read >= len(ids):
            return ""
        before, text = self.decode(ids[:read]), self.decode(ids)
        return text[len(before) :] if text.startswith(before) else self.decode(ids[read:])

    def _is_complete(self, text: str, ids: tuple[int, ...], read: int) -> bool:
        """Whether the pending text ends where a character ends, as far as can be known."""
        if not text.endswith(REPLACEMENT):
            return True
        # Byte fallback shows a U+FFFD for each byte until the character is there: text that becomes
        # shorter has just completed one, U+FFFD itself in this case.
        return len(text) < len(self._pending(ids[:-1], read))

    def _bounded(self, ids: tuple[int, ...], read: int, sent: int, length: int) -> DetokenizerState:
        """The state with `length` characters pending and `sent` of them out, in a small window."""
        if len(ids) - read <= _LONGEST:
            return DetokenizerState(ids, read, sent)
        kept = ids[-_KEPT:]
        return DetokenizerState(kept, 0, len(self.decode(kept)) - (length - sent))
