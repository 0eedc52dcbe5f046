"""Which runner runs a model: the one that is named, or the faster one, by a measurement that is kept.

Speculation reads single tokens and short blocks, so those are timed: of the eager runner before a model
is converted, of OpenVINO's afterwards. A model that another runner holds gives up its own weights.
"""

import hashlib
import math
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from draftwise.core.errors import ModelError, OptionError
from draftwise.decoding.passes import time_reads
from draftwise.engine.pairing import SAMPLE
from draftwise.engine.settings import versions
from draftwise.models.devices import describe_machine
from draftwise.models.eager import EagerRunner
from draftwise.models.gguf_tokenizer import GGUFHeader, read_header
from draftwise.models.graph import GraphRunner
from draftwise.models.loading import LoadedModel
from draftwise.models.probe import require_rollback, rollback_difference
from draftwise.models.progress import progress_bar
from draftwise.models.runner import Runner
from draftwise.models.sources import find_source
from draftwise.models.store import cache_folder, keep, kept, made_once
from draftwise.models.weights import first_line

_CONVERTIBLE = (torch.float32, torch.bfloat16)
_WORTH_CONVERTING = 50e6
"""Bytes of weights: smaller models are done before a conversion would be."""

_LIKE = {torch.float32: 0.01, torch.bfloat16: 0.2}
"""Most that a conversion may differ from its model; rounding leaves 1e-5 and .1, a wrong cache .3."""

_READS = (1, 4)
_CONTEXT, _REPEATS = 64, 5


class _NotConvertibleError(ModelError):
    """OpenVINO cannot take this model, now or later."""


def open_runner(
    loaded: LoadedModel,
    kind: str = "auto",
    weights: str = "auto",
    threads: int = 1,
    guesses: bool = False,
) -> Runner:
    """Put a model behind the runner of that kind; auto: the faster one on this machine.

    weights: int8 or int4 to keep them in so many bits, or file in those of the GGUF file, which OpenVINO
    does; dtype: in those of the dtype. auto: of OpenVINO, 8 bits for a model that only guesses, and a GGUF
    file's own in bfloat16; else the dtype's.
    """
    if kind in _MAKERS and weights in _FEWER:
        raise OptionError(f"weights {weights} need --runner openvino: {kind} keeps the dtype's")
    if kind in _MAKERS:
        return _MAKERS[kind](loaded)
    if kind == "auto" and weights not in _FEWER and not _may_convert(loaded):
        return _eager(loaded)
    kept_in = _dtype(loaded) if weights == "dtype" else weights
    if weights == "auto":
        kept_in = "int8" if guesses else _usual_bits(loaded)
    if kind == "auto" and weights not in _FEWER:
        return _faster(loaded, kept_in, threads)
    return _converted(loaded, kept_in, threads, device=_DEVICES.get(kind, "CPU"))


def _usual_bits(loaded: LoadedModel) -> str:
    """Those of a GGUF file as they are, where a pass is rounded anyway; else those of the dtype."""
    if loaded.source != "gguf" or loaded.model.dtype != torch.bfloat16:
        return _dtype(loaded)
    try:
        from draftwise.models.gguf_bits import can_keep
    except ImportError:  # `_converted` says what is missing
        return _dtype(loaded)
    return "file" if can_keep(_header(loaded)) else _dtype(loaded)


def _header(loaded: LoadedModel) -> GGUFHeader:
    if loaded.source != "gguf":
        raise OptionError(f"weights as in the file need a GGUF file, and {loaded.name} is none")
    return read_header(find_source(loaded.name).path)


def _eager(loaded: LoadedModel) -> Runner:
    require_rollback(loaded.model, loaded.name)
    return EagerRunner(loaded.model, loaded.context_length)


def _graph(loaded: LoadedModel) -> Runner:
    devices = {weight.device for weight in loaded.model.parameters()}  # several, if it is spread
    if len(devices) > 1 or loaded.model.device.type != "cuda":
        raise OptionError(
            f"--runner graph needs a CUDA device, one alone, and {loaded.name} is on "
            f"{', '.join(sorted(map(str, devices)))}: choose --device cuda:0, or another runner"
        )
    require_rollback(loaded.model, loaded.name)
    return GraphRunner(loaded.model, loaded.context_length)


_MAKERS = {"eager": _eager, "graph": _graph}
"""Runners that run the transformers model itself."""

_DEVICES = {"openvino-gpu": "GPU"}
"""Runners of OpenVINO that do not run on the processor."""

_FEWER = ("int8", "int4", "file")
"""Weights in fewer bits than any dtype has."""


def _may_convert(loaded: LoadedModel) -> bool:
    """Whether a conversion is possible, wanted for an object of the user's, and worth its time."""
    model = loaded.model
    size = sum(weight.nbytes for weight in model.parameters())
    return (
        loaded.source != "object"
        and model.device.type == "cpu"
        and model.dtype in _CONVERTIBLE
        and size >= _WORTH_CONVERTING
        and find_spec("openvino") is not None
    )


