"""The large built-in model itself, fetched once a machine: its tokens, its ends, its text."""

import time
from pathlib import Path

import pytest
import torch

import draftwise
from draftwise.models.builtin import builtin_folder
from draftwise.models.loading import load_model
from draftwise.models.tokenizer import HFTokenizer

NAME = "qwen2.5-coder-1.5b"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder() -> Path:
    """The model's folder, fetched where it is missing: a GB, and a minute."""
    return builtin_folder(NAME, progress=False)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HFTokenizer:
    """The tokenizer, without keeping the weights."""
    return load_model(folder, device="cpu", dtype="bfloat16").tokenizer


VECTORS = {  # of Qwen2's tokenizer, from llama.cpp, models/ggml-vocab-qwen2.gguf.out
    "333333333": "18 18 18 18 18 18 18 18 18",
    "w048 7tuijk dsdfhu": "86 15 19 23 220 22 83 1963 41808 11472 2940 16739",
    "ied 4 \xbd months": "1122 220 19 220 26062 3951",
    "Hello, y'all! How are you \U0001f601 ?\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e": (
        "9707 11 379 64848 0 2585 525 498 26525 223 937 104100 18493 22377 99257 16 18 16 19 16 20 "
        "16 35727 21216"
    ),
    "    Hello\n    Hello": "262 21927 198 262 21927",
    " this is \U0001f999.cpp": "419 374 11162 99 247 13 10821",
    "\u043d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438": (
        "78762 14144 1456 13073 63471 33594 3038 133178 79012"
    ),
    "<|im_start|>user\nHello<|im_end|>": "151644 872 198 9707 151645",
}


@pytest.mark.parametrize("text", VECTORS)
def test_its_tokens_are_those_of_its_family(tokenizer: HFTokenizer, text: str) -> None:
    assert list(tokenizer.encode(text)) == [int(i) for i in VECTORS[text].split()]


def test_it_ends_at_its_turn_end_and_at_its_text_end(folder: Path) -> None:
    loaded = load_model(folder, device="cpu", dtype="bfloat16")
    assert loaded.end_ids == {151643, 151645}
    assert loaded.context_length == 32768


def test_its_chat_template_opens_the_turn_that_it_is_to_write(tokenizer: HFTokenizer) -> None:
    ids = tokenizer.chat(
        [draftwise.Message("system", "Be brief."), draftwise.Message("user", "Hi")]
    )
    turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert list(ids) == list(tokenizer.encode(f"{turns}<|im_start|>assistant\n"))


@pytest.mark.usefixtures("folder", "no_network")
def test_it_is_ready_in_five_seconds_without_a_network() -> None:
    load_model(NAME, device="cpu", dtype="bfloat16")  # imports, and the file into memory
    began = time.perf_counter()
    load_model(NAME, device="cpu", dtype="bfloat16")
    assert time.perf_counter() - began < 5


@pytest.mark.usefixtures("folder")
def test_its_greedy_text_is_what_transformers_writes() -> None:
    options = {"device": "cpu", "dtype": "float32", "runner": "eager"}  # holds transformers' model
    with draftwise.load(NAME, "none", **options) as engine:
        target = engine.target
        ids = list(target.tokenizer.encode("def fibonacci(n):\n"))
        with torch.inference_mode():
            out = target.model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=False,
                max_new_tokens=8,
            )
        written = engine.generate(ids, tokens=8)
    assert list(written.token_ids) == out[0, len(ids) :].tolist()
    assert written.text.startswith("    if n <= ")
