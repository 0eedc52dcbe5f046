"""The eager runner: any transformers causal model, called as it is, with this project's cache."""

import inspect
from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from draftwise.models.cache import SlotCache, SlotLayer
from draftwise.models.devices import synchronizer
from draftwise.models.masks import MaskMaker, layer_kinds
from draftwise.models.runner import Read, Reading, RunnerInfo


class EagerRunner:
    """Runs a transformers model. The reference for every other runner.

    model: a causal model in eval mode whose layers keep keys and values only; `probe` tells.
    """

    def __init__(self, model: PreTrainedModel, context_length: int | None = None) -> None:
        config = model.config.get_text_config()
        kinds = layer_kinds(config)
        self._model = model
        self._cache = SlotCache(len(kinds))
        self._masks = MaskMaker.of(config)
        self._takes_positions = "logits_to_keep" in inspect.signature(model.forward).parameters
        devices = {weight.device for weight in model.parameters()}  # several, if it is spread
        self._synchronizers = [synchronizer(device) for device in devices]
        self._info = RunnerInfo(
            name="eager",
            device=model.device,
            dtype=model.dtype,
            weights=str(model.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
            logit_width=config.vocab_size,
            context_length=context_length,
            cache_kinds=tuple(sorted(set(kinds))),
            weight_bytes=sum(weight.nbytes for weight in model.parameters()),
            hidden_states=True,
        )

    @property
    def info(self) -> RunnerInfo:
        """Fixed facts about this runner."""
        return self._info

    @property
    def cache_bytes_per_token(self) -> int:
        """What one token takes in the cache of a row, as the passes so far have laid it out."""
        layers = [layer for layer in self._cache.layers if isinstance(layer, SlotLayer)]
        buffers = [buffer for layer in layers for buffer in (layer.key_buffer, layer.value_buffer)]
        return sum(buffer[0, :, 0].nbytes for buffer in buffers if buffer is not None)

    def add_row(self) -> int:
        """Add an empty row and return its number."""
        return self._cache.add_row()

    def remove_row(self, row: int) -> None:
        """Forget a row."""
        self._cache.remove_row(row)

    def length(self, row: int) -> int:
        """Tokens that the row holds."""
        return self._cache.lengths[row]

    def crop(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of the row."""
        self._cache.crop(row, length)

    @torch.inference_mode()
    def read(self, reads: Sequence[Read], hidden_layers: Collection[int] = ()) -> list[Reading]:
        """Append each read's tokens to its row in one pass; the shorter repeat their last token."""
        rows, counts = [read.row for read in reads], [len(read.tokens) for read in reads]
        device = self._info.device
        plan = self._cache.begin(rows, counts, device)
        filled = [[*read.tokens, *[read.tokens[-1]] * plan.width][: plan.width] for read in reads]
        wanted = _wanted_positions(reads)
        output = self._model(
            input_ids=torch.tensor(filled, device=device),
            position_ids=plan.positions,
            attention_mask=self._masks.make(plan, self._info.dtype, device),
            cache=self._cache,
            use_cache=True,
            output_hidden_states=bool(hidden_layers),
            **(
                {"logits_to_keep": torch.tensor(wanted, device=device)}
                if self._takes_positions
                else {}
            ),
        )
        logits = output.logits if self._takes_positions else output.logits[:, wanted]
        readings = [
            Reading(
                _rows_of(logits[i], read, wanted),
                {
                    n: _rows_of(output.hidden_states[n][i, wanted], read, wanted)
                    for n in hidden_layers
                },
            )
            for i, read in enumerate(reads)
        ]
        self._cache.commit(rows, counts)
        return readings

    def synchronize(self) -> None:
        """Wait for the device, or for all that the model is spread over."""
        for synchronize in self._synchronizers:
            synchronize()


def _wanted_positions(reads: Sequence[Read]) -> list[int]:
    """Positions within the pass at which some row wants logits; one at least: models need one."""
    wanted = {len(read.tokens) - 1 - i for read in reads for i in range(read.num_logits)}
    return sorted(wanted) or [0]


def _rows_of(values: Tensor, read: Read, wanted: Sequence[int]) -> Tensor:
    """Of the values at all wanted positions, those that one read asked for: [num_logits, ...]."""
    end = len(read.tokens)
    mine = [i for i, position in enumerate(wanted) if end - read.num_logits <= position < end]
    return values[mine[0] : mine[-1] + 1] if mine else values[:0]
