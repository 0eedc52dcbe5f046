"""Toy models and tokenizers, as objects and in folders."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from draftwise.core.errors import DraftwiseError
from tests.models.gguf_files import BYTES

TINY: dict[str, Any] = {"vocab_size": 260, "eos_token_id": 2, "bos_token_id": 1}


def toy_llama(**options: Any) -> LlamaForCausalLM:
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128}
    return LlamaForCausalLM(LlamaConfig(**TINY | shape | heads | options)).eval()


def toy_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """Bytes as tokens, from id 4 on; those before are special."""
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", "<end>", *BYTES])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=chat_template,
    )


def one_line(error: pytest.ExceptionInfo[DraftwiseError]) -> str:
    """The message of an error, which must be one line."""
    assert "\n" not in str(error.value)
    return str(error.value)
