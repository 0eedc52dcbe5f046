"""The seam to the models. The loop, the drafters and the batch see nothing of a model but a `Runner`.

A runner holds rows; a row is one sequence's place in the cache and has a length. Reading appends the
new tokens to the row; cropping sets the length, absolutely, and never fails. That is all the state
there is: what was read beyond a crop is gone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Read:
    """New tokens for one row, and how many of the last positions want logits (0: none)."""

    row: int
    tokens: Sequence[int]
    num_logits: int = 0

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ValueError("a read needs at least one token")
        if not 0 <= self.num_logits <= len(self.tokens):
            raise ValueError(f"{self.num_logits} logits asked of {len(self.tokens)} tokens")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one row's read gave.

    logits: [num_logits, width] in the runner's dtype or float32; width may exceed the real vocabulary.
    hidden: for each named layer the hidden states at the same positions, [num_logits, hidden size];
    layer 0 is the embedding, layer i the output of the i-th block, the last one after the final norm.
    """

    logits: Tensor
    hidden: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What a runner can and cannot do, and what it runs on.

    name: the kind of runner ("eager"). dtype: that it computes in. weights: what they are kept in, the
    dtype's name or fewer bits ("int8", "int4", "file"). threads: of the processor. logit_width: columns of
    the logits. context_length: positions the model was made for, None if it names no limit.
    weight_bytes: of all parameters, shared ones counted once. max_rows: None if any number. longest_read:
    tokens that a pass may take; a longer prefill takes several.
    """

    name: str
    device: torch.device
    dtype: torch.dtype
    weights: str
    threads: int
    logit_width: int
    context_length: int | None
    cache_kinds: tuple[str, ...]
    weight_bytes: int
    max_rows: int | None = None
    hidden_states: bool = False
    longest_read: int = 1024


class Runner(Protocol):
    """Reads tokens into rows and answers with logits. Not thread-safe: one caller at a time."""

    @property
    def info(self) -> RunnerInfo:
        """Fixed facts about this runner."""
        ...

    @property
    def cache_bytes_per_token(self) -> int:
        """What one token takes in the cache of a row; 0 until something has been read."""
        ...

    def add_row(self) -> int:
        """Add an empty row and return its number."""
        ...

    def remove_row(self, row: int) -> None:
        """Forget a row; its number may be given out again."""
        ...

    def length(self, row: int) -> int:
        """Tokens that the row holds."""
        ...

    def crop(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of the row. Idempotent; ValueError beyond its length."""
        ...

    def read(self, reads: Sequence[Read], hidden_layers: Collection[int] = ()) -> list[Reading]:
        """Append each read's tokens to its row, all in one pass. Rows may differ in every length.

        If it raises, interrupts included, every row has the length that it had before.
        """
        ...

    def synchronize(self) -> None:
        """Wait until the device has done what was asked of it."""
        ...


@runtime_checkable
class BlockRunner(Protocol):
    """What a runner may offer besides: to write and read several tokens before the host looks at any."""

    def draft(
        self, row: int, tokens: Sequence[int], k: int, choose: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Read `tokens`, and choose k more (1 or more): their ids, int64 [k], on the device.

        choose: from the logits [1, width] behind the last token read to the next one's id, int64 [1];
        called once a token, in order, it must not wait for the device. Each chosen token but the last
        is read in a pass of its own: k passes, after which the row holds k - 1 tokens more than
        `tokens`. If it raises, the row holds what it held, and perhaps more: to be cropped.
        """
        ...

    def read_block(self, row: int, tokens: Sequence[int], block: Tensor) -> Tensor:
        """Append `tokens` (1 or more) and a block int64 [k] that lies on a device, in one pass.

        Returns the logits behind the last token and each of the block, [k + 1, width]. If it raises, the
        row has the length that it had.
        """
        ...
