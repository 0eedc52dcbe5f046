"""Where a text has been like this before: its places, sorted by the tokens before them, read backwards.

The places whose past ends like a context lie side by side in a suffix array of the reversed text, those
that share most with it nearest: a run of the array is what a node of a suffix tree stands for. It takes
one integer a token, and its order depends on nothing but the text, so that a text that is cut and goes
on otherwise is as good as one that is read afresh.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_WORTH_SORTING = 32
"""Where fewer tokens than this are there for each new one, sorting them all anew is the quicker way."""


@dataclass(frozen=True, slots=True)
class Match:
    """A place whose past shares its last `length` tokens with a context, and what followed there."""

    length: int
    following: list[int]


class SuffixArray:
    """The places of one text, compared by at most `depth` tokens before each."""

    def __init__(self, depth: int) -> None:
        self.tokens: list[int] = []
        self._depth = depth
        self._places: list[int] = []

    def extend(self, tokens: Sequence[int]) -> None:
        """Append to the text. Where an interrupt cuts this short, the next call ranks the rest too."""
        self.tokens += tokens
        new = range(len(self._places), len(self.tokens))
        if len(new) * _WORTH_SORTING > len(self.tokens):
            self._places = sorted([*self._places, *new], key=self._past)
        else:
            for place in new:
                insort(self._places, place, key=self._past)

    def cut(self, start: int, end: int) -> None:
        """Keep what is between two places of the text; they count from its new start."""
        if (start, end) == (0, len(self.tokens)):
            return
        rest = SuffixArray(self._depth)
        rest.tokens = self.tokens[start:end]
        curtailed = range(min(self._depth, len(rest.tokens)) if start else 0)
        unchanged = start + len(curtailed)
        rest._places = [place - start for place in self._places if unchanged <= place < end]
        for place in curtailed:  # their past is shorter now, and so has another rank
            insort(rest._places, place, key=rest._past)
        self.tokens, self._places = rest.tokens, rest._places

    def nearest(self, context: Sequence[int], num: int, ahead: int) -> list[Match]:
        """At most `num` places that share most with a context, with up to `ahead` tokens from each.

        Those that share most come first, and of equal ones the last; none that shares nothing.
        """
        past = list(context[: -self._depth - 1 : -1])
        rank = bisect_right(self._places, past, key=self._past)
        below = reversed(self._places[max(rank - num, 0) : rank])
        above = self._places[rank : rank + num]
        found = sorted([*self._shared(below, past), *self._shared(above, past)], reverse=True)
        return [Match(length, self.tokens[at : at + ahead]) for length, at in found[:num]]

    def _shared(self, places: Iterable[int], past: list[int]) -> Iterator[tuple[int, int]]:
        """Tokens shared by each of these places, which lie ever farther away, and the place."""
        length = len(past)
        for place in places:
            other = self._past(place)
            while other[:length] != past[:length]:
                length -= 1
            if not length:
                return
            yield length, place

    def _past(self, place: int) -> list[int]:
        """The tokens before a place, the nearest first."""
        return self.tokens[max(place - self._depth, 0) : place][::-1]
