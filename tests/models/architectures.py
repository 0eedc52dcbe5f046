"""Tiny models of many architectures, by transformers' names: windows of 8, a few layers, four heads."""

from collections.abc import Callable, Mapping

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

VOCAB_SIZE, WINDOW = 96, 8

_SHAPE = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
_GPT = {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 512}
_HEAD = {"head_dim": 8}
_WINDOW = {"sliding_window": WINDOW}
_EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
}  # fmt: skip
_ROUTED = _EXPERTS | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1}
_LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1,
}  # fmt: skip
_DELTA = _HEAD | {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}  # fmt: skip
_LLAMA4 = _EXPERTS | _HEAD | {
    "attention_chunk_size": WINDOW, "intermediate_size_mlp": 64, "no_rope_layers": [1, 1, 1, 0],
    "moe_layers": [1, 3], "floor_scale": 16,
}  # fmt: skip


def _config(kind: str, **options: object) -> Callable[[], PreTrainedConfig]:
    return lambda: AutoConfig.for_model(kind, **_SHAPE | options)


ATTENTION: Mapping[str, Callable[[], PreTrainedConfig]] = {
    "apertus": _config("apertus"),
    "arcee": _config("arcee"),
    "biogpt": _config("biogpt", pad_token_id=1),
    "bitnet": _config("bitnet"),
    "codegen": _config("codegen", **_GPT, rotary_dim=4),
    "cohere": _config("cohere"),
    "cohere2": _config("cohere2", **_WINDOW),
    "deepseek_v2": _config("deepseek_v2", **_ROUTED | _LATENT, first_k_dense_replace=1),
    "deepseek_v3": _config("deepseek_v3", **_ROUTED | _LATENT, first_k_dense_replace=1),
    "diffllama": _config("diffllama"),
    "ernie4_5": _config("ernie4_5"),
    "exaone4": _config("exaone4", **_WINDOW, sliding_window_pattern=4),
    "falcon": _config("falcon", alibi=False, num_kv_heads=2, new_decoder_architecture=True),
    "gemma": _config("gemma", **_HEAD),
    "gemma3n_text": _config(
        "gemma3n_text", **_HEAD | _WINDOW, num_hidden_layers=5, num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"],
        vocab_size_per_layer_input=VOCAB_SIZE, hidden_size_per_layer_input=8, laurel_rank=8,
        altup_num_inputs=2, activation_sparsity_pattern=[0.0] * 5, intermediate_size=[64] * 5,
    ),
    "gemma4_text": _config(
        "gemma4_text", **_HEAD | _WINDOW, global_head_dim=8, num_hidden_layers=6,
        num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 3,
        vocab_size_per_layer_input=VOCAB_SIZE, hidden_size_per_layer_input=8,
    ),
    "glm": _config("glm", **_HEAD),
    "glm4_moe": _config("glm4_moe", **_ROUTED | _HEAD, first_k_dense_replace=1),
    "gpt_bigcode": _config("gpt_bigcode", **_GPT),
    "gpt_neox": _config("gpt_neox"),
    "gpt_oss": _config("gpt_oss", **_EXPERTS | _HEAD | _WINDOW),
    "gptj": _config("gptj", **_GPT, rotary_dim=4),
    "granite": _config("granite"),
    "granitemoe": _config("granitemoe", **_EXPERTS),
    "helium": _config("helium", **_HEAD),
    "llama4_text": _config("llama4_text", **_LLAMA4, attn_temperature_tuning=False),
    "ministral": _config("ministral", **_HEAD | _WINDOW),
    "mixtral": _config("mixtral", **_EXPERTS | _WINDOW),
    "mpt": _config("mpt", d_model=32, n_layers=4, n_heads=4, max_seq_len=512),
    "nemotron": _config("nemotron"),
    "olmo2": _config("olmo2"),
    "olmo3": _config("olmo3", **_WINDOW),
    "olmoe": _config("olmoe", **_EXPERTS),
    "opt": _config("opt", ffn_dim=64, word_embed_proj_dim=32, pad_token_id=1),
    "persimmon": _config("persimmon"),
    "phi": _config("phi"),
    "phi3": _config("phi3", **_WINDOW),
    "qwen2_moe": _config("qwen2_moe", **_EXPERTS, shared_expert_intermediate_size=32),
    "qwen2": _config("qwen2", **_WINDOW, use_sliding_window=True, max_window_layers=2),
    "qwen3_moe": _config("qwen3_moe", **_EXPERTS | _HEAD),
    "smollm3": _config("smollm3", **_WINDOW, use_sliding_window=True),
    "stablelm": _config("stablelm"),
    "starcoder2": _config("starcoder2", **_WINDOW),
    "vaultgemma": _config("vaultgemma", **_HEAD | _WINDOW),
}  # fmt: skip
"""Models that keep keys and values only, each with what is peculiar to its kind switched on."""

