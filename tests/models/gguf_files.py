"""Tiny GGUF files: a byte-level vocabulary with a few merges, and the weights of a toy model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

NORMAL, CONTROL, UNUSED = 1, 3, 5
BYTES = sorted(ByteLevel.alphabet())
MERGES = ["1 2", "12 3", "h i"]
WORDS = ["12", "123", "hi", "xyz"]  # no merge leads to xyz
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = [*BYTES, *WORDS, *CONTROLS]
HIDDEN, LAYERS, HEADS = 32, 2, 2


def toy_model(architecture: str = "qwen2", rows: int = len(VOCABULARY)) -> PreTrainedModel:
    """A random model of the shape that `write_gguf` writes."""
    shape: dict[str, Any] = {
        "vocab_size": rows,
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
    }
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**shape))
    if architecture == "gemma3":
        return Gemma3ForCausalLM(Gemma3TextConfig(**shape, head_dim=HIDDEN // HEADS))
    return Qwen2ForCausalLM(Qwen2Config(**shape))


def write_gguf(
    path: Path,
    *,
    pre: str | None = "gpt-2",
    architecture: str = "qwen2",
    model: PreTrainedModel | None = None,
    padding: int = 0,
    tokens: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    kind: str = "gpt2",
    blocks: bool = False,
) -> Path:
    """Write a GGUF file with every weight in float32, or with rows of 32 in blocks of 8 bits.

    tokens: further tokens and their kinds. padding: unused tokens at the end. settings: further
    metadata by key; None leaves a key out that would be written. tensors: further tensors.
    """
    vocabulary = dict.fromkeys([*BYTES, *WORDS], NORMAL) | dict.fromkeys(CONTROLS, CONTROL)
    vocabulary |= dict(tokens or {})
    vocabulary |= {f"[PAD{len(vocabulary) + i}]": UNUSED for i in range(padding)}
    model = model or toy_model(architecture, len(vocabulary))
    metadata: dict[str, Any] = {
        f"{architecture}.context_length": 256,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.feed_forward_length": 48,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": 1,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 500000.0,
        f"{architecture}.rope.dimension_count": HIDDEN // HEADS,
        f"{architecture}.vocab_size": len(vocabulary),
        f"{architecture}.attention.key_length": HIDDEN // HEADS,
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.bos_token_id": list(vocabulary).index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": list(vocabulary).index("<|im_end|>"),
    }
    metadata |= settings or {}
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
    writer.add_token_list(list(vocabulary))
    writer.add_token_types(list(vocabulary.values()))
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_token_merges(MERGES)
    for name, weight in model.named_parameters():
        if found := _gguf_name(architecture, name):
            packed = blocks and weight.dim() == 2 and weight.shape[1] == HIDDEN
            form = GGMLQuantizationType.Q8_0 if packed else GGMLQuantizationType.F32
            writer.add_tensor(found, gguf.quantize(weight.detach().numpy(), form), raw_dtype=form)
    for name, weight in (tensors or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA_NAMES = _NAMES | {
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _gguf_name(architecture: str, name: str) -> str | None:
    names = _GEMMA_NAMES if architecture == "gemma3" else _NAMES
    for ours, theirs in names.items():
        if f"{ours}." in name:
            layer = name.split(".")[2] if ".layers." in name else None
            return f"{f'blk.{layer}.' if layer else ''}{theirs}.{name.rsplit('.')[-1]}"
    return None
