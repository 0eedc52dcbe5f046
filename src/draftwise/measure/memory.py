"""Does a pair fit? Weights and cache against the memory of the device that the target runs on.

Counted are the weights, and the cache of one row at a given length. The work space of a pass comes on
top, .3 GB for a prompt of 3,000 tokens of a 1.5B model: a pair that fits with nothing to spare does not fit.
"""

from dataclasses import dataclass

import psutil
import torch

from draftwise.models.runner import Read, Runner

_GB = 1e9


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Bytes needed and bytes there.

    draft_weights, cache_per_token: the draft's share is 0 where it runs on another device, and a
    target that drafts for itself has its weights once. available: what is free, and what this process
    holds already.
    """

    target_weights: int
    draft_weights: int
    cache_per_token: int
    context: int
    available: int
    device: str

    @property
    def needed(self) -> int:
        """Weights, and cache for the whole context."""
        return self.target_weights + self.draft_weights + self.cache_per_token * self.context

    @property
    def fits(self) -> bool:
        """Whether it is all there."""
        return self.needed <= self.available

    def __str__(self) -> str:
        cache = self.cache_per_token * self.context
        parts = [f"target {self.target_weights / _GB:.2f}"]
        if self.draft_weights:
            parts.append(f"draft {self.draft_weights / _GB:.2f}")
        parts.append(f"cache {cache / _GB:.2f} for {self.context:,} tokens")
        return (
            f"{'fits' if self.fits else 'does not fit'}: {self.needed / _GB:.2f} GB needed "
            f"({', '.join(parts)}), {self.available / _GB:.2f} GB available on {self.device}"
        )


def memory_fit(target: Runner, draft: Runner | None, context: int) -> MemoryFit:
    """Count what a target and its draft need for one text of `context` tokens, both loaded already."""
    device = target.info.device
    beside = draft if draft is not None and draft.info.device == device else None
    runners = [target] if beside in (None, target) else [target, beside]
    weights = [runner.info.weight_bytes for runner in runners]
    return MemoryFit(
        target_weights=weights[0],
        draft_weights=sum(weights[1:]),
        cache_per_token=sum(_cache_per_token(runner) for runner in (target, beside) if runner),
        context=context,
        available=_available(device, sum(weights)),
        device=str(device),
    )


def _cache_per_token(runner: Runner) -> int:
    if not runner.cache_bytes_per_token:
        row = runner.add_row()
        try:
            runner.read([Read(row, [0])])
        finally:
            runner.remove_row(row)
    return runner.cache_bytes_per_token


def _available(device: torch.device, weights: int) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    return psutil.virtual_memory().available + weights
