"""The OpenVINO runner: a converted model, on the CPU or an Intel GPU, its cache the state of a request.

The state only grows. A crop therefore moves nothing: the slots of tokens that are gone get a position
that no token sees, new tokens go behind them, and once enough slots are waste a fresh request takes
over what is left. Positions and masks are explicit, so slots need not lie in the order of the text.

The plugin has a fast attention for many tokens into an empty state, and a slow one for all else. So a
long read behind a short prefix reads the prefix again, and a prefill is one pass.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import torch
from torch import Tensor

from draftwise.models.converting import MASK, Description
from draftwise.models.masks import MaskMaker
from draftwise.models.openvino_row import StateRow
from draftwise.models.runner import Read, Reading, RunnerInfo

_SEEN, _UNSEEN = np.float32(0), np.finfo(np.float32).min

_MOST_WASTE = 128
"""Slots that may be waste, or a quarter of the row if that is more. Every token of a pass looks at the
waste (some .002 ms a slot of a 1.5B model on two cores), and a row is taken over in 15 to 60 ms: sixty
rounds that check four tokens pay for that."""

_FILLING = 1e9
"""Bytes of weights, over those of the model: how many passes in turn may be one token wider than asked.
A new width prepares every layer anew, .15 to .2 ms a layer. A token more takes .4 ms in a draft model of
135 million weights, which goes back and forth between one token and two, and 3 in a target of 1.5 billion."""

_SLOW_ATTENTION = 100
"""What a token costs, in weights to multiply by, over what it costs to look at a slot, in numbers of the
cache: measured as 92 (1.5 billion weights in bfloat16) and 117 (135 million in int8) on two cores."""

_LEAST_PRICE = 32
"""Slots that a token costs as much as, at least: a state must be worth keeping."""

_LONGEST_READ, _BEHIND = 8192, 1024
"""Tokens of a pass into an empty state, and behind others: the slow attention keeps a number for each pair
and head, 1.6 GB for 1,024 tokens behind 32,000 and 12 heads. A mask of 8,192 tokens is a quarter of a GB."""

_INTERRUPTIBLE, _LOOK_UP_MS = 256, 50
"""Tokens from which on a pass can be interrupted, and how often it looks."""


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
        self._outputs = {port.any_name: port for port in self._compiled.outputs}
        self._width = _Width(int(_FILLING / about.weight_bytes), about.context_length)
        self._token_price = _token_price(about, device)
        self._hidden_layers = about.hidden_layers
        self._cache_bytes = about.cache_values * dtype.itemsize
        self._rows: dict[int, StateRow] = {}
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
            longest_read=_LONGEST_READ,
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
        self._rows[row] = StateRow(self._compiled.create_infer_request())
        return row

    def remove_row(self, row: int) -> None:
        """Forget a row, its state with it."""
        del self._rows[row]

    def length(self, row: int) -> int:
        """Tokens that the row holds."""
        return len(self._rows[row].tokens)

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
            self._rows[read.row].tokens += read.tokens
        return readings

    def synchronize(self) -> None:
        """Nothing to wait for: a pass returns when it is done."""

    def _read(self, row: StateRow, read: Read, hidden_layers: Collection[int]) -> Reading:
        row.crop(len(row.tokens))  # of slots that a read took which another row broke off
        self._tidy(row, len(read.tokens))
        tokens = [*row.tokens[len(row.slots) :], *read.tokens]
        wanted = max(read.num_logits, 1)
        while len(tokens) > max(limit := _BEHIND if row.slots else self._info.longest_read, wanted):
            part = min(limit, len(tokens) - wanted)
            self._pass(row, tokens[:part], 1)
            del tokens[:part]
        outputs = self._pass(row, tokens, wanted)
        return Reading(
            _copied(outputs[self._outputs["logits"]], read.num_logits),
            {
                n: _copied(outputs[self._outputs[f"hidden.{n}"]], read.num_logits)
                for n in hidden_layers
            },
        )

    def _pass(self, row: StateRow, tokens: list[int], wanted: int) -> Mapping[Any, np.ndarray]:
        """Read tokens into the state; what comes out at the last of them, `wanted` of them."""
        count = len(tokens)
        width = self._width.of(count, len(row.slots))
        key = row.positions(width)
        query = key[-width:]
        inputs = {
            "input_ids": np.array([[*tokens, *[tokens[-1]] * (width - count)]], np.int64),
            "position_ids": query[None],
            "wanted": np.arange(count - wanted, count),
            "beam_idx": np.zeros(1, np.int32),
        }
        for kind in self._masks.spans:
            visible = self._masks.visible(kind, query, key)
            inputs[f"{MASK}{kind}"] = np.where(visible, _SEEN, _UNSEEN)[None, None]
        try:
            outputs = _infer(row.request, inputs, count)
            row.take(count, len(key))
        except BaseException:
            self._recover(row)
            raise
        return outputs

    def _recover(self, row: StateRow) -> None:
        """After a pass that was broken off: keep the state if all its layers agree, else lose it."""
        lost = row.lose()
        row.begin(self._compiled.create_infer_request())
        with suppress(RuntimeError):  # it still runs
            lengths = {state.state.shape[2] for state in lost[0].query_state()}
            if len(lengths) == 1:
                row.regain(lost, lengths.pop())

    def _tidy(self, row: StateRow, count: int) -> None:
        """Before so many tokens are read: begin anew where that is faster, or get rid of waste."""
        held = len(row.slots)
        fast = min(count, self._info.longest_read - held)  # of them, if it began anew
        if (row.waste and not held) or 0 < held * self._token_price <= fast * (held + fast / 2):
            row.empty()
        elif row.waste > max(_MOST_WASTE, held // 4):
            self._take_over(row)

    def _take_over(self, row: StateRow) -> None:
        """Put what the state holds into a fresh request; the old one goes when that is whole."""
        fresh = self._compiled.create_infer_request()
        kept = {state.name: state.state for state in row.request.query_state()}
        for state in fresh.query_state():
            state.state = ov.Tensor(np.ascontiguousarray(kept[state.name].data[:, :, row.slots]))
        row.restart(fresh)


def _token_price(about: Description, device: str) -> float:
    """How many slots a token could look at in the time that it takes to be read into an empty state."""
    if device != "CPU":
        return inf  # the attention there is another
    whole: int = 8 * getattr(torch, about.dtype).itemsize
    bits = whole if about.plain else 4 if about.weights == "int4" else 8  # a file's own vary
    weights = 8 * about.weight_bytes / bits
    return max(weights / (_SLOW_ATTENTION * about.cache_values), _LEAST_PRICE)


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


def _infer(
    request: ov.InferRequest, inputs: Mapping[str, np.ndarray], count: int
) -> Mapping[Any, np.ndarray]:
    """One pass. A long one can be interrupted: else a user who has enough waits for a whole prompt."""
    if count < _INTERRUPTIBLE:
        return request.infer(inputs, share_inputs=True, share_outputs=True)
    try:
        request.start_async(inputs, share_inputs=True)
        while not request.wait_for(_LOOK_UP_MS):
            pass
    except BaseException:
        request.cancel()
        with suppress(RuntimeError):
            request.wait()
        raise
    return request.results


def _copied(output: np.ndarray, num: int) -> Tensor:
    """Values [1, n, width] at the last `num` positions; the request's own memory is used again."""
    return torch.from_numpy(output[0, len(output[0]) - num :].copy())
