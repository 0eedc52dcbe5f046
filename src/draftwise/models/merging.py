"""Matrices that multiply one and the same input, put together into one: queries with keys and values,
and a gate with what it opens.

A short pass spends its time on reading weights and on starting operations, of which two in five go.
Each row of a product is summed as before, so what comes out differs by rounding alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino.op import Constant


@dataclass(frozen=True, slots=True)
class _Product:
    """One matrix of a group. weight [out, in]; bias of `out` numbers; sources: what hands weight and bias
    on, themselves or their conversions; result: behind the bias."""

    product: ov.Node
    weight: Constant
    bias: Constant | None
    sources: tuple[ov.Node, ...]
    result: ov.Output


def merge_products(model: ov.Model) -> int:
    """Merge in place; returns how many groups were."""
    groups = [group for node in model.get_ordered_ops() for group in _groups(node)]
    for group in groups:
        _merge(group)
    model.validate_nodes_and_infer_types()
    return len(groups)


def _groups(node: ov.Node) -> Iterator[list[_Product]]:
    """Products of each output of a node that fit together: two or more, all with a bias or none."""
    for output in node.outputs():
        found = [product for reader in output.get_target_inputs() if (product := _product(reader))]
        found.sort(key=lambda product: product.product.get_friendly_name())
        kinds = {(p.bias is None, p.weight.get_element_type()) for p in found}
        if len(found) > 1 and len(kinds) == 1:
            yield found


def _product(reader: ov.Input) -> _Product | None:
    """What a reader of the common input makes of it, if that is x times a constant, turned over."""
    node = reader.get_node()
    if node.get_type_name() != "MatMul" or reader.get_index() != 0:
        return None
    how, weight = node.get_attributes(), _constant(node.input_value(1))
    if weight is None or len(weight.shape) != 2 or how["transpose_a"] or not how["transpose_b"]:
        return None
    source, readers = node.input_value(1).get_node(), list(node.output(0).get_target_inputs())
    if len(readers) == 1 and readers[0].get_node().get_type_name() == "Add":
        add = readers[0].get_node()
        value = add.input_value(1 - readers[0].get_index())
        bias = _constant(value)
        if bias is not None and bias.data.size == weight.shape[0]:
            return _Product(node, weight, bias, (source, value.get_node()), add.output(0))
    return _Product(node, weight, None, (source,), node.output(0))


def _constant(value: ov.Output) -> Constant | None:
    """The constant behind a value, or behind a conversion that widens it for one reader."""
    node = value.get_node()
    if node.get_type_name() == "Convert" and len(value.get_target_inputs()) == 1:
        node = node.input_value(0).get_node()
    return node if isinstance(node, Constant) else None


def _merge(group: Sequence[_Product]) -> None:
    first = group[0].product
    weights = [product.weight for product in group]
    joined = _joined(weights, [weights[0].shape[1]], group[0].sources[0])
    merged = ops.matmul(first.input_value(0), joined, False, True)
    biases = [product.bias for product in group if product.bias is not None]
    if biases:
        merged = ops.add(merged, _joined(biases, [], group[0].sources[1]))
    lengths = ops.constant(np.array([weight.shape[0] for weight in weights], np.int64))
    split = ops.variadic_split(merged, ops.constant(np.int64(-1)), lengths)
    for i, product in enumerate(group):
        for reader in product.result.get_target_inputs():
            reader.replace_source_output(split.output(i))


def _joined(constants: Sequence[Constant], inner: Sequence[int], source: ov.Node) -> ov.Node:
    """Constants one below the other, each [n, *inner]; through the first's conversion, if it has one.

    That is used again because it is marked as one to be done in the pass: another would be done when the
    model is loaded, and the weights be twice as wide.
    """
    blocks = [constant.data.reshape(-1, *inner) for constant in constants]
    shape = ov.Shape([sum(map(len, blocks)), *inner])
    tensor = ov.Tensor(constants[0].get_element_type(), shape)
    np.concatenate([_bits(block) for block in blocks], out=_bits(tensor.data))
    joined = ops.constant(tensor, shared_memory=True)
    if isinstance(source, Constant):
        return joined
    source.set_arguments([joined])
    source.constructor_validate_and_infer_types()
    return source


def _bits(array: np.ndarray) -> np.ndarray:
    """An array as plain integers: numpy knows no bfloat16."""
    return array.view(np.uint16) if array.dtype.itemsize == 2 else array
