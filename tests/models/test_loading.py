"""Loading: all that goes with a model comes along, and each thing missing is one clear line."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BloomConfig,
    GenerationConfig,
    GPT2Config,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    T5Config,
    T5ForConditionalGeneration,
)

from draftwise.core.errors import ModelError, OptionError
from draftwise.models.loading import context_length, load_model
from tests.models.gguf_files import VOCABULARY, write_gguf
from tests.models.toy_folders import TINY, one_line, toy_llama, toy_tokenizer


@pytest.mark.usefixtures("no_network")
def test_a_folder_gives_a_model_ready_to_run_with_all_that_goes_with_it(folder: Path) -> None:
    loaded = load_model(str(folder), device="cpu", dtype="float64")
    assert loaded.name == str(folder)
    assert loaded.source == "folder"
    assert loaded.context_length == 128
    assert loaded.end_ids == loaded.tokenizer.end_ids == {2}
    assert loaded.model.dtype == torch.float64
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.model.config._attn_implementation == "sdpa"
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("hi")) == "hi"
    assert load_model(folder, device="cpu").source == "folder"


@pytest.mark.usefixtures("no_network")
def test_a_gguf_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "toy.gguf", pre="smollm")
    loaded = load_model(str(path), device="cpu", dtype="bfloat16")
    assert loaded.source == "gguf"
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.context_length == 256
    assert loaded.end_ids == {VOCABULARY.index("<|endoftext|>"), VOCABULARY.index("<|im_end|>")}
    assert len(loaded.tokenizer.encode("12")) == 2


def test_objects_are_taken_as_they_are_in_eval_mode() -> None:
    model, tokenizer = toy_llama().train(), toy_tokenizer()
    loaded = load_model((model, tokenizer))
    assert loaded.model is model
    assert loaded.source == "object"
    assert loaded.name == "LlamaForCausalLM"
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    load_model((model, tokenizer), device="cpu", dtype="float32")
    with pytest.raises(OptionError, match=r"loaded in torch\.float32, not bfloat16"):
        load_model((model, tokenizer), dtype="bfloat16")
    with pytest.raises(ModelError, match="No cuda device"):
        load_model((model, tokenizer), device="cuda")
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ModelError, match=r"attends by flex_attention.*sdpa"):
        load_model((model, tokenizer))


def test_a_model_without_sdpa_attends_eagerly(tmp_path: Path) -> None:
    shape = {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global"], 2]],
    }
    GPTNeoForCausalLM(GPTNeoConfig(**TINY | shape)).save_pretrained(tmp_path)
    toy_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(tmp_path, device="cpu", dtype="float32")
    assert loaded.model.config._attn_implementation == "eager"


def test_end_tokens_are_those_that_any_part_of_the_model_names_within_its_vocabulary() -> None:
    model, tokenizer = toy_llama(eos_token_id=5), toy_tokenizer()
    model.generation_config = GenerationConfig(eos_token_id=[3, 7, 99_999])
    assert load_model((model, tokenizer)).end_ids == {2, 3, 5, 7}
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = None
    tokenizer.eos_token = None
    assert load_model((model, tokenizer)).end_ids == frozenset()


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (LlamaConfig(max_position_embeddings=4096), 4096),
        (GPT2Config(n_positions=512), 512),
        (BloomConfig(), None),
        (Qwen2Config(max_position_embeddings=32, rope_parameters=YARN | {"rope_theta": 1e6}), 128),
        (Qwen2Config(max_position_embeddings=128, rope_parameters=YARN | {"rope_theta": 1e6}), 128),
        (
            LlamaConfig(
                max_position_embeddings=131_072, rope_parameters=LLAMA3 | {"rope_theta": 5e5}
            ),
            131_072,
        ),
    ],
)
def test_the_context_is_what_the_configuration_says_stretched_positions_included(
    config: PreTrainedConfig, length: int | None
) -> None:
    assert context_length(config) == length


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def with_config(**changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def without_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without_a_shard(folder: Path) -> None:
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    (folder / "model.safetensors").rename(folder / parts[0])
    index = {"metadata": {}, "weight_map": dict(zip("ab", parts, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def in_pieces(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (without("config.json"), "has no config.json: is it a model's folder?"),
        (without("model.safetensors"), "has no weights (model.safetensors)"),
        (without("tokenizer.json"), "has no tokenizer (tokenizer.json)"),
        (without_a_shard, "lacks model-00002-of-00002.safetensors, one of its 2 weight files"),
        (without_a_tensor, "has no weights for model.layers.1.mlp.up_proj.weight (1 missing"),
        (in_pieces, "cannot be loaded: "),
        (with_config(model_type="martian"), "model type `martian`"),
        (with_config(architectures=["LlamaForSequenceClassification"]), "causal language model"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded: "),
        (
            lambda folder: (folder / "tokenizer.json").write_text("{"),
            "'s tokenizer cannot be loaded",
        ),
    ],
)
@pytest.mark.usefixtures("no_network")
def test_what_a_folder_lacks_is_told_in_one_line(
    folder: Path, damage: Callable[[Path], object], told: str
) -> None:
    damage(folder)
    with pytest.raises(ModelError) as caught:
        load_model(str(folder), device="cpu", dtype="float32")
    assert told in one_line(caught)
    assert str(folder) in one_line(caught)


def test_a_folder_of_gguf_files_says_to_name_one(tmp_path: Path) -> None:
    write_gguf(tmp_path / "toy.gguf")
    with pytest.raises(
        ModelError, match=r"has no config\.json: name the file, such as .*toy\.gguf"
    ):
        load_model(str(tmp_path))


def toy_t5() -> PreTrainedModel:
    shape = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=9, **shape))


def toy_bert() -> PreTrainedModel:
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertForMaskedLM(BertConfig(vocab_size=9, intermediate_size=8, **shape))


@pytest.mark.parametrize(
    ("model", "kind"),
    [(toy_t5, "an encoder-decoder model (t5)"), (toy_bert, "a BertForMaskedLM")],
)
def test_a_model_that_does_not_write_on_is_refused_by_its_kind(
    tmp_path: Path, model: Callable[[], PreTrainedModel], kind: str
) -> None:
    model().save_pretrained(tmp_path)
    toy_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path)
    assert f"is {kind}: choose a causal language model" in one_line(caught)


@pytest.mark.usefixtures("builtin_smollm", "no_network")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_light_model_is_ready_in_three_seconds_without_a_network(dtype: str) -> None:
    began = time.monotonic()
    loaded = load_model("smollm2-135m", device="cpu", dtype=dtype)
    assert time.monotonic() - began < 3
    assert loaded.source == "built-in"
    assert loaded.model.dtype == getattr(torch, dtype)
    assert loaded.context_length == 8192
    assert loaded.tokenizer.vocab_size == 49_152
    ids = loaded.tokenizer.encode("The capital of France is")
    with torch.inference_mode():
        following = loaded.model(torch.tensor([ids])).logits[0, -1].argmax()
    assert loaded.tokenizer.decode([int(following)]) == " Paris"
