"""The OpenVINO runner: a converted model, on the CPU or an Intel GPU, its cache the state of a request.

The state only grows. A crop therefore moves nothing: the slots of tokens that are gone get a position
that no token sees, new tokens go behind them, and once enough slots are waste a fresh request takes
over what is left. Positions and masks are explicit, so slots need not lie in the order of the text.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import torch
from torch import Tensor

from draftwise.models.converting import MASK, Description
from draftwise.models.masks import MaskMaker
from draftwise.models.runner import Read, Reading, RunnerInfo

_NOWHERE = 1 << 62
"""Position of a slot whose token is gone: behind every token that could ask."""

_MOST_WASTE = 128
"""Slots that may be waste, or a quarter of the row if that is more. Every pass reads the waste (some
.02 ms a slot of a 1.5B model on two cores), and a row is taken over in about 80 ms: sixty rounds of
two rejected tokens pay for that."""

_FILLING = 1e9
"""Bytes of weights, over those of the model: how many passes in turn may be one token wider than asked.
A new width prepares every layer anew, .15 to .2 ms a layer. A token more takes .4 ms in a draft model of
135 million weights, which goes back and forth between one token and two, and 3 in a target of 1.5 billion."""


class _Width:
    """How many tokens wide passes are: where they go back and forth, a token more than asked for a while."""

    def __init__(self, most: int, context_length: int | None) -> None:
        self._most, self._context = most, context_length
        self._last = self._asked = self._before = self._wider = 0

    def of(self, count: int, length: int) -> int:
        """Of a pass over so many tokens behind so many others."""
        fits = self._context is None or length + self._last <= self._context
        returns = count in (self._before, self._asked) and self._last == count + 1
        if returns and fits and self._wider < self._most:
            self._wider += 1
        else:
            self._last, self._wider = count, 0
        self._before, self._asked = self._asked, count
        return self._last


class _Row:
    """A request, the position that each slot of its state stands for, and the slots of held tokens."""

    def __init__(self, request: ov.InferRequest) -> None:
        self.request = request
        self.positions = torch.empty(0, dtype=torch.int64)
        self.slots: list[int] = []
        self._new = 0  # the first slot of the last read

    @property
    def waste(self) -> int:
        return len(self.positions) - len(self.slots)

    def crop(self, length: int) -> None:
        self.positions[self.slots[length:]] = _NOWHERE
        del self.slots[length:]

    def own(self, used: int) -> None:
        """Count the state's slots. New ones belong to no token until the whole read is through."""
        self._new = len(self.positions)
        new = self.positions.new_full((used - len(self.positions),), _NOWHERE)
        self.positions = torch.cat([self.positions, new])

    def hold(self, count: int) -> None:
        """Hold the tokens of the first `count` slots that the last read took."""
        first, length = self._new, len(self.slots)
        # Slots before positions: an interrupt between them leaves a row too long, which is cropped.
        self.slots += range(first, first + count)
        self.positions[first : first + count] = torch.arange(length, length + count)

    def restart(self, request: ov.InferRequest) -> None:
        """Go on with a request whose state holds the held tokens, in their order."""
        self.request, length = request, len(self.slots)
        self.positions, self.slots = torch.arange(length), list(range(length))