def _faster(loaded: LoadedModel, weights: str, threads: int) -> Runner:
    """The runner with less time for a token and a block together, measured here and now, or earlier."""
    from draftwise.models.converting import content_key

    key = content_key(loaded.model, weights)
    where = {"machine": describe_machine(), "threads": threads} | versions()
    named = hashlib.sha256(repr((key, sorted(where.items()))).encode()).hexdigest()
    path = cache_folder() / "runners" / f"{named[:32]}.json"
    if (times := _known(path)) is not None:
        return _eager(loaded) if times[0] <= times[1] else _converted(loaded, weights, threads, key)
    eager = _eager(loaded)
    try:
        converted = _converted(loaded, weights, threads, key, gives_up=False)
    except ModelError as error:
        if isinstance(error, _NotConvertibleError):
            keep(path, [0.0, None])  # a full disk, on the other hand, may have room next time
        return eager
    times = _milliseconds(eager, loaded), _milliseconds(converted, loaded)
    keep(path, times)
    if times[0] <= times[1]:
        return eager
    _give_up(loaded)
    return converted


def _milliseconds(runner: Runner, loaded: LoadedModel) -> float:
    limit = loaded.context_length or _CONTEXT + max(_READS)
    context = max(1, min(_CONTEXT, limit - max(_READS)))
    ids = loaded.tokenizer.encode(SAMPLE)
    times = time_reads(runner, ids, context, _READS, repeats=_REPEATS)
    return sum(median(samples) for samples in times.values())


def _converted(
    loaded: LoadedModel,
    weights: str,
    threads: int,
    key: str | None = None,
    gives_up: bool = True,
    device: str = "CPU",
) -> Runner:
    """OpenVINO's runner of the model, converted where it has not been.

    gives_up: whether the model gives up its own weights first, which else are in memory twice.
    """
    try:
        from draftwise.models.converting import content_key, convert, is_converted
        from draftwise.models.openvino import OpenVinoRunner, has_gpu
    except ImportError as error:
        raise OptionError(
            'the openvino runner needs its package: pip install "draftwise[openvino]"'
        ) from error
    if device == "GPU" and not has_gpu():
        raise OptionError(
            "openvino finds no Intel GPU here: install its driver, or choose --runner openvino"
        )
    if loaded.source == "object":
        raise OptionError(
            f"{loaded.name} was given as an object, which openvino would take apart: name a folder"
        )
    if loaded.model.device.type != "cpu" or loaded.model.dtype not in _CONVERTIBLE:
        raise OptionError(
            f"openvino runs on the cpu in float32 or bfloat16, not on {loaded.model.device} in "
            f"{_dtype(loaded)}: choose those" + ("" if weights in _FEWER else ", or --runner eager")
        )
    file = _header(loaded) if weights == "file" else None
    key = key or content_key(loaded.model, weights)

    def make(ready: Path) -> None:
        require_rollback(loaded.model, loaded.name)
        title = f"Converting {loaded.name} for OpenVINO, {weights}"
        with progress_bar(title, None, True), TemporaryDirectory(dir=ready.parent) as work:
            try:
                convert(loaded.model, Path(work), weights, loaded.context_length, file=file)
            except (OSError, MemoryError):
                raise
            except Exception as error:
                raise _NotConvertibleError(
                    f"{loaded.name} cannot be converted for OpenVINO ({first_line(error)}): "
                    "choose --runner eager"
                ) from error
            if weights in (_dtype(loaded), "file"):
                _require_likeness(OpenVinoRunner(Path(work), threads), loaded)
            os.rename(work, ready)

    folder = cache_folder() / "openvino" / key
    made_once(folder, is_converted, make, f"convert {loaded.name}")
    if gives_up and device == "CPU":
        _give_up(loaded)
    try:
        runner = OpenVinoRunner(folder, threads, device)
    except RuntimeError as error:
        raise ModelError(
            f"openvino cannot open {loaded.name} on the {device} ({first_line(error)}): "
            "choose --runner eager"
        ) from error
    if device != "CPU":  # what was converted was held against the model on the processor
        if weights in (_dtype(loaded), "file"):
            _require_likeness(runner, loaded)
        _give_up(loaded)
    return runner


def _require_likeness(runner: Runner, loaded: LoadedModel) -> None:
    """A conversion that says something else than the model is not kept."""
    difference = rollback_difference(runner, loaded.model)
    if not difference < _LIKE[loaded.model.dtype]:
        raise _NotConvertibleError(
            f"{loaded.name}, converted for OpenVINO, answers otherwise (by {difference:.2g} of the "
            "spread of its logits): choose --runner eager"
        )


def _give_up(loaded: LoadedModel) -> None:
    """Free the weights of a model that another runner holds; its configuration stays."""
    torch.nn.Module.to(loaded.model, torch.device("meta"))


def _known(path: Path) -> tuple[float, float] | None:
    """Times of both runners that the cache holds; None for a time is a model that cannot be converted."""
    with suppress(ValueError, TypeError):
        eager, converted = kept(path)
        return float(eager), math.inf if converted is None else float(converted)
    return None


def _dtype(loaded: LoadedModel) -> str:
    return str(loaded.model.dtype).removeprefix("torch.")
