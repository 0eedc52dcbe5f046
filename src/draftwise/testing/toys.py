"""Toy models that can see: tiny transformers models on which faults show.

Weights at their usual scale give a tiny model almost flat logits that hardly look at old context,
so a broken cache would go unnoticed. These are drawn large enough that one early token changes
everything after it; `tests/models/test_toys.py` proves it of each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

VOCAB_SIZE = 96
WINDOW = 8
"""Sliding window of the toys that have one: far shorter than the texts they are tested on."""

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_GEMMA: dict[str, Any] = _SHAPE | {"head_dim": 8, "sliding_window": WINDOW}

CONFIGS: Mapping[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**_SHAPE),
    "qwen2": lambda: Qwen2Config(**_SHAPE),
    "qwen3": lambda: Qwen3Config(**_SHAPE, head_dim=8),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB_SIZE, n_embd=32, n_layer=3, n_head=4, n_positions=512,
        bos_token_id=None, eos_token_id=None,
    ),
    "mistral": lambda: MistralConfig(**_SHAPE, sliding_window=WINDOW),
    "gemma2": lambda: Gemma2Config(**_GEMMA, query_pre_attn_scalar=8),
    "gemma3": lambda: Gemma3TextConfig(
        **_GEMMA, query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
}  # fmt: skip


def toy(
    kind: str = "llama",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    scale: float = 0.3,
    vocab_size: int = VOCAB_SIZE,
) -> PreTrainedModel:
    """Build a random model of a kind in CONFIGS whose every output depends on all that it can see.

    scale: standard deviation of weights and biases; norms keep their ones.
    """
    config = CONFIGS[kind]()
    config.vocab_size = vocab_size
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 or name.endswith("bias"):
                wide = 1.0 if "wte" in name else scale  # GPT-2's embedding is its head as well
                weight.copy_(torch.randn(weight.shape, generator=generator) * wide)
    return model.eval().requires_grad_(False)


def noisy(model: PreTrainedModel, amount: float, seed: int = 1) -> PreTrainedModel:
    """Copy a model with noise on its weights: a draft that agrees often, but not always."""
    copy = deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for weight in copy.parameters():
        if weight.dim() > 1:
            weight += amount * weight.std() * torch.randn(weight.shape, generator=generator)
    return copy


def table_model(logits: Tensor, context_length: int = 512) -> LlamaForCausalLM:
    """Build a real Llama whose next-token logits are `logits[last token]`, exactly.

    logits: [vocab, vocab], finite. Attention and MLP outputs are zero and embeddings one-hot, so
    that a test writes the law of the text into the head: exact distributions, known texts, ends.
    """
    size = logits.shape[0]
    hidden = max(16, 4 ** math.ceil(math.log(size, 4)))  # a power of 4, whose root is exact
    config = LlamaConfig(
        **_SHAPE | {"vocab_size": size, "hidden_size": hidden, "num_hidden_layers": 1,
                    "max_position_embeddings": context_length, "rms_norm_eps": 0.0}
    )  # fmt: skip
    model = LlamaForCausalLM(config).double().eval().requires_grad_(False)
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.zero_()
    wide = torch.zeros(size, hidden, dtype=torch.float64)
    model.model.embed_tokens.weight[:, :size] = torch.eye(size, dtype=torch.float64)
    wide[:, :size] = logits.double().T / hidden**0.5  # the norm scales a one-hot by that root
    model.lm_head.weight.copy_(wide)
    return model


def chain_model(
    text: Sequence[int], vocab_size: int, context_length: int = 512
) -> LlamaForCausalLM:
    """Build a model that writes `text` when started with its first token; all must differ."""
    if len(set(text)) != len(text):
        raise ValueError("a chain needs every token of the text to differ")
    logits = torch.zeros(vocab_size, vocab_size, dtype=torch.float64)
    for token, following in pairwise(text):
        logits[token, following] = 10.0
    return table_model(logits, context_length)
