"""Converted weights are those of the file: read two ways, they are the same to the last bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from draftwise.core.errors import ModelError
from draftwise.models import unpack
from draftwise.models.gguf import convert_gguf, load_gguf_model
from draftwise.models.loading import load_model
from tests.models.gguf_files import HIDDEN, toy_model, write_gguf


def converted(path: Path) -> dict[str, Tensor]:
    """The weights that the conversion keeps of the file."""
    convert_gguf(path, folder := path.with_suffix(""))
    return load_file(folder / "model.safetensors")


def kept_as(name: str, weight: Tensor) -> torch.dtype:
    packed = weight.dim() == 2 and weight.shape[1] == HIDDEN
    return torch.bfloat16 if packed else torch.float32


@pytest.mark.parametrize("chunk", [1 << 20, 100])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_weights_are_those_that_transformers_reads_rounded_once_where_they_are_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, chunk: int
) -> None:
    monkeypatch.setattr(unpack, "_CHUNK", chunk)
    path = write_gguf(tmp_path / "toy.gguf", architecture=architecture, blocks=True)
    exact = load_gguf_model(path).state_dict()
    kept = converted(path)
    assert kept.keys() == exact.keys()
    assert {weight.dtype for weight in kept.values()} == {torch.bfloat16, torch.float32}
    for name, weight in exact.items():
        assert kept[name].dtype == kept_as(name, weight), name
        assert torch.equal(kept[name], weight.to(kept[name].dtype)), name


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_converted_model_runs_in_one_type_on_the_weights_of_the_file(
    tmp_path: Path, architecture: str, dtype: str
) -> None:
    path = write_gguf(tmp_path / "toy.gguf", architecture=architecture, blocks=True)
    exact = load_gguf_model(path).state_dict()
    convert_gguf(path, tmp_path / "folder")
    loaded = load_model(tmp_path / "folder", device="cpu", dtype=dtype).model
    asked = getattr(torch, dtype)
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, exact[name].to(kept_as(name, weight)).to(asked)), name


def test_a_model_without_a_head_of_its_own_keeps_its_weights_once(tmp_path: Path) -> None:
    model = toy_model("llama")
    model.config.tie_word_embeddings = True
    model.tie_weights()
    path = write_gguf(tmp_path / "toy.gguf", architecture="llama", model=model, blocks=True)
    assert "lm_head.weight" not in converted(path)
    loaded = load_model(tmp_path / "toy", device="cpu", dtype="float32").model
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_what_cannot_be_converted_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    thin = write_gguf(tmp_path / "thin.gguf", settings={"qwen2.block_count": 3})
    alien = write_gguf(tmp_path / "alien.gguf", architecture="qwen3")
    whole = write_gguf(tmp_path / "short.gguf").read_bytes()
    (short := tmp_path / "short.gguf").write_bytes(whole[: int(len(whole) * 0.7)])
    for path, told in (
        (thin, "has no weights for model.layers.2"),
        (alien, "architecture 'qwen3', which cannot be loaded here"),
        (short, "cut short or damaged"),
    ):
        with pytest.raises(ModelError, match=told) as caught:
            convert_gguf(path, tmp_path / "folder")
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert {path.suffix for path in tmp_path.iterdir()} == {".gguf"}
