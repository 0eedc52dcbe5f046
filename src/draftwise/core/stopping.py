"""Where a request ends: the one place where a block of tokens is cut.

`cut` walks the tokens of a block in order. The first that is an end token or a stop token,
completes a stop string, or is the last of the budget, ends the request; everything that follows
from the block (ids, text, counts, both caches) is cut at that one token. The ids keep the token
that ends it; the text ends before the stop string.

Nothing here knows a tokenizer: a block comes with the text that each of its tokens adds.

    cut([5, 9], ["a b", "c d"], tail="", num_generated=0, conditions=StopConditions(
        stop_strings=("bc",), max_tokens=8))  ->  Cut(2, "stop", matched="bc", text_end=2)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from draftwise.core.errors import OptionError

Reason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConditions:
    """What ends a request.

    end_ids: the model's end tokens; empty where they are to be ignored.
    stop_ids, stop_strings: what the user asked to stop at, in generated text only.
    max_tokens: the budget, exact.
    min_tokens: no token and no string stops the request before it has this many tokens; what was
        passed over on the way does not stop it later.
    """

    end_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    max_tokens: int
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if "" in self.stop_strings:
            raise OptionError("A stop string is empty and would stop at once: leave it out.")
        for name in ("max_tokens", "min_tokens"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} is {getattr(self, name)}: give 0 or more.")

    def with_max_tokens(self, max_tokens: int) -> "StopConditions":
        """The same conditions with another budget, such as what the context has room for."""
        return replace(self, max_tokens=max_tokens)


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a block stands.

    num_tokens: tokens that stand, the one that ends the request included.
    reason: why the request ends in this block; None where it goes on.
    matched: the token or the string that stopped it.
    text_end: characters of tail + pieces that stand, where a stop string was completed; None where
        the text of every standing token stands.
    """

    num_tokens: int
    reason: Reason | None = None
    matched: int | str | None = None
    text_end: int | None = None


def cut(
    block: Sequence[int],
    pieces: Sequence[str],
    tail: str,
    num_generated: int,
    conditions: StopConditions,
) -> Cut:
    """Find the token at which the request ends, if it ends in this block.

    block: tokens that a round would commit. pieces: the text that each of them adds, perhaps none.
    tail: the end of the text generated before, at least what `held_back` keeps of it; never text of
    the prompt. num_generated: tokens generated before the block.

    Where one token gives several reasons, a stop beats the length and a token beats a string; the
    text ends before the string all the same. Of two strings that the same token completes, the one
    that begins first counts, then the shorter one.
    """
    if len(pieces) != len(block):
        raise ValueError(f"{len(block)} tokens, but {len(pieces)} pieces of text")
    if num_generated >= conditions.max_tokens:
        return Cut(0, "length")
    text, end = tail + "".join(pieces), len(tail)
    for i, (token, piece) in enumerate(zip(block, pieces, strict=True), start=1):
        begin, end = end, end + len(piece)
        if num_generated + i >= conditions.min_tokens:
            stops_by_id = token in conditions.end_ids or token in conditions.stop_ids
            text_end, string = _completed(text, begin, end, conditions.stop_strings)
            if stops_by_id or string is not None:
                return Cut(i, "stop", token if stops_by_id else string, text_end)
        if num_generated + i == conditions.max_tokens:
            return Cut(i, "length")
    return Cut(len(block))


def held_back(text: str, stop_strings: Sequence[str]) -> int:
    """Length of the longest suffix of `text` that may yet grow into a stop string.

    A stream keeps these characters and delivers all before them.
    """
    longest = max(map(len, stop_strings), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        suffix = text[-length:]
        if any(len(s) > length and s.startswith(suffix) for s in stop_strings):
            return length
    return 0


def _completed(
    text: str, begin: int, end: int, stop_strings: Sequence[str]
) -> tuple[int, str] | tuple[None, None]:
    """Place and name of the first stop string whose last character lies in text[begin:end]."""
    found = [
        (at, len(string), string)
        for string in stop_strings
        if (at := text.find(string, max(0, begin - len(string) + 1), end)) >= 0
    ]
    if not found:
        return None, None
    at, _, string = min(found)
    return at, string
