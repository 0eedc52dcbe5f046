"""Products in the bits of a GGUF file are those of the weights that the file unpacks to."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH, GGUFReader, get_tensor_name_map
from gguf import GGMLQuantizationType as Kind
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

pytest.importorskip("openvino")

import openvino as ov
from openvino import opset13 as ops

from draftwise.models.converting import convert
from draftwise.models.gguf_bits import can_keep, keep_bits, read_blocks
from draftwise.models.gguf_tokenizer import GGUFHeader
from draftwise.models.openvino import OpenVinoRunner
from tests.models.rig import alone, assert_near, one_thread, read, text  # noqa: F401

KEPT = [Kind.Q4_0, Kind.Q4_1, Kind.Q4_K, Kind.Q8_0]
STEPS = {Kind.Q4_0: 0.02, Kind.Q4_1: 0.02, Kind.Q4_K: 3e-4, Kind.Q8_0: 1e-3, Kind.Q6_K: 5e-5}
"""Scales of blocks, for weights of about 1 / 16."""

WIDTH, HEADS, LAYERS = 256, 4, 2


def random_blocks(kind: Kind, rows: int, columns: int, seed: int) -> np.ndarray:
    """Rows of random blocks, as the file has them, with weights of about 1 / 16."""
    per_block, size = gguf.GGML_QUANT_SIZES[kind]
    dice = np.random.default_rng(seed)
    blocks = dice.integers(0, 256, (rows * columns // per_block, size), dtype=np.uint8)
    step = STEPS[kind] * dice.uniform(0.5, 1, (len(blocks), 1))
    second = {Kind.Q4_1: -8 * step, Kind.Q4_K: 8 * step}  # about the middle of the codes
    floats = np.hstack([step, second[kind]] if kind in second else [step])
    halves = floats.astype(np.float16).view(np.uint8)
    where = slice(-2, None) if kind == Kind.Q6_K else slice(halves.shape[1])
    blocks[:, where] = halves
    return blocks.reshape(rows, -1)


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    """A file with a tensor of each kind."""
    path = tmp_path_factory.mktemp("kinds") / "kinds.gguf"
    tensors = {kind.name: (random_blocks(kind, 6, 512, 0), kind) for kind in [*KEPT, Kind.Q6_K]}
    return write(path, "llama", tensors)


def write(path: Path, architecture: str, tensors: dict[str, tuple[np.ndarray, Kind]]) -> GGUFHeader:
    writer = gguf.GGUFWriter(path, architecture)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFHeader(path, {"general.architecture": architecture}, tuple(tensors))


def test_blocks_taken_apart_are_the_weights_of_the_file(header: GGUFHeader) -> None:
    for tensor in GGUFReader(header.path).tensors:
        blocks = read_blocks(tensor)
        if tensor.tensor_type == Kind.Q6_K:
            assert blocks is None
            continue
        assert blocks is not None
        assert blocks.codes.min() == -(1 << blocks.bits - 1), "every bit is used"
        assert blocks.codes.max() == (1 << blocks.bits - 1) - 1
        weights = blocks.codes * blocks.scales[..., None]
        if blocks.offsets is not None:
            weights += blocks.offsets[..., None]
        exact = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type))
        torch.testing.assert_close(weights.reshape(exact.shape), exact, rtol=0, atol=1e-7)


def toy(architecture: str, tied: bool) -> PreTrainedModel:
    shape = {
        "vocab_size": 96,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
    }
    torch.manual_seed(0)
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**shape)).eval()
    return Qwen2ForCausalLM(Qwen2Config(**shape)).eval()


def in_llamas_order(name: str, rows: int) -> np.ndarray:
    """Rows of transformers' matrix in the order in which llama.cpp's converter writes them."""
    order = np.arange(rows)
    heads = {"q_proj": HEADS, "k_proj": HEADS // 2}.get(name.split(".")[-2])
    return order if heads is None else order.reshape(heads, 2, -1).swapaxes(1, 2).ravel()


def pack(model: PreTrainedModel, architecture: str, kinds: list[Kind], path: Path) -> GGUFHeader:
    """Give the model weights that are blocks of the kinds in turn, and write those as a file."""
    arch = {"llama": MODEL_ARCH.LLAMA, "qwen2": MODEL_ARCH.QWEN2}[architecture]
    names, tensors = get_tensor_name_map(arch, LAYERS), {}
    matrices = [(name, weight) for name, weight in model.named_parameters() if weight.dim() == 2]
    for seed, (name, weight) in enumerate(matrices):
        kind = kinds[seed % len(kinds)]
        data = random_blocks(kind, weight.shape[0], weight.shape[1], seed)
        rows = in_llamas_order(name, len(weight)) if architecture == "llama" else slice(None)
        weight.data[rows] = torch.from_numpy(gguf.dequantize(data, kind))
        tensors[f"{names.get_name(name.removesuffix('.weight'))}.weight"] = data, kind
    return write(path, architecture, tensors)


def opened(model: PreTrainedModel, header: GGUFHeader, folder: Path) -> OpenVinoRunner:
    """The model in the bits of its file, behind a runner."""
    folder.mkdir()
    convert(model, folder, "file", 256, file=header)
    return OpenVinoRunner(folder, threads=1)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_in_its_files_bits_says_what_it_says_unpacked(
    tmp_path: Path, architecture: str, tied: bool
) -> None:
    model, ids = toy(architecture, tied), text(20)
    header = pack(model, architecture, [*KEPT, Kind.Q6_K], tmp_path / "toy.gguf")
    runner = opened(model, header, tmp_path / "kept")
    assert runner.info.weight_bytes < 0.6 * sum(weight.nbytes for weight in model.parameters())
    assert_near(read(runner, runner.add_row(), ids), alone(model, ids), 1e-4)


def test_in_bfloat16_only_activations_and_offsets_are_rounded(
    tmp_path: Path,
) -> None:
    model, ids = toy("llama", tied=True), text(20)
    header = pack(model, "llama", KEPT, tmp_path / "toy.gguf")
    exact = alone(model, ids)
    runner = opened(model.bfloat16(), header, tmp_path / "kept")
    assert_near(read(runner, runner.add_row(), ids), exact, 0.3)


def test_an_architecture_whose_weights_are_not_known_is_refused(header: GGUFHeader) -> None:
    x = ops.parameter([1, -1, 512], np.float32)
    alien = GGUFHeader(header.path, {"general.architecture": "rwkv7"}, header.tensors)
    assert can_keep(header)
    assert not can_keep(alien)
    with pytest.raises(NotImplementedError, match="not known"):
        keep_bits(ov.Model([ops.result(x)], [x]), alien, LlamaConfig())
