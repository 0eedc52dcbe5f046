"""A draft model: a smaller model that writes the next k tokens by itself.

A draft of another vocabulary works through a dictionary (`drafters.translation`). With `runner` the
target's own, the target drafts for itself in a second row: the control that must accept everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from draftwise.core.distributions import Dense, Distribution, OneHot
from draftwise.core.errors import ModelError, OptionError
from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import DeviceRandomness, Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.drafters.drafter import DraftSession
from draftwise.drafters.none import NoDraft
from draftwise.drafters.translation import Dictionary, Foreign, Same, Translation
from draftwise.models.row import Row
from draftwise.models.runner import BlockRunner, Runner
from draftwise.models.sources import SourceKind
from draftwise.text.vocabulary import VocabularyKind

_AT_ONCE = 256
"""Positions that a draft is asked about in one pass: each has logits over two whole vocabularies."""


@dataclass(frozen=True, slots=True)
class DraftOrigin:
    """Where a draft model comes from, and how its vocabulary compares with the target's."""

    source: SourceKind = "object"
    vocabulary: VocabularyKind = "same"


@dataclass(frozen=True, slots=True)
class Guess:
    """The draft's token for one position, and the highest probability that it gave any token there."""

    token: int
    confidence: float


class DraftModel:
    """Drafts with any runner.

    usual_k is small, since every guess costs a pass. dictionary: None if the runner's token ids mean
    what the target's mean (`text.vocabulary` tells). origin: where the model comes from, for settings
    of other engines. adapts: False for a control.
    """

    usual_k = 3

    def __init__(
        self,
        runner: Runner,
        name: str,
        dictionary: Dictionary | None = None,
        origin: DraftOrigin | None = None,
        adapts: bool = True,
    ) -> None:
        self.runner = runner
        self.name = name
        self.dictionary = dictionary
        self.origin = origin or DraftOrigin()
        self.adapts = adapts

    def open(self) -> DraftSession:
        """Open a session with a row of its own."""
        if self.dictionary is None:
            return DraftModelSession(self.runner, Same())
        if not self.dictionary.overlap.to_draft:
            return NothingInCommon()
        return DraftModelSession(self.runner, Foreign(self.dictionary))


class ModelSession:
    """One sequence's row in a draft model: what every way of drafting with a model needs."""

    def __init__(self, runner: Runner, translation: Translation) -> None:
        self._row = Row(runner)
        self._translation = translation
        self._context = runner.info.context_length

    def prefill(self, ids: list[int]) -> None:
        """Read the sequence, if the draft model's context can hold it."""
        written = self._translation.follow(ids)
        if self._unreadable(written) is None:
            self._row.prefill(written)

    def synchronize(self) -> None:
        """Wait for the draft model's device."""
        self._row.runner.synchronize()

    def close(self) -> None:
        """Give the row back."""
        self._row.close()

    def _unreadable(self, written: list[int]) -> str | None:
        """Why the draft model cannot go on from these tokens; the last one drafted need not be read."""
        if not written:
            return "the draft model has no token for any of the text"
        if self._context is not None and len(written) > self._context:
            return "the draft model's context is full"
        return None