class OpenVinoRunner:
    """Runs a converted model. Rows are read one after the other: each has a request of its own.

    folder: what `converting` made. threads: of the processor. device: "CPU", or "GPU" for one of Intel.
    """

    def __init__(self, folder: Path, threads: int, device: str = "CPU") -> None:
        about = Description.read(folder)
        self._masks = MaskMaker(about.spans, by_kind=True, implicit=False)
        dtype = getattr(torch, about.dtype)
        if device == "GPU" and dtype == torch.bfloat16:
            dtype = torch.float16  # Intel's GPUs have no other 16 bits in OpenVINO
        self._compiled = ov.Core().compile_model(
            folder / "model.xml", device, _properties(dtype, threads, about.group, device)
        )
        self._width = _Width(int(_FILLING / about.weight_bytes), about.context_length)
        self._hidden_layers = about.hidden_layers
        self._cache_bytes = about.cache_values * dtype.itemsize
        self._rows: dict[int, _Row] = {}
        self._info = RunnerInfo(
            name="openvino" if device == "CPU" else "openvino-gpu",
            device=torch.device("cpu"),  # where logits are
            dtype=dtype,
            weights=str(dtype).removeprefix("torch.") if about.plain else about.weights,
            threads=threads,
            logit_width=about.logit_width,
            context_length=about.context_length,
            cache_kinds=tuple(sorted(about.spans)),
            weight_bytes=about.weight_bytes,
            hidden_states=bool(about.hidden_layers),
        )

    @property
    def info(self) -> RunnerInfo:
        """Fixed facts about this runner."""
        return self._info

    @property
    def cache_bytes_per_token(self) -> int:
        """What one token takes in the cache of a row."""
        return self._cache_bytes

    def add_row(self) -> int:
        """Add an empty row and return its number."""
        row = next(n for n in range(len(self._rows) + 1) if n not in self._rows)
        self._rows[row] = _Row(self._compiled.create_infer_request())
        return row

    def remove_row(self, row: int) -> None:
        """Forget a row, its state with it."""
        del self._rows[row]

    def length(self, row: int) -> int:
        """Tokens that the row holds."""
        return len(self._rows[row].slots)

    def crop(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of the row."""
        if not 0 <= length <= self.length(row):
            raise ValueError(f"row {row} holds {self.length(row)} tokens, not {length}")
        self._rows[row].crop(length)

    def read(self, reads: Sequence[Read], hidden_layers: Collection[int] = ()) -> list[Reading]:
        """Append each read's tokens to its row, one read after the other; held once all are read."""
        if len({read.row for read in reads}) < len(reads):
            raise ValueError(f"a row may be read once in a pass, not as in {reads}")
        if absent := set(hidden_layers) - set(self._hidden_layers):
            raise ValueError(f"the model was converted without the hidden states of {absent}")
        readings = [self._read(self._rows[read.row], read, hidden_layers) for read in reads]
        for read in reads:
            self._rows[read.row].hold(len(read.tokens))
        return readings

    def synchronize(self) -> None:
        """Nothing to wait for: a pass returns when it is done."""

    def _read(self, row: _Row, read: Read, hidden_layers: Collection[int]) -> Reading:
        if row.waste > max(_MOST_WASTE, len(row.slots) // 4):
            self._take_over(row)
        count, length = len(read.tokens), len(row.slots)
        width = self._width.of(count, length)
        query = torch.arange(length, length + width)
        key = torch.cat([row.positions, query])
        first = count - max(read.num_logits, 1)
        inputs = {
            "input_ids": np.array([[*read.tokens, *[read.tokens[-1]] * (width - count)]], np.int64),
            "position_ids": query[None].numpy(),
            "wanted": np.arange(first, count),
            "beam_idx": np.zeros(1, np.int32),
        }
        for kind in self._masks.spans:
            mask = self._masks.additive(kind, query, key, torch.float32)
            inputs[f"{MASK}{kind}"] = mask[None, None].numpy()
        try:
            outputs = row.request.infer(inputs, share_inputs=True, share_outputs=True)
        except BaseException:  # an interrupt arrives behind the pass: the state may have grown
            row.own(_state_length(row.request))
            raise
        row.own(len(key))
        return Reading(
            _copied(outputs["logits"], read.num_logits),
            {n: _copied(outputs[f"hidden.{n}"], read.num_logits) for n in hidden_layers},
        )

    def _take_over(self, row: _Row) -> None:
        """Put what the row holds into a fresh request; the old one goes when that is whole."""
        fresh = self._compiled.create_infer_request()
        kept = {state.name: state.state for state in row.request.query_state()}
        for state in fresh.query_state():
            state.state = ov.Tensor(np.ascontiguousarray(kept[state.name].data[:, :, row.slots]))
        row.restart(fresh)


def has_gpu() -> bool:
    """Whether OpenVINO finds a GPU of Intel here."""
    return any(device.partition(".")[0] == "GPU" for device in ov.Core().available_devices)


def _properties(dtype: torch.dtype, threads: int, group: int, device: str) -> dict[str, str | int]:
    """How the plugin is to run: in the model's precision, and one pass as fast as can be."""
    exact = dtype == torch.float32
    kind = "f32" if exact else "f16" if dtype == torch.float16 else "bf16"
    properties: dict[str, str | int] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": kind,
        "KV_CACHE_PRECISION": kind,  # by default 8 bits, which are not the model's
        # Beside weights in fewer bits the plugin rounds what they multiply to 8, group by group; with
        # groups of another size than theirs it is slower. In float32 it is to be exact.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0 if exact else group,
    }
    return properties | ({"INFERENCE_NUM_THREADS": threads} if device == "CPU" else {})


def _state_length(request: ov.InferRequest) -> int:
    return request.query_state()[0].state.shape[2]


def _copied(output: np.ndarray, num: int) -> Tensor:
    """Values [1, n, width] at the last `num` positions; the request's own memory is used again."""
    return torch.from_numpy(output[0, len(output[0]) - num :].copy())
