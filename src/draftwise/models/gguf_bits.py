"""The matrices of a converted model, kept in the bits of the GGUF file that the model came from.

A block of the file is 32 small integers with a scale and, in most kinds, an offset that all of them share:
weight = scale * code + offset. OpenVINO multiplies by integers in groups with scales without widening them
first, but fast only where offsets are whole numbers of steps, and those of a file are not. So an offset
is multiplied by the sum of what its block would multiply, in a product of a thirty-second of the size:

    y = sum over blocks of  scale * (codes . x)  +  offset * sum(x)

Those are the file's weights, with no rounding but that of the offsets to the model's own type. Tables that
rows are looked up in, and blocks of other kinds, stay as they are: Q6_K among them, for in groups of 16
OpenVINO is no faster than in bfloat16.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import openvino as ov
import torch
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor
from gguf.quants import Q4_K
from openvino import opset13 as ops
from openvino.op import Constant
from torch import Tensor
from transformers import PreTrainedConfig

from draftwise.models.gguf_tokenizer import GGUFHeader
from draftwise.models.unpack import find_tensors, is_known, undo

BLOCK = 32
"""Integers with one scale."""

_PREFIX = "self.model."
"""Before a weight's own name, in what OpenVINO calls the constant."""

_NARROW = "._openvino_orig_weight"
"""Instead of ".weight", where the weight is in 16 bits."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix in blocks. codes: int8 [out, blocks, 32]; scales, offsets: float32 [out, blocks]."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    bits: int


def read_blocks(tensor: ReaderTensor) -> Blocks | None:
    """The tensor's blocks, None if they are of a kind that stays unpacked."""
    if tensor.tensor_type not in _READERS:
        return None
    rows = len(tensor.data)
    size, read = _READERS[tensor.tensor_type]
    codes, scales, offsets = read(tensor.data.reshape(-1, size))
    return Blocks(
        torch.from_numpy(codes.reshape(rows, -1, BLOCK)),
        torch.from_numpy(scales.reshape(rows, -1)),
        None if offsets is None else torch.from_numpy(offsets.reshape(rows, -1)),
        8 if tensor.tensor_type == GGMLQuantizationType.Q8_0 else 4,
    )


def can_keep(header: GGUFHeader) -> bool:
    """Whether there is anything to keep, in a file whose weights are known."""
    kinds = {tensor.tensor_type for tensor in GGUFReader(header.path).tensors}
    return is_known(header) and not kinds.isdisjoint(_READERS)


def keep_bits(model: ov.Model, header: GGUFHeader, config: PreTrainedConfig) -> int:
    """Put the file's blocks into the products of a freshly converted model, in place.

    Returns the bytes of all constants, those included that take the blocks' place. NotImplementedError if
    there is nothing to keep.
    """
    products = dict(_products(model))
    summed: dict[ov.Output, ov.Node] = {}
    kept = 0
    for name, tensor in find_tensors(header, config, products).items():
        blocks = read_blocks(tensor)
        if blocks is None:
            continue
        undone = partial(undo, header, config, name)
        product = products[name]
        x = product.input_value(0)
        narrow = ops.matmul(
            x, _grouped(undone(blocks.codes), undone(blocks.scales), blocks.bits), False, True
        )
        if blocks.offsets is not None:
            if x not in summed:
                summed[x] = _block_sums(x, blocks.offsets.shape[1])
            offsets = _plain(undone(blocks.offsets), product.input_value(1).get_node())
            narrow = ops.add(narrow, ops.matmul(summed[x], offsets, False, True))
        for reader in product.output(0).get_target_inputs():
            reader.replace_source_output(narrow.output(0))
        kept += 1
    if not kept:
        raise NotImplementedError("none of its matrices is in blocks that are kept")
    model.validate_nodes_and_infer_types()
    return sum(n.get_byte_size() for n in model.get_ops() if isinstance(n, Constant))


