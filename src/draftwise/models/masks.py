"""Which earlier positions a new token sees, by kind of layer. Windows are masks over a whole cache.

A mask is additive, [batch, 1, width, end] in the model's dtype; models with several kinds of layers
take one by kind. None stands for what the attention kernels do by themselves, which is faster: a
single new token that sees everything, or a whole sequence from its beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

from draftwise.core.errors import ModelError
from draftwise.models.cache import Plan

Positions = TypeVar("Positions", Tensor, np.ndarray)
Masks = Tensor | None | Mapping[str, Tensor | None]

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
MASKABLE = frozenset({FULL, SLIDING, CHUNKED})


def layer_kinds(config: PreTrainedConfig) -> list[str]:
    """Return the kind of each layer's cache, in transformers' words, for any causal model."""
    return get_layer_types_and_kwargs(config)[0]


@dataclass(frozen=True, slots=True)
class MaskMaker:
    """Makes the masks that one model takes.

    spans: window or chunk size of each kind of layer, None if it sees everything. by_kind: the
    model takes a mapping from kind to mask. implicit: the attention implementation fills in a
    missing mask (sdpa does, eager does not).
    """

    spans: Mapping[str, int | None]
    by_kind: bool
    implicit: bool

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "MaskMaker":
        """Read a configuration as transformers' own generate does; ModelError if it cannot."""
        layers = zip(*get_layer_types_and_kwargs(config), strict=True)
        windows = {(kind, opt.get("sliding_window")) for kind, opt in layers if kind in MASKABLE}
        spans = dict(windows)
        by_kind = getattr(config, "layer_types", None) is not None
        if len(spans) < len(windows) or (len(spans) > 1 and not by_kind):
            raise ModelError(
                "its layers see windows of several sizes, and a model takes one mask a kind"
            )
        return cls(spans, by_kind, implicit=config._attn_implementation == "sdpa")

    def make(self, plan: Plan, dtype: torch.dtype, device: torch.device) -> Masks:
        """Masks for one pass."""
        masks = {kind: self._mask(kind, plan, dtype, device) for kind in self.spans}
        return masks if self.by_kind else next(iter(masks.values()))

    def _mask(
        self, kind: str, plan: Plan, dtype: torch.dtype, device: torch.device
    ) -> Tensor | None:
        span = self.spans[kind] or plan.end
        unlimited = plan.end <= span
        whole = plan.width == 1 or plan.start == 0
        if plan.width == 1 and device.type == "cpu" and dtype.itemsize < 4:
            whole = False  # without a mask, grouped heads in 16 bits take 3 to 6 times as long here
        if self.implicit and unlimited and whole and plan.start is not None:
            return None
        key = torch.arange(plan.end, device=device)
        visible = self.visible(kind, plan.positions, key)[:, None]
        mask = torch.zeros(visible.shape, dtype=dtype, device=device)
        return mask.masked_fill(~visible, torch.finfo(dtype).min)

    def visible(self, kind: str, query: Positions, key: Positions) -> Positions:
        """Whether tokens at positions query [..., width] see those at key [end]: [..., width, end]."""
        query, span = query[..., None], self.spans[kind]
        visible: Any = key <= query
        if span is not None:
            visible &= key > query - span if kind == SLIDING else key // span == query // span
        return visible
