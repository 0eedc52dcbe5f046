"""A GGUF file as a transformers model or folder.

transformers unpacks them but drops the scaling of rotary positions, so that a Llama 3 file would
load and write worse text; the scaling is read from the file here, or the file is refused.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from gguf import GGUFReader
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GgufConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftwise.core.errors import ModelError
from draftwise.models.gguf_tokenizer import (
    GGUFHeader,
    gguf_end_ids,
    load_gguf_tokenizer,
    read_header,
)
from draftwise.models.unpack import unpack_gguf
from draftwise.models.weights import (
    ON_CPU,
    Placement,
    first_line,
    quiet,
    read_weights,
    require_causal,
    require_whole,
)

__all__ = ["convert_gguf", "gguf_end_ids", "load_gguf_model", "load_gguf_tokenizer"]


def load_gguf_model(path: Path, placement: Placement = ON_CPU) -> PreTrainedModel:
    """The file's weights, unpacked, in a model that knows the file's end tokens."""
    with _told(header := read_header(path)):
        model = read_weights(
            str(path),
            path.parent,
            _config(header),
            placement,
            gguf_file=path.name,
            quantization_config=GgufConfig(dequantize=True),
        )
    return _ending(model, path)


def convert_gguf(path: Path, folder: Path) -> None:
    """Write the file as a transformers folder, which appears whole or not at all.

    It holds what the file's blocks unpack to, rounded to bfloat16, and its plain numbers exactly.
    """
    if folder.exists():
        raise ModelError(f"{folder} exists already: choose another folder, or remove it first.")
    tokenizer = load_gguf_tokenizer(path)
    with _told(header := read_header(path)):
        model = _ending(_unpacked_model(header), path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        unfinished = Path(scratch, folder.name)
        with quiet():
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
        os.rename(unfinished, folder)


def _unpacked_model(header: GGUFHeader) -> PreTrainedModel:
    """The file's model, each weight in the type that it is kept in."""
    config = _config(header)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(
        unpack_gguf(header, config, model.state_dict()), strict=False, assign=True
    )
    model.tie_weights()
    missing = [name for name, weight in model.named_parameters() if weight.is_meta]
    require_whole(str(header.path), missing, config)
    return model


def _ending(model: PreTrainedModel, path: Path) -> PreTrainedModel:
    """The model, told the file's end tokens."""
    if model.generation_config is not None:
        model.generation_config.eos_token_id = sorted(gguf_end_ids(path))
    return model


def _config(header: GGUFHeader) -> PreTrainedConfig:
    config = AutoConfig.from_pretrained(header.path.parent, gguf_file=header.path.name)
    require_causal(config, str(header.path))
    _set_rope_scaling(config, header)
    return config


def _set_rope_scaling(config: PreTrainedConfig, header: GGUFHeader) -> None:
    """Put the file's scaling of rotary positions into the configuration, or refuse the file."""
    rope, kind = getattr(config, "rope_parameters", None), header.get("rope.scaling.type")
    if not rope or rope.get("rope_type", "default") != "default":
        return
    if "rope_freqs.weight" in header.tensors:
        _set_llama3_scaling(config, header)
    elif kind in ("linear", "yarn"):
        rope |= {"rope_type": kind, "factor": header.get("rope.scaling.factor")}
        if kind == "yarn":
            original = header.get("rope.scaling.original_context_length")
            rope["original_max_position_embeddings"] = original
    elif kind not in (None, "none") or "rope_factors_long.weight" in header.tensors:
        raise ModelError(
            f"{header.path} scales its rotary positions by {kind or 'longrope'}, which "
            "transformers does not read from a GGUF file: give the original model's folder or Hub "
            "name instead."
        )


def _set_llama3_scaling(config: PreTrainedConfig, header: GGUFHeader) -> None:
    """Llama 3.1 and later: the file has a divisor a frequency, the configuration wants their rule.

    Only the rule's factor varies among those models, and it is the largest divisor; that the rule
    then gives the very divisors of the file is checked.
    """
    rope = config.rope_parameters
    plain = 1 / rope["rope_theta"] ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
    divisors = _tensor(header.path, "rope_freqs.weight")
    rope |= {
        "rope_type": "llama3",
        "factor": float(divisors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    if scaled.shape != divisors.shape or not torch.allclose(plain / divisors, scaled, rtol=1e-3):
        raise ModelError(
            f"{header.path} scales its rotary positions by a rule of its own: give the original "
            "model's folder or Hub name instead."
        )


def _tensor(path: Path, name: str) -> Tensor:
    """One unpacked float tensor of the file."""
    found = next(tensor for tensor in GGUFReader(path).tensors if tensor.name == name)
    return torch.from_numpy(found.data.copy())


@contextmanager
def _told(header: GGUFHeader) -> Iterator[None]:
    """Read the file in silence; what its readers raise is one ModelError of one line."""
    try:
        with quiet():
            yield
    except (ValueError, KeyError, NotImplementedError, RuntimeError) as error:
        raise ModelError(_complaint(header, error)) from error


def _complaint(header: GGUFHeader, error: Exception) -> str:
    if "not supported" in str(error) or isinstance(error, NotImplementedError):
        return (
            f"{header.path} is a GGUF file of architecture {header.architecture!r}, which cannot "
            f"be loaded here ({first_line(error)}): give the original model's folder or Hub name."
        )
    return (
        f"{header.path} cannot be loaded, the file may be cut short or damaged: {first_line(error)}"
    )
