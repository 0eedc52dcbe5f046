"""A draft model: a smaller model of the same vocabulary that writes the next k tokens by itself.

With `runner` the target's own, the target drafts for itself in a second row: the control that must
accept everything.
"""

import torch

from draftwise.core.distributions import Dense, Distribution, OneHot
from draftwise.core.errors import OptionError
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingState
from draftwise.models.row import Row
from draftwise.models.runner import Runner


class DraftModel:
    """Drafts with any runner whose token ids mean what the target's mean (`text.vocabulary` tells)."""

    def __init__(self, runner: Runner, name: str) -> None:
        self.runner = runner
        self.name = name

    def open(self) -> "DraftModelSession":
        """Open a session with a row of its own."""
        return DraftModelSession(self.runner)


class DraftModelSession:
    """One sequence's row in the draft model."""

    def __init__(self, runner: Runner) -> None:
        self._row = Row(runner)
        self._context = runner.info.context_length

    def prefill(self, ids: list[int]) -> None:
        """Read the sequence, if the draft model's context can hold it."""
        if self._fits(ids):
            self._row.prefill(ids)

    def propose(
        self, ids: list[int], k: int, sampling: SamplingState, randomness: Randomness
    ) -> Proposal:
        """Write up to k tokens, one pass each; the first also reads what is new in `ids`."""
        before, text, drawn_from, note = self._row.passes, list(ids), [], None
        for _ in range(k):
            if not self._fits(text):
                note = "the draft model's context is full"
                break
            logits = self._row.logits(text)
            try:
                q = sampling.distribution(sampling.processed(logits))
            except OptionError:  # on the draft's branch, which the target need not take
                note = "the options leave the draft model no token to choose"
                break
            text += randomness.draw(q, len(text))
            sampling = sampling.advance(text[-1])
            drawn_from.append(q)
        return Proposal(
            tuple(text[len(ids) :]), _joined(drawn_from), self._row.passes - before, note
        )

    def synchronize(self) -> None:
        """Wait for the draft model's device."""
        self._row.runner.synchronize()

    def close(self) -> None:
        """Give the row back."""
        self._row.close()

    def _fits(self, ids: list[int]) -> bool:
        """Whether the draft model can read all of `ids`; the last token drafted need not be read."""
        return self._context is None or len(ids) <= self._context


def _joined(rows: list[Distribution]) -> Distribution | None:
    if not rows:
        return None
    if all(isinstance(row, OneHot) for row in rows):
        return OneHot(torch.cat([row.ids for row in rows if isinstance(row, OneHot)]))
    return Dense(torch.cat([row.p for row in rows if isinstance(row, Dense)]))