STATEFUL: Mapping[str, tuple[Callable[[], PreTrainedConfig], str]] = {
    "bamba": (_config("bamba", **_MAMBA, attn_layer_indices=[1]), "linear_attention"),
    "falcon_h1": (_config("falcon_h1", **_MAMBA, mamba_d_ssm=64), "hybrid"),
    "granitemoehybrid": (
        _config("granitemoehybrid", **_EXPERTS | _MAMBA, layer_types=["mamba", "attention"] * 2),
        "linear_attention",
    ),
    "jamba": (
        _config(
            "jamba", attn_layer_period=2, attn_layer_offset=1, num_experts=2, mamba_d_state=4,
            mamba_dt_rank=4, use_mamba_kernels=False,
        ),
        "linear_attention",
    ),
    "lfm2": (
        _config("lfm2", layer_types=["conv", "full_attention"] * 2, block_multiple_of=8),
        "conv",
    ),
    "mamba": (_config("mamba", state_size=4), "linear_attention"),
    "mamba2": (
        _config("mamba2", state_size=8, num_heads=8, head_dim=8, n_groups=2, chunk_size=8),
        "linear_attention",
    ),
    "minimax": (_config("minimax", **_EXPERTS | _HEAD, block_size=8), "linear_attention"),
    "nemotron_h": (
        _config(
            "nemotron_h", **_HEAD, mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=8, n_groups=1
        ),
        "linear_attention",
    ),
    "qwen3_next": (
        _config("qwen3_next", **_DELTA | _EXPERTS, shared_expert_intermediate_size=32),
        "linear_attention",
    ),
    "recurrent_gemma": (
        _config(
            "recurrent_gemma", **_HEAD, lru_width=32, attention_window_size=WINDOW,
            block_types=["recurrent", "attention"],
        ),
        "linear_attention",
    ),
    "rwkv": (_config("rwkv", attention_hidden_size=32, context_length=512), "recurrent state"),
    "xlstm": (_config("xlstm", num_blocks=2, num_hidden_layers=2, num_heads=4), "SlotCache"),
    "deepseek_v32": (
        _config("deepseek_v32", **_ROUTED | _LATENT, first_k_dense_replace=1, index_topk=4),
        "indexed_attention",
    ),
}  # fmt: skip
"""Models that fold the past into a state, and the word that the refusal must name."""

UNMASKABLE: Mapping[str, tuple[Callable[[], PreTrainedConfig], str]] = {
    "bloom": (_config("bloom", n_layer=4, n_head=4), "masks"),
    "falcon": (
        _config("falcon", alibi=True, num_kv_heads=2, new_decoder_architecture=True),
        "masks",
    ),
    "gpt_neo": (
        _config(
            "gpt_neo", num_layers=4, num_heads=4, window_size=WINDOW,
            attention_types=[[["global", "local"], 2]],
        ),
        "beside another row",
    ),
    "llama4_text": (_config("llama4_text", **_LLAMA4, attn_temperature_tuning=True), "itself"),
    "roformer": (_config("roformer", is_decoder=True, pad_token_id=0), "beside another row"),
    "xlm-roberta": (_config("xlm-roberta", is_decoder=True, pad_token_id=1), "positions"),
}  # fmt: skip
"""Models that number tokens or make masks by themselves, and a word of the refusal."""


def tiny(config: PreTrainedConfig, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """Build a model with weights so large that it sees; mixtures of experts in plain loops."""
    options = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 or name.endswith("bias"):
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.eval().requires_grad_(False)
