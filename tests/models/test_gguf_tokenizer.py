"""GGUF files: text becomes the tokens that the model was trained on."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from transformers import AutoTokenizer

from draftwise.core.errors import ModelError
from draftwise.models.gguf import convert_gguf, gguf_end_ids, load_gguf_model, load_gguf_tokenizer
from tests.models.gguf_files import CONTROL, NORMAL, VOCABULARY, write_gguf

GPT2_WORDS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # OpenAI, GPT-2
)


class PlainBPE:
    """SmolLM2's tokenizer by its definition: digits apart, GPT-2's words, merges in their order."""

    def __init__(self, folder: Path) -> None:
        model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.special = {token["content"]: token["id"] for token in model["added_tokens"]}
        self.ids = model["model"]["vocab"]
        self.rank = {tuple(merge): i for i, merge in enumerate(model["model"]["merges"])}
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = (byte for byte in range(256) if byte not in printable)
        self.letter = {byte: chr(byte) for byte in printable}
        self.letter |= {byte: chr(256 + i) for i, byte in enumerate(others)}

    def encode(self, text: str) -> list[int]:
        names = "|".join(map(regex.escape, self.special))
        pieces = regex.split(f"({names})", text)
        return [i for piece in pieces for i in self._piece(piece)]

    def _piece(self, piece: str) -> list[int]:
        if piece in self.special:
            return [self.special[piece]]
        runs = regex.findall(r"\p{N}|[^\p{N}]+", piece)
        words = [word for run in runs for word in regex.findall(GPT2_WORDS, run)]
        return [self.ids[symbol] for word in words for symbol in self._merged(word)]

    def _merged(self, word: str) -> list[str]:
        symbols = [self.letter[byte] for byte in word.encode()]
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            best = min(pairs, key=lambda pair: self.rank.get(pair, math.inf))
            if best not in self.rank:
                break
            at = pairs.index(best)
            symbols[at : at + 2] = ["".join(best)]
        return symbols


TEXTS = [
    "In 2024, 1234567 items\n\n1. def f(x):\n    return x\n",
    "it's 3.14159; they're 10% of 99 $5 (x2)",
    "  leading,\ttabs\t\tand   runs   of spaces  \n \n",
    "emoji \U0001f600\U0001f44d\U0001f3fd!",
    "\u65e5\u672c\u8a9e 12 \u4e2d\u6587",
    "\u0661\u0662\u0663 \xb2\xbd \u2163",
    "<|im_start|>user\nx<|im_end|>",
    "na\xefve caf\xe9 \xdcbergr\xf6\xdfe",
    "a1b2c3 2**10==1024",
    "",
]


def test_the_light_models_tokens_are_those_of_its_definition(builtin_smollm: Path) -> None:
    tokenizer, plain = AutoTokenizer.from_pretrained(builtin_smollm), PlainBPE(builtin_smollm)
    for text in TEXTS:
        assert tokenizer(text).input_ids == plain.encode(text), text
        assert tokenizer.decode(tokenizer(text).input_ids) == text


VECTORS = {
    TEXTS[0]: "788 216 34 32 34 36 28 216 33 34 35 36 37 38 39 3723 1116 33 30 753 275 24 104 727 "
    "472 1003 1792 198",
    TEXTS[1]: "269 506 216 35 30 33 36 33 37 41 43 502 2316 216 33 32 21 282 216 41 41 1885 37 365 "
    "104 34 25",
    TEXTS[2]: "216 2899 28 197 100 7366 197 197 397 256 7313 256 282 5600 32057 3717",
    TEXTS[3]: "391 33777 40303 218 10813 235 231 10813 233 138 17",
    TEXTS[4]: "23274 115 40993 179 120 248 216 33 34 216 28589 29184",
    TEXTS[5]: "164 111 164 112 164 113 216 19133 16738 216 173 223 113",
    TEXTS[6]: "1 4093 198 104 2",
}


@pytest.mark.parametrize("text", VECTORS)
def test_the_light_models_tokens_are_fixed(builtin_smollm: Path, text: str) -> None:
    expected = [int(i) for i in VECTORS[text].split()]
    assert AutoTokenizer.from_pretrained(builtin_smollm)(text).input_ids == expected


def test_the_light_model_ends_at_its_turn_end_and_at_its_text_end(builtin_smollm: Path) -> None:
    settings = json.loads((builtin_smollm / "generation_config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(builtin_smollm)
    assert tokenizer.convert_ids_to_tokens(settings["eos_token_id"]) == [
        "<|endoftext|>",
        "<|im_end|>",
    ]


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["12312", "xy"]),
        ("exaone4", ["12312", "xy"]),
        ("smollm", ["1", "2", "3", "1", "2", "xy"]),
        ("starcoder", ["1", "2", "3", "1", "2", "xy"]),
        ("qwen2", ["1", "2", "3", "1", "2", "xy"]),
        ("stablelm2", ["1", "2", "3", "1", "2", "xy"]),
        ("llama-bpe", ["123", "12", "xy"]),
        ("glm4", ["123", "12", "xy"]),
    ],
)
def test_text_is_cut_by_the_rule_that_the_file_names(
    tmp_path: Path, pre: str, words: list[str]
) -> None:
    tokenizer = load_gguf_tokenizer(write_gguf(tmp_path / "toy.gguf", pre=pre))
    cut = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("12312xy")
    assert [word for word, _ in cut] == words
    assert tokenizer.decode(tokenizer("12 312xy").input_ids, skip_special_tokens=True) == "12 312xy"


@pytest.mark.parametrize(("pre", "told"), [("martian", "'martian'"), (None, "does not name")])
def test_an_unknown_rule_is_refused_with_the_way_out_and_the_way_out_works(
    tmp_path: Path, pre: str | None, told: str
) -> None:
    path = write_gguf(tmp_path / "toy.gguf", pre=pre)
    with pytest.raises(ModelError, match=rf"^\S+toy\.gguf cuts text .*{told}.*tokenizer\.json"):
        load_gguf_tokenizer(path)
    known = write_gguf(tmp_path / "known.gguf", pre="smollm")
    load_gguf_tokenizer(known).save_pretrained(tmp_path)
    assert load_gguf_tokenizer(path)("12").input_ids == [VOCABULARY.index(c) for c in "12"]


def test_a_tokenizer_that_lies_beside_the_file_by_chance_is_refused(tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", tokens={"stranger": NORMAL})
    load_gguf_tokenizer(other).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"does not belong to .*toy\.gguf"):
        load_gguf_tokenizer(
            write_gguf(tmp_path / "toy.gguf", pre="martian", tokens={"native": NORMAL})
        )


def test_a_word_that_is_a_token_stays_whole_where_the_rule_says_so(tmp_path: Path) -> None:
    whole = load_gguf_tokenizer(write_gguf(tmp_path / "whole.gguf", pre="llama-bpe"))
    cut = load_gguf_tokenizer(write_gguf(tmp_path / "cut.gguf", pre="gpt-2"))
    assert whole("xyz", add_special_tokens=False).input_ids == [VOCABULARY.index("xyz")]
    assert cut("xyz").input_ids == [VOCABULARY.index(letter) for letter in "xyz"]


@pytest.mark.parametrize(
    ("pre", "flag", "begins"),
    [
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
        ("smollm", None, False),
        ("smollm", True, True),
    ],
)
def test_a_text_begins_with_bos_where_the_file_or_its_rule_says_so(
    tmp_path: Path, pre: str, flag: bool | None, begins: bool
) -> None:
    settings = {"tokenizer.ggml.add_bos_token": flag}
    path = write_gguf(tmp_path / "toy.gguf", pre=pre, settings=settings)
    bos = VOCABULARY.index("<|im_start|>")
    assert (load_gguf_tokenizer(path)("hi").input_ids[0] == bos) == begins
    convert_gguf(path, tmp_path / "folder")
    reloaded = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert (reloaded("hi").input_ids[0] == bos) == begins


@pytest.mark.parametrize(("flag", "prefixed"), [(True, True), (None, True), (False, False)])
def test_a_sentencepiece_text_gets_a_leading_space_only_where_the_file_says_so(
    tmp_path: Path, flag: bool | None, prefixed: bool
) -> None:
    path = write_gguf(
        tmp_path / "toy.gguf",
        kind="llama",
        tokens={"\u2581": NORMAL},
        settings={
            "tokenizer.ggml.add_space_prefix": flag,
            "tokenizer.ggml.add_bos_token": False,
        },
    )
    tokenizer = load_gguf_tokenizer(path)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("hi").input_ids)
    assert tokens == (["\u2581", "hi"] if prefixed else ["hi"])
    for text in ("hi", "hi hi") if prefixed else ("hi", " hi", "hi hi"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_tokens_that_only_pad_the_embedding_are_no_part_of_the_vocabulary(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "toy.gguf", padding=5)
    assert len(load_gguf_tokenizer(path)) == len(VOCABULARY)
    assert load_gguf_model(path).config.vocab_size == len(VOCABULARY) + 5


def test_end_tokens_come_from_the_file_and_from_control_tokens_that_end_a_turn(
    tmp_path: Path,
) -> None:
    def ends(name: str, **options: object) -> set[str]:
        path = write_gguf(tmp_path / name, **options)  # type: ignore[arg-type]
        tokenizer = load_gguf_tokenizer(path)
        return set(tokenizer.convert_ids_to_tokens(sorted(gguf_end_ids(path))))

    plain = {"<|endoftext|>", "<|im_end|>"}
    assert ends("plain") == plain
    # as ordinary text the same string ends nothing; a control token that begins a turn neither
    assert ends("more", tokens={"<|eot_id|>": CONTROL, "<|end|>": NORMAL}) == plain | {"<|eot_id|>"}
    settings = {"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eom_token_id": 9}
    assert ends("named", settings=settings) == plain | {VOCABULARY[7], VOCABULARY[9]}
    # where <|return|> and <|call|> end a turn, <|end|> ends a message inside it
    harmony = dict.fromkeys(("<|end|>", "<|return|>", "<|call|>"), CONTROL)
    assert ends("harmony", tokens=harmony) == plain | {"<|return|>", "<|call|>"}
    assert ends("phi", tokens={"<|end|>": CONTROL}) == plain | {"<|end|>"}
