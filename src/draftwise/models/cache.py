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

from draftwise.core.errors import ModelError

_FIRST_CAPACITY = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """Where one pass reads and writes.

    slots: int64 [batch], slot_range the same as a slice, if they lie side by side: a view, no copy.
    positions: int64 [batch, width], the absolute position of each new token; a row with fewer new
    tokens than others repeats its last one, in its place. end: positions that attention sees at
    most. start: the common length of all rows, or None if they differ before the pass or after it.
    """

    slots: Tensor
    slot_range: slice | None
    positions: Tensor
    end: int
    start: int | None

    @property
    def width(self) -> int:
        """New tokens a row, repeats included."""
        return self.positions.shape[1]


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer. They grow by themselves: no interrupt leaves that half done.

    The `keys` and `values` of transformers' own layers stay None: a model that reaches for them,
    past `update`, would take stale tails and other rows for its past, and fails instead.
    """

    is_croppable = True

    def __init__(self, owner: "SlotCache") -> None:
        super().__init__()
        self.owner = owner
        self.key_buffer: Tensor | None = None
        self.value_buffer: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do ahead of the first pass: `update` makes room for every pass."""

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        """Write new states [batch, heads, width, size] and return all that the rows may see."""
        self.key_buffer = self._fitting(self.key_buffer, key_states)
        self.value_buffer = self._fitting(self.value_buffer, value_states)
        self.is_initialized = True
        return (
            self._written(self.key_buffer, key_states),
            self._written(self.value_buffer, value_states),
        )

    def _fitting(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Return `old` if the pass fits in, else a larger copy."""
        slots, end = self.owner.num_slots, self.owner.plan.end
        if old is not None and old.shape[0] >= slots and old.shape[2] >= end:
            return old
        capacity = _FIRST_CAPACITY if old is None else old.shape[2]
        while capacity < end:
            capacity *= 2
        buffer = new.new_zeros(slots, new.shape[1], capacity, new.shape[3])
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

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
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
        """Give out the lowest free slot, with length 0; when all are taken, there will be half more."""
        row = next(slot for slot in range(len(self.lengths) + 1) if slot not in self.lengths)
        if row >= self.num_slots:
            self.num_slots = max(row + 1, self.num_slots * 3 // 2)
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

    def get_seq_length(self, layer_idx: int | None = None) -> int:
        """Positions before the pass: a bound if the model asks. A layer that asks counts them."""
        if layer_idx is not None and self.plan.start is None:
            raise ModelError("a layer numbers its tokens itself, the same for rows of any length")
        return super().get_seq_length(layer_idx or 0)

    def begin(self, rows: Sequence[int], counts: Sequence[int], device: torch.device) -> Plan:
        """Plan a pass that appends counts[i] tokens to rows[i]. Lengths change in `commit` only."""
        if len(set(rows)) < len(rows):
            raise ValueError(f"a row may be read once in a pass, not as in {list(rows)}")
        before = [self.lengths[row] for row in rows]
        after = [length + count for length, count in zip(before, counts, strict=True)]
        starts, lasts = torch.tensor([before, after], device=device)[:, :, None]
        adjacent = list(rows) == list(range(rows[0], rows[0] + len(rows)))
        self.plan = Plan(
            slots=torch.tensor(rows, device=device),
            slot_range=slice(rows[0], rows[0] + len(rows)) if adjacent else None,
            positions=(starts + torch.arange(max(counts), device=device)).minimum(lasts - 1),
            end=max(after),
            start=before[0] if len(set(before)) == len(set(counts)) == 1 else None,
        )
        return self.plan

    def commit(self, rows: Sequence[int], counts: Sequence[int]) -> None:
        """Count the tokens of a pass that went through: all rows at once, or none."""
        self.lengths.update(
            {row: self.lengths[row] + count for row, count in zip(rows, counts, strict=True)}
        )
