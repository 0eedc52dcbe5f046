"""Suffix decoding: propose what followed most often where the text was like this. No model at all.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975). From there: frequencies of what followed a match
are chances; a copy follows the greater frequency at each token; its score is the sum of the products of
its chances, the tokens that may be expected of it; of all lengths of match the one with the best score
is taken; and beside the text itself, answers to earlier requests are searched.

Otherwise than there:
- Frequencies are those of the `places` most like the text, found in a suffix array, not of all of them
  in a suffix tree. Text and memory are counted together, not as two trees of which one wins.
- Three phrases that go on alike prove more than one, and a match of ten tokens more than one of two: a
  frequency is tempered (`drafters.copying`).
- A copy ends where the product of its chances falls below `least`, the `min_token_prob` of Arctic
  Inference and vLLM. That alone bounds it: a copy from a single place, to (1 / least - 1) / 2 times the
  length of its match, which takes the place of MAX_SPEC and its `max_spec_factor`.
- There is no tree of alternatives: the loop checks one line of tokens.
- Where a place reaches the end of the text, its copy goes on into itself, as in `drafters.lookup`.
"""

from collections import Counter
from dataclasses import dataclass, field

from draftwise.core.lookahead import LONGEST, GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.copying import chance
from draftwise.drafters.suffix_array import SuffixArray
from draftwise.drafters.suffix_memory import DEPTH, SuffixMemory


class SuffixDrafter:
    """Drafts by frequency, from the prompt, the text so far and, if there is a memory, earlier answers.

    places: how many are looked at. least: how likely a proposal must be as a whole; on the texts of
    `drafters.copying` all of 0.15 to 0.3 do where checking one token more costs 8 % of a pass.
    memory: takes what a session has written once the session is given another request; so a session that
    is opened to warm up or to measure leaves nothing in it.
    """

    name = "suffix"
    usual_k = 8  # as for lookup; most proposals end earlier by themselves
    adapts = True

    def __init__(
        self, places: int = 32, least: float = 0.15, memory: SuffixMemory | None = None
    ) -> None:
        if places < 1 or not 0 <= least <= 1:
            raise ValueError(f"{places} places and a least chance of {least} make no sense")
        self.places, self.least, self.memory = places, least, memory

    def open(self) -> "SuffixSession":
        """Open a session that has read nothing."""
        return SuffixSession(self)


class SuffixSession:
    """The places of one text. What it writes is known by where the first proposal was asked for."""

    def __init__(self, drafter: SuffixDrafter) -> None:
        self._drafter = drafter
        self._array = SuffixArray(DEPTH)
        self._answer: int | None = None

    def prefill(self, ids: list[int]) -> None:
        """Read a request, which ends the one before."""
        self._hand_over()
        self._read(ids)

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Propose the copy with the most tokens to be expected of it.

        Copies are compared at one length, whatever k is, so that a shorter proposal begins the longer one.
        """
        self._read(ids)
        if self._answer is None:
            self._answer = len(ids)
        drafter, ahead = self._drafter, max(k, LONGEST)
        found = self._array.nearest(ids, drafter.places, ahead)
        if drafter.memory is not None:
            found += drafter.memory.nearest(ids, drafter.places, ahead)
            found = sorted(found, key=lambda match: -match.length)[: drafter.places]
        copies = [
            _copy(
                [match.following for match in found if match.length >= length],
                length,
                ahead,
                drafter.least,
                sampling.sampler.vocab_size,
            )
            for length in sorted({match.length for match in found}, reverse=True)
        ]
        best = max(copies, key=lambda copy: copy.expected, default=_Copy())
        return Proposal(tuple(best.tokens[:k]), confidence=tuple(best.chances[:k]))

    def synchronize(self) -> None:
        """No device."""

    def close(self) -> None:
        """Nothing held."""

    def _hand_over(self) -> None:
        """Give the answer to the memory: what was read of it, which the last round is not."""
        start, self._answer = self._answer, None
        if start is not None and self._drafter.memory is not None:
            self._drafter.memory.add(self._array.tokens[start:])

    def _read(self, ids: list[int]) -> None:
        common = common_prefix(self._array.tokens, ids)
        if common < len(self._array.tokens):  # it is another sequence
            self._hand_over()
        self._array.cut(0, common)
        self._array.extend(ids[common:])


@dataclass(slots=True)
class _Copy:
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    expected: float = 0.0


def _copy(
    followings: list[list[int]], matched: int, k: int, least: float, vocab_size: int
) -> _Copy:
    """What most of the places say, and of those the most, and so on; of equals, the first place's.

    followings: what followed at each place; one that ends early ends where the text does.
    """
    copy, survival = _Copy(), 1.0
    for i in range(k):
        said = [f[i] if i < len(f) else copy.tokens[i - len(f)] for f in followings]
        votes = Counter(said)
        token = max(votes, key=votes.__getitem__)
        likely = chance(votes[token], len(said), matched, i)
        survival *= likely
        if survival < least or not 0 <= token < vocab_size:
            break  # a memory's END, or what the target cannot write, such as a prompt's image token
        copy.tokens.append(token)
        copy.chances.append(likely)
        copy.expected += survival
        followings = [f for f, t in zip(followings, said, strict=True) if t == token]
    return copy
