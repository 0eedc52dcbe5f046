"""What is kept of a run so that it can be judged later: the leading scores of every emitted token.

A score is a logit after processors, or, where a draw was made, its log-probability at the temperature
plus the noise of the draw. The log-probability is the one before filters, which only move the sum that
it is normalised by: so scores of two runs compare token by token.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from draftwise.core.distributions import Dense
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import SamplingOptions

NUM_LEADING = 8
"""How many scores are kept of a token where a proof may follow."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The highest scores at one emitted position, highest first; the first is the token itself."""

    ids: tuple[int, ...]
    scores: tuple[float, ...]

    def score(self, token: int) -> float | None:
        """Score of a token, None if it was not among the leading ones."""
        return self.scores[self.ids.index(token)] if token in self.ids else None


def leading(scores: Tensor, num: int) -> list[Leading]:
    """Keep the `num` highest scores of each row of `scores` [n, vocab], none that is -inf."""
    # A draw takes the lowest id among equals, and topk any: the token itself must come first.
    first = scores.argmax(-1, keepdim=True)
    ids = scores.scatter(1, first, math.inf).topk(min(num, scores.shape[1]), dim=-1).indices
    values = scores.gather(1, ids)
    counts = (values > -math.inf).sum(-1)
    return [
        Leading(tuple(row_ids[:count]), tuple(row_values[:count]))
        for row_ids, row_values, count in zip(
            ids.tolist(), values.tolist(), counts.tolist(), strict=True
        )
    ]


def drawn_scores(
    processed: Tensor, p: Dense, randomness: KeyedNoise, position: int, options: SamplingOptions
) -> Tensor:
    """Scores of draws [n, vocab]: -inf where the filters left nothing."""
    before_filters = (processed / options.temperature).log_softmax(-1)
    noise = randomness.noise(processed, position)
    return (before_filters + noise).masked_fill(p.p[: len(processed)] == 0, -math.inf)
