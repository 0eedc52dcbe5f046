"""The one cache class, for one row and for many, for full and for sliding attention.

Keys and values lie in buffers [slots, heads, capacity, head size] that grow by doubling; every row
has a slot and a length. A crop moves the length, nothing is copied. A pass writes each row's new
tokens behind its own length, and what lies beyond the lengths is stale and hidden: by slicing where
all rows are equally long, by the mask where they are not. Sliding windows are masks too: every
position is kept, so that a crop never reaches behind what is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

_FIRST_CAPACITY = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """Where one pass reads and writes.

    slots: int64 [batch]. positions: int64 [batch, width], the absolute position of each new token;
    a row with fewer new tokens than others is padded behind its own. end: positions that attention
    sees at most. start: the common length of all rows before the pass, or None if they differ.
    """

    slots: Tensor
    positions: Tensor
    end: int
    start: int | None

    @property
    def width(self) -> int:
        """New tokens a row, padding included."""
        return self.positions.shape[1]

    @property
    def slot_range(self) -> slice | None:
        """The slots as a slice, if they lie side by side: a view instead of a copy."""
        first, count = int(self.slots[0]), len(self.slots)
        return (
            slice(first, first + count)
            if self.slots.tolist() == list(range(first, first + count))
            else None
        )


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer. Grows by itself, so an interrupted pass leaves nothing undone."""

    is_croppable = True

    def __init__(self, owner: "SlotCache") -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers on the device and in the dtype of the first keys."""
        self.keys, self.values = (self._grown(None, new) for new in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args, **kwargs
    ) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Write new states [batch, heads, width, size] and return all that the rows may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif self.keys.shape[2] < self.owner.plan.end or self.keys.shape[0] < self.owner.num_slots:
            self.keys = self._grown(self.keys, key_states)
            self.values = self._grown(self.values, value_states)
        return self._written(self.keys, key_states), self._written(self.values, value_states)

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        capacity = _FIRST_CAPACITY if old is None else old.shape[2]
        while capacity < self.owner.plan.end:
            capacity *= 2
        buffer = new.new_zeros(self.owner.num_slots, new.shape[1], capacity, new.shape[3])
        if old is not None:
            buffer[: old.shape[0], :, : old.shape[2]] = old
        return buffer

    def _written(self, buffer: Tensor, new: Tensor) -> Tensor:
        plan, slots = self.owner.plan, self.owner.plan.slot_range
        if slots is not None and plan.start is not None:
            buffer[slots, :, plan.start : plan.end] = new
            return buffer[slots, :, : plan.end]
        rows, positions = plan.slots.to(new.device), plan.positions.to(new.device)
        buffer[rows[:, None], :, positions] = new.transpose(1, 2)
        return buffer[rows if slots is None else slots, :, : plan.end]

    def get_seq_length(self) -> int:
        """Positions before this pass; the runner passes explicit positions and relies on none."""
        return self.owner.plan.end - self.owner.plan.width

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002
        """Length and offset of what `update` returns."""
        return self.owner.plan.end, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


class SlotCache(Cache):
    """The cache of one runner: its layers, and the slot and length of every row."""

    plan: Plan

    def __init__(self, num_layers: int) -> None:
        super().__init__(layers=[SlotLayer(self) for _ in range(num_layers)])
        self.lengths: dict[int, int] = {}
        self.num_slots = 1

    def add_row(self) -> int:
        """Give out the lowest free slot, with length 0; the number of slots doubles when all are taken."""
        row = next(slot for slot in range(len(self.lengths) + 1) if slot not in self.lengths)
        while row >= self.num_slots:
            self.num_slots *= 2
        self.lengths[row] = 0
        return row

    def remove_row(self, row: int) -> None:
        """Free the slot; its buffers stay for the next row."""
        del self.lengths[row]

    def crop(self, row: int, length: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set the length of a row, absolutely."""
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"row {row} holds {self.lengths[row]} tokens, not {length}")
        self.lengths[row] = length

    def begin(self, rows: Sequence[int], counts: Sequence[int]) -> Plan:
        """Plan a pass that appends counts[i] tokens to rows[i]. Lengths change in `commit` only."""
        before = [self.lengths[row] for row in rows]
        width = max(counts)
        self.plan = Plan(
            slots=torch.tensor(rows),
            positions=torch.tensor(before)[:, None] + torch.arange(width),
            end=max(before) + width,
            start=before[0] if len(set(before)) == 1 else None,
        )
        return self.plan

    def commit(self, rows: Sequence[int], counts: Sequence[int]) -> None:
        """Count the tokens of a pass that went through."""
        for row, count in zip(rows, counts, strict=True):
            self.lengths[row] += count
