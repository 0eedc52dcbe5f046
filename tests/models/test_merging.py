"""Products of one input, merged into one, are what they were."""

import numpy as np
import pytest

pytest.importorskip("openvino")

import openvino as ov
from openvino import opset13 as ops

from draftwise.models.merging import merge_products

WIDTH = 8
LENGTHS = (6, 2, 4)


def weight(length: int, kind: ov.Type, seed: int) -> ov.Node:
    """A constant matrix [length, WIDTH], widened where it is narrow."""
    tensor = ov.Tensor(kind, ov.Shape([length, WIDTH]))
    values = np.random.default_rng(seed).integers(-9, 9, (length, WIDTH)).astype(np.float32)
    tensor.data[:] = values if kind != ov.Type.bf16 else halved(values)
    constant = ops.constant(tensor)
    return constant if kind == ov.Type.f32 else ops.convert(constant, "f32")


def halved(values: np.ndarray) -> np.ndarray:
    """Small whole numbers as bfloat16, in the half floats that stand for it in numpy."""
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.float16)


def model(kind: ov.Type, biases: tuple[bool, ...], turned: bool = True) -> ov.Model:
    """Three products of one input, behind each other's backs; a fourth of what the first gives."""
    x = ops.parameter([1, -1, WIDTH], np.float32)
    results = []
    for seed, (length, biased) in enumerate(zip(LENGTHS, biases, strict=True)):
        w = weight(length, kind, seed)
        y = ops.matmul(x, w if turned else ops.transpose(w, [1, 0]), False, turned)
        results.append(
            ops.add(y, ops.constant(np.full((1, 1, length), seed + 1.0, np.float32)))
            if biased
            else y
        )
    results.append(ops.matmul(results[0], ops.constant(np.ones((3, 6), np.float32)), False, True))
    return ov.Model(results, [x])


def products(of: ov.Model) -> int:
    return sum(node.get_type_name() == "MatMul" for node in of.get_ops())


def outputs(of: ov.Model) -> list[np.ndarray]:
    x = np.arange(3 * WIDTH, dtype=np.float32).reshape(1, 3, WIDTH)
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    return list(ov.compile_model(of, "CPU", options)([x]).values())


@pytest.mark.parametrize("kind", [ov.Type.f32, ov.Type.bf16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("biased", [False, True])
def test_products_of_one_input_become_one_and_give_what_they_gave(
    kind: ov.Type, biased: bool
) -> None:
    merged, apart = (model(kind, (biased,) * 3) for _ in range(2))
    assert (merge_products(merged), products(apart), products(merged)) == (1, 4, 2)
    for ours, theirs in zip(outputs(merged), outputs(apart), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    kinds = {
        node.get_element_type()
        for node in merged.get_ops()
        if node.get_type_name() == "Constant" and list(node.shape) == [12, 8]
    }
    assert kinds == {kind}, "as narrow as it was"


@pytest.mark.parametrize(
    "other",
    [model(ov.Type.f32, (True, False, True)), model(ov.Type.f32, (False,) * 3, turned=False)],
    ids=["biases", "not turned"],
)
def test_what_does_not_fit_together_is_left(other: ov.Model) -> None:
    before = products(other)
    assert (merge_products(other), products(other)) == (0, before)