class DraftModelSession(ModelSession):
    """Drafts by the draft model's law over the target's tokens."""

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Write up to k tokens, one pass each; the first also reads what is new in `ids`."""
        if (
            goes_on is None
            and k > 0
            and isinstance(randomness, DeviceRandomness)
            and self._takes_block(ids, sampling)
        ):
            return self._block(ids, k, sampling, randomness)
        before, text, note = self._row.passes, list(ids), None
        drawn_from, confidence = [], []
        for _ in range(k):
            if goes_on is not None and not goes_on(confidence):
                break
            written = self._translation.follow(text)
            if note := self._unreadable(written):
                break
            logits = self._row.logits(written)
            try:
                processed, q = self._translation.law(logits, sampling)
            except OptionError:  # on the draft's branch, which the target need not take
                note = "the options leave the draft model no token to choose"
                break
            except ModelError:
                note = "the draft model's logits are infinite or not a number"
                break
            text += randomness.draw(q, len(text))
            sampling = sampling.advance(text[-1])
            drawn_from.append(q)
            if goes_on is not None:
                confidence += highest_probability(processed)
        return Proposal(
            tuple(text[len(ids) :]),
            _joined(drawn_from),
            self._row.passes - before,
            note,
            None if goes_on is None else tuple(confidence),
        )

    def _takes_block(self, ids: list[int], sampling: SamplingState) -> bool:
        """Whether no token has to be known, to be translated or counted, before the next is drafted."""
        return (
            isinstance(self._row.runner, BlockRunner)
            and isinstance(self._translation, Same)
            and not sampling.sampler.processors
            and self._unreadable(ids) is None
        )

    def _block(
        self, ids: list[int], k: int, sampling: SamplingState, randomness: DeviceRandomness
    ) -> Proposal:
        """Write k tokens, or as many as the context has room for, before looking at any."""
        drawn_from: list[Distribution] = []

        def choose(logits: Tensor) -> Tensor:
            q = sampling.distribution(sampling.processed(logits))
            drawn_from.append(q)
            return randomness.choose(q, len(ids) + len(drawn_from) - 1)

        num = k if self._context is None else min(k, self._context + 1 - len(ids))
        try:
            tokens = self._row.draft(ids, num, choose)
        except (ModelError, OptionError):  # raised where looking at logits is free: not on a GPU
            return Proposal(note="the draft model's logits are infinite or not a number")
        note = None if num == k else "the draft model's context is full"
        return Proposal(tokens, _joined(drawn_from), num, note)

    def foresee(
        self, ids: list[int], start: int, sampling: SamplingState, randomness: Randomness
    ) -> list[Guess]:
        """What the draft would say at each position of `ids` from `start` on; no proposal is made.

        It reads the text itself, teacher-forced: one pass for all positions where the vocabulary is
        the target's. sampling: the state at `start`, which is at least 1.
        """
        guesses: list[Guess] = []
        while start + len(guesses) < len(ids):
            position = start + len(guesses)
            written, num = self._stretch(ids, position)
            if self._unreadable(written) is not None:
                break
            logits = self._row.logits(written, len(written) - num[0] + 1)
            seen = ids[position : position + len(num)]
            asked = logits[[n - num[0] for n in num]]
            processed, q = self._translation.law(asked, sampling, seen[:-1])
            tokens = randomness.draw(q, position)
            guesses += map(Guess, tokens, highest_probability(processed))
            for token in seen:
                sampling = sampling.advance(token)
        return guesses

    def _stretch(self, ids: list[int], position: int) -> tuple[list[int], list[int]]:
        """The longest text, in draft tokens, of which a pass answers this position and those behind.

        Returns it and, for each position answered, how many draft tokens stand before it. A token that
        waits for the rest of its character is written otherwise once that is there: a stretch ends.
        """
        written = self._translation.follow(ids[:position])
        num = [len(written)]
        for end in range(position + 1, min(len(ids), position + _AT_ONCE)):
            longer = self._translation.follow(ids[:end])
            if longer[: len(written)] != written or self._unreadable(longer) is not None:
                break
            written = longer
            num.append(len(written))
        return written, num


class NothingInCommon(NoDraft):
    """What is left of a draft that shares no token with the target: plain decoding, and a word."""

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Propose nothing, and say why."""
        return Proposal(note="the draft model shares no token with the target: plain decoding")


def highest_probability(logits: Tensor) -> list[float]:
    """Of each row of processed logits [n, vocab], the probability of its likeliest token."""
    highest = logits.softmax(-1).amax(-1)  # logsumexp takes eight times as long over many -inf
    return highest.nan_to_num(0.0).tolist()  # a wild draft is merely rejected


def _joined(rows: list[Distribution]) -> Distribution | None:
    if not rows:
        return None
    if all(isinstance(row, OneHot) for row in rows):
        return OneHot(torch.cat([row.ids for row in rows if isinstance(row, OneHot)]))
    return Dense(torch.cat([row.p for row in rows if isinstance(row, Dense)]))
