"""One pass over a text answers every prefix of it: shown, and held against other passes.

A position sees nothing to its right, so a pass over n tokens gives n predictions, each that of a pass
which ends there: this is what makes checking cheap. Passes of different lengths use different kernels,
so their logits may differ by rounding, and by no more (see also `decoding.proof`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftwise.core.errors import ModelError, OptionError, PromptError
from draftwise.decoding.proof import largest_bound, last_place
from draftwise.engine.pairing import vocabulary_of
from draftwise.measure.records import Conditions, NestingRecord, Prediction
from draftwise.models.loading import LoadedModel
from draftwise.models.row import Row
from draftwise.models.runner import Runner


@dataclass(frozen=True, slots=True)
class Nesting:
    """What one pass over a text says behind each prefix, against what other passes say.

    alone: against a pass of its own over every prefix. shortened: against one pass over the first
    tokens. bound: how far rounding may move a logit.
    """

    text: str
    alone: tuple[Prediction, ...]
    shortened: tuple[Prediction, ...]
    bound: float

    @property
    def largest_difference(self) -> float:
        """The largest difference between logits, over both comparisons."""
        return max(p.difference for p in (*self.alone, *self.shortened))

    @property
    def fault(self) -> bool:
        """Whether a prediction differs by more than rounding explains."""
        return self.largest_difference > self.bound

    @property
    def near_ties(self) -> tuple[Prediction, ...]:
        """Predictions of another token, where rounding decides between two."""
        return tuple(p for p in (*self.alone, *self.shortened) if not p.same)

    def record(self, conditions: Conditions) -> NestingRecord:
        """What is kept of it."""
        return NestingRecord(
            conditions=conditions,
            text=self.text,
            predictions=self.alone,
            shortened=len(self.shortened),
            shortened_difference=max(p.difference for p in self.shortened),
        )


def nest(target: LoadedModel, runner: Runner, text: str, shortened: int | None = None) -> Nesting:
    """Read a raw text in one pass, shortened in another, and every prefix in a pass of its own.

    shortened: tokens that the shortened text keeps, by default the essay's five of eight.
    """
    ids = target.tokenizer.encode(text)
    _check_length(len(ids), runner.info.context_length)
    kept = min(math.ceil(5 / 8 * len(ids)), len(ids) - 1) if shortened is None else shortened
    if not 1 <= kept < len(ids):
        raise OptionError(
            f"shortened is {kept}, and the text has {len(ids)} tokens: keep 1 to {len(ids) - 1}"
        )
    size = vocabulary_of(target, runner).size
    whole, first = _one_pass(runner, ids, size), _one_pass(runner, ids[:kept], size)
    alone = torch.cat([_one_pass(runner, ids[:end], size)[-1:] for end in range(1, len(ids) + 1)])
    dtype = runner.info.dtype
    return Nesting(
        text=text,
        alone=_compare(target, ids, whole, alone),
        shortened=_compare(target, ids, whole, first),
        bound=largest_bound(dtype, last_place(dtype, float(whole.abs().max()))),
    )


def _check_length(num: int, context_length: int | None) -> None:
    if num < 2:
        raise PromptError(f"the text has {num} token{'s' * (num != 1)}: nesting takes two or more")
    if context_length is not None and num > context_length:
        raise PromptError(
            f"the text has {num} tokens, and the target's context ends at {context_length}: shorten it"
        )


def _one_pass(runner: Runner, ids: list[int], size: int) -> Tensor:
    """Logits behind every prefix, from a single read: [len(ids), size]."""
    with Row(runner) as row:
        logits = row.logits(ids, len(ids))[:, :size].cpu()
    if not bool(logits.isfinite().all()):
        raise ModelError(
            "The logits are infinite or not a number: load the model with --dtype float32."
        )
    return logits


def _compare(
    target: LoadedModel, ids: Sequence[int], whole: Tensor, other: Tensor
) -> tuple[Prediction, ...]:
    """The first predictions of the whole text's pass beside those of another."""
    decode = target.tokenizer.decode
    whole = whole[: len(other)].double()
    differences = (whole - other.double()).abs().amax(-1).tolist()
    said, otherwise = whole.argmax(-1).tolist(), other.argmax(-1).tolist()
    return tuple(
        Prediction(
            prefix=decode(ids[: i + 1], skip_special=False),
            token=decode([said[i]], skip_special=False),
            alone=decode([otherwise[i]], skip_special=False),
            same=said[i] == otherwise[i],
            difference=differences[i],
        )
        for i in range(len(other))
    )
