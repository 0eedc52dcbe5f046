"""One sequence in the words of a draft model, and the draft model's law over those of the target.

`Same` is for a draft of the target's own vocabulary and costs nothing. `Foreign` is for any other. It
follows the target's text with tokens of the draft: a token that both have is written as itself, any
other is spelled out from the last place where tokens of both ended. Only tokens that both have are ever
drafted, by the draft's law over those alone: token-level intersection of Timor et al. 2025
(arXiv 2502.05202), exact since the distribution that is drawn from is the one that the rule is told.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from draftwise.core.distributions import Distribution
from draftwise.core.prefix import common_prefix
from draftwise.core.sampling import Sampler, SamplingState
from draftwise.text.overlap import Overlap, overlap
from draftwise.text.spelling import Spelling
from draftwise.text.tokenizer import Tokenizer


class Translation(Protocol):
    """Translates for one sequence. May remember what it was given, as a row does."""

    def follow(self, ids: list[int]) -> list[int]:
        """The draft's tokens for the target's sequence `ids`."""
        ...

    def law(
        self, logits: Tensor, sampling: SamplingState, seen: Sequence[int] = ()
    ) -> tuple[Tensor, Distribution]:
        """What the draft's logits [n, width] say of the target's tokens, in the light of `sampling`.

        Returns the processed logits that a token is drawn from, of whichever vocabulary, and the
        distribution over the target's that they make. seen: the target's tokens between the positions.
        """
        ...


class Same:
    """Target and draft have one vocabulary."""

    def follow(self, ids: list[int]) -> list[int]:
        """The sequence itself."""
        return ids

    def law(
        self, logits: Tensor, sampling: SamplingState, seen: Sequence[int] = ()
    ) -> tuple[Tensor, Distribution]:
        """As for the target's own logits."""
        processed = sampling.processed(logits, seen)
        return processed, sampling.distribution(processed)


class Dictionary:
    """What two vocabularies share; made once for a pair and used by all of its sequences."""

    def __init__(
        self, target: Tokenizer, draft: Tokenizer, target_size: int, draft_size: int
    ) -> None:
        """Compare; target_size, draft_size: ids that the models have rows for."""
        self.target, self.draft = Spelling(target, target_size), Spelling(draft, draft_size)
        self.overlap: Overlap = overlap(
            self.target.bytes, self.draft.bytes, self.target.special, self.draft.special
        )
        self.special = {i: self._special(i) for i in self.target.special}
        self.beginning = [i for i in draft.encode("") if i < draft_size]
        self._names: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def names(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Of each token of the draft: the target's id (its vocabulary's size if it has none); 0 or -inf."""
        if device not in self._names:
            pairs = torch.tensor(list(self.overlap.to_draft.items()), dtype=torch.long).view(-1, 2)
            ours, theirs = pairs.unbind(1)
            names = torch.full((len(self.draft.bytes),), len(self.target.bytes))
            names[theirs] = ours
            absent = torch.full(names.shape, -torch.inf).index_fill(0, theirs, 0.0)
            self._names[device] = names.to(device), absent.to(device)
        return self._names[device]

    def _special(self, token: int) -> list[int]:
        """How the draft reads a special token: as its own of that name, else as text."""
        spelled = self.target.join([token])
        named = [i for i in sorted(self.draft.special) if self.draft.bytes[i] == spelled]
        return named[:1] or self.draft.continuation(spelled.decode())


class Foreign:
    """The target's text in tokens of the draft, kept in step from the last place where both ended."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._held: list[int] = []
        self._written = list(dictionary.beginning)
        self._common = [(0, len(self._written))]
        self._among: SamplingState | None = None  # the options, over the draft's own tokens

    def follow(self, ids: list[int]) -> list[int]:
        """Keep what is common with the last sequence and write the rest."""
        keep = common_prefix(self._held, ids)
        while self._common[-1][0] > keep:
            self._common.pop()
        start, length = self._common[-1]
        self._held = ids[:start]  # shorter first: an interrupt may not leave it too long
        del self._written[length:]
        pending = b""
        for i in range(start, len(ids)):
            pending = self._write(ids[i], pending)
            if not pending:
                self._common.append((i + 1, len(self._written)))
        self._written += self._dictionary.draft.lone_bytes(pending)
        self._held = ids[:]
        return self._written[:]

    def law(
        self, logits: Tensor, sampling: SamplingState, seen: Sequence[int] = ()
    ) -> tuple[Tensor, Distribution]:
        """Choose among shared tokens, before they are called by the target's ids: those are far more."""
        names, absent = self._dictionary.names(logits.device)
        sampler, own = sampling.sampler, logits[:, : len(names)] + absent
        if sampler.processors:  # which know tokens by the target's ids
            everywhere = own.new_full((len(own), sampler.vocab_size + 1), -torch.inf)
            everywhere.index_copy_(1, names, own)
            processed = sampling.processed(everywhere, seen)
            return processed, sampling.distribution(processed)
        if self._among is None or self._among.sampler.options is not sampler.options:
            self._among = Sampler(sampler.options, vocab_size=len(names)).start(())
        processed = self._among.processed(own, seen)
        return processed, self._among.distribution(processed).renamed(names, sampler.vocab_size)

    def _write(self, token: int, pending: bytes) -> bytes:
        """Write one more target token; return the bytes that wait for the rest of their character."""
        dictionary = self._dictionary
        if token in dictionary.special:
            self._written += dictionary.draft.lone_bytes(pending) + dictionary.special[token]
            return b""
        shared = dictionary.overlap.to_draft.get(token)
        if shared is not None and not pending:
            self._written.append(shared)
            return b""
        pending += dictionary.target.join([token])
        try:
            self._written += dictionary.draft.continuation(pending.decode())
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return pending
            self._written += dictionary.draft.lone_bytes(pending)  # these bytes are no text at all
        return b""
