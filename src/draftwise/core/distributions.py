"""What crosses the seam between models and rules: distributions, never logits.

A distribution covers `n` consecutive positions. `OneHot` is what temperature 0 gives: all mass on one
token. `Dense` holds a row of probabilities a position. Both answer the same questions, so a rule never
asks which of the two it has, except to be faster.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class OneHot:
    """All mass on one token at each position.

    ids: int64 tensor of shape [n].
    """

    ids: Tensor

    def __len__(self) -> int:
        return self.ids.shape[0]

    def probability(self, tokens: Tensor) -> Tensor:
        """Probability of `tokens[i]` at position i, for the first len(tokens) positions: float32 [m]."""
        return (self.ids[: tokens.shape[0]] == tokens.to(self.ids.device)).float()

    def dense(self, position: int, vocab_size: int) -> Tensor:
        """The row of probabilities at one position, as a float32 tensor of shape [vocab_size]."""
        row = torch.zeros(vocab_size, device=self.ids.device)
        row[self.ids[position]] = 1.0
        return row

    def renamed(self, names: Tensor, vocab_size: int) -> "OneHot":
        """The same over another vocabulary, where token i is `names[i]`; impossible ones are `vocab_size`."""
        return OneHot(names[self.ids].clamp(max=vocab_size - 1))  # an arg-max of NaNs may be any


@dataclass(frozen=True, slots=True)
class Dense:
    """A row of probabilities at each position.

    p: float32 or float64 tensor of shape [n, vocab]; every row sums to 1.
    """

    p: Tensor

    def __len__(self) -> int:
        return self.p.shape[0]

    def probability(self, tokens: Tensor) -> Tensor:
        """Probability of `tokens[i]` at position i, for the first len(tokens) positions: [m]."""
        tokens = tokens.to(self.p.device)
        return self.p[: tokens.shape[0]].gather(1, tokens[:, None])[:, 0]

    def dense(self, position: int, vocab_size: int) -> Tensor:
        """The row of probabilities at one position, shape [vocab_size]."""
        return self.p[position, :vocab_size]

    def renamed(self, names: Tensor, vocab_size: int) -> "Dense":
        """The same over another vocabulary, where token i is `names[i]`; impossible ones are `vocab_size`."""
        p = self.p.new_zeros(len(self), vocab_size + 1)
        return Dense(p.index_copy_(1, names, self.p)[:, :vocab_size])


Distribution = OneHot | Dense
