"""One sequence in the words of a draft model, and the draft model's logits in those of the target.

`Same` is for a draft of the target's own vocabulary and costs nothing. `Foreign` is for any other. It
follows the target's text with tokens of the draft: a token that both have is written as itself, any
other is spelled out from the last place where tokens of both ended. Logits move to the target's
vocabulary at the tokens that both have, so that softmax, filters and noise work there as for any draft:
token-level intersection of Timor et al. 2025 (arXiv 2502.05202), exact since the distribution that is
drawn from is the one that the rule is told.
"""

from typing import Protocol

import torch
from torch import Tensor

from draftwise.core.prefix import common_prefix
from draftwise.text.overlap import Overlap, overlap
from draftwise.text.spelling import Spelling
from draftwise.text.tokenizer import Tokenizer


class Translation(Protocol):
    """Translates for one sequence. May remember what it was given, as a row does."""

    def follow(self, ids: list[int]) -> list[int]:
        """The draft's tokens for the target's sequence `ids`."""
        ...

    def to_target(self, logits: Tensor) -> Tensor:
        """Logits of the draft [n, width] over the target's vocabulary; -inf where it has no token.

        Good until the next call, which may use the memory again.
        """
        ...


class Same:
    """Target and draft have one vocabulary."""

    def follow(self, ids: list[int]) -> list[int]:
        """The sequence itself."""
        return ids

    def to_target(self, logits: Tensor) -> Tensor:
        """The logits themselves."""
        return logits


class Dictionary:
    """What two vocabularies share; made once for a pair and used by all of its sequences."""

    def __init__(self, target: Tokenizer, draft: Tokenizer, draft_size: int) -> None:
        """Compare; draft_size: ids of the draft that it has rows for."""
        self.target, self.draft = Spelling(target), Spelling(draft, draft_size)
        self.overlap: Overlap = overlap(
            self.target.bytes, self.draft.bytes, self.target.special, self.draft.special
        )
        self.special = {i: self._special(i) for i in self.target.special}
        self.beginning = [i for i in draft.encode("") if i < draft_size]
        self._columns: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def columns(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids of the shared tokens, the target's and the draft's, as tensors on a device."""
        if device not in self._columns:
            pairs = torch.tensor(list(self.overlap.to_draft.items()), dtype=torch.long).view(-1, 2)
            ours, theirs = pairs.to(device).unbind(1)
            self._columns[device] = ours, theirs
        return self._columns[device]

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
        self._moved: Tensor | None = None

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

    def to_target(self, logits: Tensor) -> Tensor:
        """Move the logits of shared tokens to the target's ids; the memory of one row is used again."""
        ours, theirs = self._dictionary.columns(logits.device)
        moved = self._moved
        if moved is None or len(moved) != len(logits):
            shape = len(logits), len(self._dictionary.target.bytes)
            moved = logits.new_full(shape, -torch.inf)
            self._moved = (
                moved if len(logits) == 1 else None
            )  # memory of half a MB is new every time
        return moved.index_copy_(1, ours, logits[:, theirs])

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
