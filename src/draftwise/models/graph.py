"""The graph runner: the eager runner's short passes, captured as CUDA graphs.

A small model's kernels take less time than launching them; a graph launches a whole pass at once. It
repeats what was captured, shapes and addresses included. So what differs from pass to pass, where the
row ends and which tokens follow, lies in one buffer that the device reads, and the rest goes by sizes:
new tokens are filled up to a few widths, and attention sees a few lengths of the cache, behind a mask.
The cache is the eager runner's. It keeps its addresses until it grows, and then passes are captured
anew. Long reads, several rows at once and hidden states are read as the eager runner reads them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from operator import is_

import torch
from torch import Tensor
from transformers import PreTrainedModel

from draftwise.models.cache import Plan, SlotLayer
from draftwise.models.eager import EagerRunner
from draftwise.models.runner import Read, Reading

_WIDTHS = (1, 2, 4, 8, 16, 32)
"""New tokens of captured passes. On a GPU that reads all weights in any case, filling up is free."""

_SHORTEST = 256
"""Positions that attention sees at least. Then it doubles, as the cache does."""

_WARM_UPS = 3

Pass = Callable[[], Tensor]
Capture = Callable[[Pass], Pass]
"""Makes of a pass over fixed addresses one that does the same. Its result lasts until any other that was
made by this capture is called."""


def direct(run: Pass) -> Pass:
    """No capture: the pass itself, for devices without graphs."""
    return run


class CudaGraphs:
    """Captures passes as CUDA graphs, which share the memory of their intermediate values."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream()
            self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Pass) -> Pass:
        """Run it a few times, since libraries set themselves up in their first calls; then capture."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):  # restored even where a capture breaks off
                for _ in range(_WARM_UPS):
                    run()
                with torch.cuda.graph(
                    graph, self._pool, self._stream, capture_error_mode="thread_local"
                ):
                    result = run()
            torch.cuda.current_stream().wait_stream(self._stream)

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


def _width(count: int) -> int:
    """The narrowest pass that reads so many tokens."""
    return next(width for width in _WIDTHS if width >= count)


def capture_on(device: torch.device) -> Capture:
    """The way of capturing that a device has."""
    return CudaGraphs(device) if device.type == "cuda" else direct


class GraphRunner(EagerRunner):
    """Runs a transformers model, all on one device. Short reads of one row are replayed.

    begin: makes a fresh capture for the passes over one set of buffers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        context_length: int | None = None,
        begin: Callable[[torch.device], Capture] = capture_on,
    ) -> None:
        super().__init__(model, context_length)
        self._info = replace(self._info, name="graph")
        self._begin = begin
        self._inputs = torch.zeros(2 + _WIDTHS[-1], dtype=torch.int64, device=model.device)
        self._buffers: list[Tensor] = []
        self._capture: Capture = direct
        self._captured: dict[tuple[int, int, int], Pass] = {}

    @torch.inference_mode()
    def read(self, reads: Sequence[Read], hidden_layers: Collection[int] = ()) -> list[Reading]:
        """Append each read's tokens to its row in one pass."""
        read, count = reads[0], len(reads[0].tokens)
        if len(reads) > 1 or hidden_layers or count > _WIDTHS[-1]:
            return super().read(reads, hidden_layers)
        width = _width(count)
        self._put(self.length(read.row), count, *read.tokens, *[read.tokens[-1]] * (width - count))
        return [Reading(self._append(read.row, count, width)[count - read.num_logits :])]

    @torch.inference_mode()
    def draft(
        self, row: int, tokens: Sequence[int], k: int, choose: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Read `tokens`, and choose k more, each but the last read as well: int64 [k], on the device.

        choose: from logits [1, width] to an id, int64 [1]. Nothing here waits for the device. If it
        raises, the row holds what it held, and perhaps more: to be cropped.
        """
        ids = [choose(self.read([Read(row, tokens, 1)])[0].logits)]
        while len(ids) < k:
            self._put(self.length(row), 1)
            self._inputs[2:3] = ids[-1]
            ids.append(choose(self._append(row, 1, 1)))
        return torch.cat(ids)

    @torch.inference_mode()
    def read_block(self, row: int, tokens: Sequence[int], block: Tensor) -> Tensor:
        """Append `tokens` and a block that lies on a device; the logits behind them, [k + 1, width]."""
        count, num = len(tokens) + len(block), len(block) + 1
        if count > _WIDTHS[-1]:
            return self.read([Read(row, [*tokens, *block.tolist()], num)])[0].logits
        width = _width(count)
        self._put(self.length(row), count, *tokens)
        self._inputs[2 + len(tokens) : 2 + count] = block
        self._inputs[2 + count : 2 + width] = block[-1]
        return self._append(row, count, width)[count - num :]

    def _put(self, *values: int) -> None:
        """Set the inputs: the row's length, how many tokens are real, and the tokens.

        The copy is queued behind the passes that read the last ones. Memory for it is fresh each time:
        torch gives it out again only when the copy is done.
        """
        host = torch.tensor(values, pin_memory=self._info.device.type == "cuda")
        self._inputs[: len(values)].copy_(host, non_blocking=True)

    def _append(self, row: int, count: int, width: int) -> Tensor:
        """Read the inputs into the row, and return the logits at each real token: [count, vocab]."""
        end = _SHORTEST
        while end < self.length(row) + count:
            end *= 2
        logits = self._fixed(row, width, end)()[:count].clone()  # the next replay writes there
        self._cache.commit([row], [count])
        return logits

    def _fixed(self, row: int, width: int, end: int) -> Pass:
        """The captured pass; one that has yet to make room for itself runs as it is."""
        layers = [layer for layer in self._cache.layers if isinstance(layer, SlotLayer)]
        both = [buffer for layer in layers for buffer in (layer.key_buffer, layer.value_buffer)]
        buffers = [buffer for buffer in both if buffer is not None]
        if len(buffers) != len(self._buffers) or not all(map(is_, buffers, self._buffers)):
            self._captured.clear()
            self._buffers, self._capture = buffers, self._begin(self._info.device)
        key = row, width, end
        if key not in self._captured:
            run = partial(self._pass, *key)
            slots = self._cache.num_slots
            if not buffers or any(b.shape[0] < slots or b.shape[2] < end for b in buffers):
                return run
            self._captured[key] = self._capture(run)
        return self._captured[key]

    def _pass(self, row: int, width: int, end: int) -> Tensor:
        """The model over the inputs: logits [width, vocab]. Surplus tokens repeat the last, in its place."""
        device, (start, count) = self._info.device, self._inputs[:2]
        positions = (start + torch.arange(width, device=device)).minimum(start + count - 1)[None]
        self._cache.plan = plan = Plan(
            slots=torch.full((1,), row, device=device),
            slot_range=slice(row, row + 1),
            positions=positions,
            end=end,
            start=None,
        )
        output = self._model(
            input_ids=self._inputs[None, 2 : 2 + width],
            position_ids=positions,
            attention_mask=self._masks.make(plan, self._info.dtype, device),
            cache=self._cache,
            use_cache=True,
        )
        return output.logits[0]
