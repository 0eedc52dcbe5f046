"""String-level drafting: the draft model writes text in its own tokens, re-encoded for the target.

The target draws its own token and accepts while it equals the proposed one, so any text is as good a
proposal as any other, and no token need be shared. Timor et al. 2025 (arXiv 2502.05202), string-level
exact match; transformers calls it universal assisted decoding.
"""

import codecs

import torch
from torch import Tensor

from draftwise.core.distributions import Dense, Distribution, OneHot
from draftwise.core.lookahead import GoesOn
from draftwise.core.noise import Randomness
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import SamplingOptions, SamplingState, filtered_probabilities
from draftwise.drafters.drafter import DraftSession
from draftwise.drafters.model import DraftOrigin, ModelSession
from draftwise.drafters.translation import Dictionary, Foreign
from draftwise.models.runner import Runner


class StringDraft:
    """Drafts with any runner, whatever its vocabulary."""

    usual_k = 3
    adapts = True

    def __init__(
        self,
        runner: Runner,
        name: str,
        dictionary: Dictionary,
        origin: DraftOrigin | None = None,
    ) -> None:
        self.runner = runner
        self.name = name
        self.dictionary = dictionary
        self.origin = origin or DraftOrigin(vocabulary="different")

    def open(self) -> DraftSession:
        """Open a session with a row of its own."""
        return StringDraftSession(self.runner, self.dictionary)


class StringDraftSession(ModelSession):
    """Drafts by the draft model's law over its own tokens, and proposes their text."""

    def __init__(self, runner: Runner, dictionary: Dictionary) -> None:
        super().__init__(runner, Foreign(dictionary))
        self._dictionary = dictionary
        self._special = sorted(dictionary.draft.special)

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """Write up to k tokens of the draft's own, and propose their text in tokens of the target.

        Penalties and bans are the target's and know only its tokens; they are left to it.
        """
        before, note = self._row.passes, None
        confidence: list[float | None] = []
        written = self._translation.follow(ids)
        spelling, start = self._dictionary.draft, len(written)
        for i in range(k):
            if goes_on is not None and not goes_on(confidence):
                break
            if note := self._unreadable(written):
                break
            q = self._distribution(self._row.logits(written), sampling.sampler.options)
            confidence.append(None)  # its tokens are not the target's: judged by position alone
            written.append(randomness.draw(q, len(ids) + i)[0])
        text = _complete_text(spelling.join(written[start:]))
        tokens = self._dictionary.target.continuation(text)[:k]
        if len(written) > start and not tokens:
            note = note or "the target has no token for what the draft model wrote"
        return Proposal(tuple(tokens), None, self._row.passes - before, note)

    def _distribution(self, logits: Tensor, options: SamplingOptions) -> Distribution:
        """The draft's own law over tokens that stand for text."""
        logits = logits[:, : len(self._dictionary.draft.bytes)]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        special = torch.tensor(self._special, device=logits.device, dtype=torch.long)
        logits = logits.index_fill(1, special, float("-inf"))
        if options.temperature == 0:
            return OneHot(logits.argmax(-1))
        return Dense(filtered_probabilities(logits, options))


def _complete_text(spelled: bytes) -> str:
    """Text of bytes, without an incomplete character at the end."""
    return codecs.getincrementaldecoder("utf-8")("ignore").decode(spelled)
