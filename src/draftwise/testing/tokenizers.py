"""A tokenizer for toys: one token a byte, with the special tokens and the chat template of a real one."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")

NUM_TOKENS = 256 + len(SPECIAL)
"""Ids 0 to 255 are bytes, in the order of the byte alphabet; <|end|> is 256."""


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer of two words, which has no token in common with one of bytes."""
    words = Tokenizer(models.WordLevel({"xx": 0, "yy": 1, SPECIAL[0]: 2}, unk_token="yy"))
    words.add_special_tokens([SPECIAL[0]])
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=SPECIAL[0])


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Build a byte-level tokenizer that needs no file."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", chat_template=CHAT_TEMPLATE
    )
