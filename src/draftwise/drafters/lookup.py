"""Prompt lookup: propose what followed the last time that the text ended like this. No model at all.

Saxena 2023, "Prompt Lookup Decoding". The longest match wins, and among equally long ones the most
recent; where a match reaches the end of the text, the copy goes on into what it has just proposed, so
that a repeating pattern is proposed whole.
"""

from collections import defaultdict

from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.copying import chance

_MOST_CANDIDATES = 64
"""Places compared for the longest match; a phrase more common than that is settled by recency."""


class PromptLookup:
    """Drafts by copying from the prompt and from the text so far.

    shortest, longest: tokens that must match, and that are compared, before a place counts as equal.
    """

    name = "lookup"
    usual_k = 8  # guesses are free, and where there is a match it tends to be long
    adapts = True

    def __init__(self, shortest: int = 2, longest: int = 16) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"a match of {shortest} to {longest} tokens makes no sense")
        self.shortest, self.longest = shortest, longest

    def open(self) -> "PromptLookupSession":
        """Open a session with an empty index."""
        return PromptLookupSession(self.shortest, self.longest)


class PromptLookupSession:
    """An index of one sequence: where each run of `shortest` tokens has ended."""

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest, self._longest = shortest, longest
        self._indexed: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = defaultdict(list)
        self._whole = True

    def prefill(self, ids: list[int]) -> None:
        """Index the sequence; what is common with the last one is indexed already."""
        if not self._whole:  # an interrupt came between the two lines that say so
            self._ends.clear()
            self._indexed = []
        self._whole = False
        keep = common_prefix(self._indexed, ids)
        for end in range(len(self._indexed), max(keep, self._shortest - 1), -1):
            self._forget(end)
        for end in range(max(keep + 1, self._shortest), len(ids) + 1):
            self._ends[self._key(ids, end)].append(end)
        self._indexed = list(ids)
        self._whole = True

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Copy k tokens from behind the best match, or propose nothing."""
        self.prefill(ids)
        start = self._best_match(ids)
        if start is None:
            return Proposal()
        text, matched = list(ids), self._match_length(ids, start)
        for i in range(start, start + k):
            if text[i] >= sampling.sampler.vocab_size:
                break  # a prompt may hold what the target cannot write, such as an image token
            text.append(text[i])
        tokens = tuple(text[len(ids) :])
        return Proposal(
            tokens, confidence=tuple(chance(1, 1, matched, i) for i in range(len(tokens)))
        )

    def synchronize(self) -> None:
        """No device."""

    def close(self) -> None:
        """Nothing held."""

    def _forget(self, end: int) -> None:
        key = self._key(self._indexed, end)
        self._ends[key].pop()
        if not self._ends[key]:  # or a session of many requests would grow for ever
            del self._ends[key]

    def _key(self, ids: list[int], end: int) -> tuple[int, ...]:
        return tuple(ids[end - self._shortest : end])

    def _best_match(self, ids: list[int]) -> int | None:
        """Position behind the longest, then most recent, earlier occurrence of the text's end."""
        if len(ids) < self._shortest:
            return None
        earlier = self._ends[self._key(ids, len(ids))][:-1]  # the last one is the end itself
        recent = reversed(earlier[-_MOST_CANDIDATES:])
        return max(recent, key=lambda end: self._match_length(ids, end), default=None)

    def _match_length(self, ids: list[int], end: int) -> int:
        length = self._shortest
        while length < min(self._longest, end) and ids[end - 1 - length] == ids[-1 - length]:
            length += 1
        return length