def _products(model: ov.Model) -> Iterator[tuple[str, ov.Node]]:
    """Products with a weight of the model, and transformers' name of the weight."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul" and (weight := _constant(node)):
            name = weight.get_friendly_name()
            yield name.removeprefix(_PREFIX).replace(_NARROW, ".weight"), node


def _constant(product: ov.Node) -> Constant | None:
    """What a product multiplies by, without the conversion that widens it."""
    node = product.input_value(1).get_node()
    if node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    return node if isinstance(node, Constant) else None


def _grouped(codes: Tensor, scales: Tensor, bits: int) -> ov.Node:
    """The matrix in the form that OpenVINO knows as one in groups."""
    rows, blocks, _ = codes.shape
    values, kind = codes.contiguous().numpy(), ov.Type.i8
    if bits == 4:
        pairs = values.view(np.uint8).reshape(-1, 2) & 0xF
        values, kind = pairs[:, 0] | pairs[:, 1] << 4, ov.Type.i4
    integers = _held(values, codes.shape, kind)
    scaled = ops.multiply(ops.convert(integers, "f32"), ops.constant(scales[..., None].numpy()))
    return ops.reshape(scaled, ops.constant(np.array([rows, blocks * BLOCK])), False)


def _block_sums(x: ov.Output, blocks: int) -> ov.Node:
    """[..., blocks * 32] to [..., blocks]."""
    shape = [0] * (len(x.get_partial_shape()) - 1) + [blocks, BLOCK]
    apart = ops.reshape(x, ops.constant(np.array(shape)), True)
    return ops.reduce_sum(apart, ops.constant(-1), False)


def _plain(matrix: Tensor, like: ov.Node) -> ov.Node:
    """A matrix in the type of another of the model, and widened where that is."""
    if like.get_type_name() != "Convert":
        return ops.constant(matrix.numpy())
    halves = matrix.to(torch.bfloat16).view(torch.int16).numpy()
    widened = ops.convert(_held(halves, matrix.shape, ov.Type.bf16), "f32")
    widened.get_rt_info()["decompression_0"] = ""  # keeps it narrow until it is used
    return widened


def _held(values: np.ndarray, shape: Sequence[int], kind: ov.Type) -> Constant:
    """A constant that holds the values itself, though numpy does not know their kind."""
    held = ov.Tensor(kind, ov.Shape(shape))
    ov.Tensor(values, held.shape, kind).copy_to(held)
    return ops.constant(held, shared_memory=True)


_Parts = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Codes, scales and offsets of some blocks, [n, 32] and [n]; of Q4_K eight times as many."""


def _q4_0(data: np.ndarray) -> _Parts:
    return _nibbles(data[:, 2:], 16), _halves(data[:, :2]), None


def _q4_1(data: np.ndarray) -> _Parts:
    scales = _halves(data[:, :2])
    return _nibbles(data[:, 4:], 16), scales, _halves(data[:, 2:4]) + 8 * scales


def _q8_0(data: np.ndarray) -> _Parts:
    return data[:, 2:].view(np.int8).copy(), _halves(data[:, :2]), None


def _q4_k(data: np.ndarray) -> _Parts:
    """Eight blocks, whose scales and minima are 6 bits each, in steps that all share."""
    steps, minima = Q4_K.get_scale_min(data[:, 4:16])
    scales = _halves(data[:, :2]) * steps
    offsets = 8 * scales - _halves(data[:, 2:4]) * minima
    return _nibbles(data[:, 16:], 32), scales, offsets


def _halves(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _nibbles(data: np.ndarray, run: int) -> np.ndarray:
    """Codes from -8 to 7: of each `run` bytes the low halves, and behind them the high ones."""
    runs = data.reshape(len(data), -1, 1, run)
    return (np.concatenate([runs & 0xF, runs >> 4], axis=2) - np.uint8(8)).view(np.int8)


_READERS: dict[GGMLQuantizationType, tuple[int, Callable[[np.ndarray], _Parts]]] = {
    GGMLQuantizationType.Q4_0: (18, _q4_0),
    GGMLQuantizationType.Q4_1: (20, _q4_1),
    GGMLQuantizationType.Q4_K: (144, _q4_k),
    GGMLQuantizationType.Q8_0: (34, _q8_0),
}
"""Bytes of a block, and what takes it apart."""
