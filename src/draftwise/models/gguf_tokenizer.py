"""The tokenizer of a GGUF file, and the tokens that end a text.

transformers builds the tokenizer but knows only some values of `tokenizer.ggml.pre`, the name of
the rule that cuts text into words before the merges; for any other it takes GPT-2's rule, in
silence, and a text gets other tokens than in training. Here every name is either known or refused.
The names and their rules are those of llama.cpp, `src/llama-vocab.cpp`.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Sequence, Split
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    convert_gguf_tokenizer,
    get_gguf_tokenizer,
)
from transformers.integrations.gguf.reader import read_gguf_metadata

from draftwise.core.errors import ModelError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GPT2_RULE = _names(
    """
    gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe
    gigachat a.x-4.0 mellum modern-bert mpt olmo jais trillion granite-docling exaone4
    """
)
"""Names whose rule is GPT-2's, which transformers takes for every name that it does not know."""

_DIGITS_RULE = _names("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2")
"""Names whose rule cuts out each digit first and then follows GPT-2's."""

_SAME_RULE = {
    "stablelm2": "qwen2",
    "hunyuan": "qwen2",
    "solar-open": "qwen2",
    "grok-2": "qwen2",
    "glm4": "llama-bpe",
    "chatglm-bpe": "llama-bpe",
}
"""Names whose rule transformers has under another name."""

_WHOLE_WORDS = _names(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken"
)
"""Names under which a word that is a token is never cut, and a text begins with BOS by default."""

_TURN_ENDS = _names(
    """
    <|eot_id|> <|eom_id|> <|im_end|> <|end|> <|return|> <|call|> <end_of_turn> <|endoftext|>
    <|end_of_text|> <end_of_utterance> <turn|> <EOT> _<EOT> [EOT] [EOS]
    <\uff5cend\u2581of\u2581sentence\uff5c>
    """
)
"""Control tokens that end a turn, whatever the file's own end token is."""

_CONTROL, _UNUSED = 3, 5
"""Kinds of tokens, as `tokenizer.ggml.token_type` numbers them."""


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a GGUF file says of itself: metadata, vocabulary included, and its tensors' names."""

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[str, ...]

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the architecture, such as "llama"."""
        return self.metadata["general.architecture"]

    def get(self, key: str) -> Any:
        """A value of the architecture's own section, None where the file has none."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_header(path: Path) -> GGUFHeader:
    """Read everything but the tensors. ModelError if this is not a whole, single GGUF file."""
    try:
        metadata, tensors = read_gguf_metadata(str(path), ("tokenizer.ggml.tokens",))
    except (OSError, ValueError, struct.error, IndexError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as a GGUF file: {error}") from error
    if metadata.get("split.count", 1) > 1:
        raise ModelError(
            f"{path} is one of {metadata['split.count']} files of a model: join them first with "
            "`llama-gguf-split --merge`."
        )
    return GGUFHeader(path, metadata, tensors)


def gguf_end_ids(path: Path) -> frozenset[int]:
    """Every token after which the model has finished: the file's own, and turn ends by name."""
    metadata = read_header(path).metadata
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    types = metadata.get("tokenizer.ggml.token_type", [])
    control = {tokens[i]: i for i, kind in enumerate(types) if kind == _CONTROL}
    ends = {i for token, i in control.items() if token in _TURN_ENDS}
    if {"<|return|>", "<|call|>", "<|end|>"} <= control.keys():
        ends.discard(control["<|end|>"])  # there it ends a message inside the turn
    named = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return frozenset(ends | {i for i in named if i is not None and i < len(tokens)})


def load_gguf_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The file's own tokenizer; where its rule is unknown, the one that lies beside the file."""
    read_header(path)  # for its complaints: what follows takes the file for whole
    try:
        architecture, described, config = get_gguf_tokenizer(str(path))
        described = _without_padding(described)
        backend, _ = convert_gguf_tokenizer(architecture, described)
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{path} has no tokenizer that transformers can build: {error}") from error
    pre = described.get("pre_tokenizer_type")
    if described["tokenizer_type"] == "gpt2":
        if not _set_rule(backend, pre):
            return _tokenizer_beside(path, pre, described["tokens"])
        if pre in _WHOLE_WORDS:
            config.setdefault("add_bos_token", config["bos_token"] is not None)
    elif described.get("add_prefix_space") is False:
        _drop_prefix_space(backend)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, **config
    )


def _without_padding(described: dict[str, Any]) -> dict[str, Any]:
    """The vocabulary without the unused tokens at its end, which only pad the embedding's rows."""
    tokens, types = described["tokens"], described.get("token_type")
    size = len(tokens)
    while types and size and types[size - 1] == _UNUSED:
        size -= 1
    return {**described, "tokens": tokens[:size]}


def _set_rule(backend: Tokenizer, pre: str | None) -> bool:
    """Cut text as the rule named `pre` does; False if the name is unknown."""
    if pre in _DIGITS_RULE:
        words = ByteLevel(add_prefix_space=False, use_regex=True)
        backend.pre_tokenizer = Sequence([Digits(individual_digits=True), words])
    elif pre in _SAME_RULE:
        words = Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[_SAME_RULE[pre]]), behavior="isolated")
        backend.pre_tokenizer = Sequence(
            [words, ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    elif pre not in GGUF_PRE_TOKENIZER_SPLITS and pre not in _GPT2_RULE:
        return False
    if pre in _WHOLE_WORDS:
        backend.model.ignore_merges = True
    return True


def _drop_prefix_space(backend: Tokenizer) -> None:
    """A sentencepiece vocabulary that adds no space before a text, and so drops none after."""
    if isinstance(backend.pre_tokenizer, Metaspace):
        backend.pre_tokenizer = Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )


def _tokenizer_beside(path: Path, pre: str | None, tokens: list[str]) -> PreTrainedTokenizerFast:
    """The tokenizer.json in the file's folder, provided that it has the file's vocabulary."""
    if not (path.parent / "tokenizer.json").is_file():
        rule = f"the rule {pre!r}, which is unknown here" if pre else "a rule that it does not name"
        raise ModelError(
            f"{path} cuts text by {rule}: put the model's tokenizer.json and tokenizer_config.json "
            "beside the file, or give the original model's folder or Hub name."
        )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path.parent)
    for token, i in tokenizer.get_vocab().items():
        if i >= len(tokens) or tokens[i] != token:
            raise ModelError(
                f"{path.parent / 'tokenizer.json'} does not belong to {path}: token {i} differs."
            )
    return tokenizer
