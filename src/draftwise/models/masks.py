"""Which earlier positions a new token sees, by kind of layer. Windows are masks over a whole cache.

A mask is additive, [batch, 1, width, end] in the model's dtype; models with several kinds of layers
take one by kind. None stands for what the attention kernels do by themselves, which is faster: a
single new token that sees everything, or a whole sequence from its beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

from draftwise.models.cache import Plan

Masks = Tensor | None | Mapping[str, Tensor | None]

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
MASKABLE = frozenset({FULL, SLIDING, CHUNKED})


def layer_kinds(config: PreTrainedConfig) -> list[str]:
    """The kind of each layer's cache, in transformers' words, for any causal model's configuration."""
    return get_layer_types_and_kwargs(config)[0]


@dataclass(frozen=True, slots=True)
class MaskMaker:
    """Makes the masks that one model takes.

    by_kind: the model takes a mapping from kind to mask. span: the window or chunk size.
    implicit: the attention implementation fills in a missing mask (sdpa does, eager does not).
    """

    kinds: tuple[str, ...]
    by_kind: bool
    span: int | None
    implicit: bool

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "MaskMaker":
        """Read a configuration as transformers' own generate does."""
        span = getattr(config, "sliding_window", None) or getattr(
            config, "attention_chunk_size", None
        )
        return cls(
            kinds=tuple(sorted(set(layer_kinds(config)) & MASKABLE)),
            by_kind=getattr(config, "layer_types", None) is not None,
            span=span,
            implicit=config._attn_implementation == "sdpa",
        )

    def make(self, plan: Plan, dtype: torch.dtype, device: torch.device) -> Masks:
        """Masks for one pass."""
        masks = {kind: self._mask(kind, plan, dtype, device) for kind in self.kinds}
        return masks if self.by_kind else masks[self.kinds[0]]

    def _mask(
        self, kind: str, plan: Plan, dtype: torch.dtype, device: torch.device
    ) -> Tensor | None:
        unlimited = kind == FULL or self.span is None or plan.end <= self.span
        whole = plan.width == 1 or plan.start == 0
        if self.implicit and unlimited and whole and plan.start is not None:
            return None
        query, key = plan.positions.to(device)[:, :, None], torch.arange(plan.end, device=device)
        visible = key <= query
        if not unlimited and kind == SLIDING:
            visible &= key > query - self.span
        elif not unlimited:
            visible &= key // self.span == query // self.span
        mask = torch.zeros(visible.shape, dtype=dtype, device=device)
        return mask.masked_fill(~visible, torch.finfo(dtype).min)[:, None]
