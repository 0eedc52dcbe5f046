"""The weights of a GGUF file, unpacked into the tensors that transformers expects.

A tensor is unpacked some rows at a time, straight into the type that it is kept in: bfloat16 for
blocks of a few bits, whose steps are far coarser, and float32 for what the file holds as plain
numbers. So it takes hardly more memory than the model, and the file that is written from it is
mapped as it lies, in a second, by whoever runs in bfloat16. transformers' own reader, slower and
with all in one type, is what this is tested against.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from gguf import (
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFReader,
    ReaderTensor,
    dequantize,
    get_tensor_name_map,
)
from torch import Tensor
from transformers import PreTrainedConfig

from draftwise.models.gguf_tokenizer import GGUFHeader

_CHUNK = 1 << 20
"""Numbers unpacked at a time: few enough to stay in a processor's cache."""

_PLAIN = (GGMLQuantizationType.F32, GGMLQuantizationType.F16)


def unpack_gguf(
    header: GGUFHeader, config: PreTrainedConfig, names: Iterable[str]
) -> dict[str, Tensor]:
    """The file's tensors by the names that transformers gives them, those that the file has."""
    found = find_tensors(header, config, names)
    return {name: undo(header, config, name, _unpack(found[name])) for name in found}


def find_tensors(
    header: GGUFHeader, config: PreTrainedConfig, names: Iterable[str]
) -> dict[str, ReaderTensor]:
    """The file's tensors as they are, by the names that transformers gives them.

    NotImplementedError if llama.cpp changes this architecture's weights in a way not known here.
    """
    if not is_known(header):
        raise NotImplementedError("its weights are not known to the converter")
    kind = next(kind for kind, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
    stems = get_tensor_name_map(kind, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in GGUFReader(header.path).tensors}
    found = {}
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if tensor := tensors.get(f"{stems.get_name(stem)}.{suffix}"):
            found[name] = tensor
    return found


def is_known(header: GGUFHeader) -> bool:
    """Whether it is known here what llama.cpp does to weights of this architecture."""
    return header.architecture in _UNDO


def undo(header: GGUFHeader, config: PreTrainedConfig, name: str, weight: Tensor) -> Tensor:
    """A weight, or what else has its rows, without what llama.cpp did to it."""
    return _UNDO[header.architecture](name, weight, config)


def _unpack(tensor: ReaderTensor) -> Tensor:
    kind = tensor.tensor_type
    shape = [int(size) for size in reversed(tensor.shape)]
    unpacked = torch.empty(shape, dtype=torch.float32 if kind in _PLAIN else torch.bfloat16)
    packed = tensor.data.reshape(-1, tensor.data.shape[-1])
    rows = unpacked.view(len(packed), -1)
    step = max(1, _CHUNK // rows.shape[1])
    for start in range(0, len(packed), step):
        values = dequantize(packed[start : start + step], kind)
        rows[start : start + step] = torch.from_numpy(np.require(values, requirements="W"))
    return unpacked


def _as_is(name: str, weight: Tensor, config: PreTrainedConfig) -> Tensor:
    return weight


def _paired_halves(name: str, weight: Tensor, config: PreTrainedConfig) -> Tensor:
    """llama.cpp turns neighbours by one angle, transformers the two halves of a head."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    projection = name.split(".")[-2]
    if projection not in heads:
        return weight
    pairs = weight.unflatten(0, (heads[projection], -1, 2))
    return pairs.transpose(1, 2).reshape(weight.shape)


def _from_zero(name: str, weight: Tensor, config: PreTrainedConfig) -> Tensor:
    """llama.cpp adds the 1 to a norm's weights that transformers adds when it runs."""
    return weight - 1 if name.endswith("norm.weight") else weight


_Undo = Callable[[str, Tensor, PreTrainedConfig], Tensor]

_UNDO: dict[str, _Undo] = {"llama": _paired_halves, "qwen2": _as_is, "gemma3": _from_zero}
"""By architecture, what llama.cpp did to the weights, undone."""
