"""Real tokenizers of both kinds, built in a moment, and what their tokens are in bytes."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from draftwise.text.detokenizer import Detokenizer

LINES = [
    "The quick brown fox jumps over the lazy dog, 12345 times or 67890.",
    "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n",
    "你好世界你好世界你好",
    "👩\u200d👩\u200d👧 👍🏽 🎉🎉🎉",
    "naïve café résumé",
]


@dataclass(frozen=True)
class Rig:
    """A tokenizer with what the tests have to know about it."""

    raw: RawTokenizer
    token_bytes: list[bytes]
    special: frozenset[int]

    def encode(self, text: str) -> list[int]:
        return self.raw.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.raw.decode(list(ids), skip_special_tokens=True)

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self.decode, self.special)

    def certain(self, ids: Sequence[int]) -> list[str]:
        """Text that is certain after each token, as Python's own UTF-8 decoder reads its bytes."""
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        text, texts = "", []
        for token in ids:
            text += reader.decode(self.token_bytes[token])
            texts.append(text)
        return texts


def byte_level() -> Rig:
    """Like GPT-2's and Qwen's. Letters stay together, so some tokens end inside a character."""
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<|user|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    raw.train_from_iterator(LINES, trainer)
    byte_of = byte_level_alphabet()
    special = frozenset({0, 1})
    return Rig(
        raw,
        [
            b"" if i in special else bytes(byte_of[c] for c in raw.id_to_token(i))
            for i in range(raw.get_vocab_size())
        ],
        special,
    )


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def byte_fallback() -> Rig:
    """Like Llama's and Mistral's: words begin with ▁, characters it lacks are written in bytes."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    letters = sorted({c for line in LINES[:2] for c in line.replace(" ", "▁") if c != "\n"})
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "▁"), ("▁▁", "▁▁"), ("r", "e")]
    vocab = [*words, *letters, *(a + b for a, b in merges), "é", "世"]
    raw = RawTokenizer(
        models.BPE(
            {token: i for i, token in enumerate(vocab)},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    raw.add_special_tokens(words[:3])
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    token_bytes = [bytes([i - 3]) if 3 <= i < 259 else b"" for i in range(259)]
    token_bytes += [token.replace("▁", " ").encode() for token in vocab[259:]]
    return Rig(raw, token_bytes, frozenset({0, 1, 2}))


BYTE_LEVEL, BYTE_FALLBACK = byte_level(), byte_fallback()
