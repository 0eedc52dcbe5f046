"""The tokenizer that the rest of the library sees: text comes back as it was."""

import sys
from dataclasses import dataclass
from threading import Event, Thread

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from draftwise.core.errors import PromptError
from draftwise.models.tokenizer import HFTokenizer
from tests.models.gguf_files import BYTES
from tests.models.toy_folders import toy_tokenizer


@dataclass
class Turn:
    role: str
    content: str


def test_a_tokenizer_gives_text_back_as_it_was_spaces_and_all() -> None:
    tidy = toy_tokenizer()
    tidy.clean_up_tokenization_spaces = True
    tidy.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    tokenizer = HFTokenizer(tidy, "toy", frozenset({2}))
    text = "  it 's a  test , isn 't it ?  \n caf\xe9 \U0001f600"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == 260
    assert tokenizer.bos_id == 1
    assert tokenizer.special_ids == {0, 1, 2, 3}
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2]) == "hi"
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2], skip_special=False) == "<s>hi</s>"
    assert tokenizer.token_strings()[:5] == ("<pad>", "<s>", "</s>", "<end>", BYTES[0])
    assert not tokenizer.has_chat_template
    with pytest.raises(PromptError, match="toy has no chat template"):
        tokenizer.chat([Turn("user", "hi")])


def test_a_chat_is_written_by_the_models_own_template_up_to_where_it_begins_to_speak() -> None:
    template = (
        "{% for m in messages %}"
        "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
        "<s>{{ m.role }}: {{ m.content }}</s>"
        "{% endfor %}{% if add_generation_prompt %}<s>me: {% endif %}"
    )
    tokenizer = HFTokenizer(toy_tokenizer(template), "toy", frozenset({2}))
    ids = tokenizer.chat([Turn("user", "hi"), Turn("user", " there ")])
    assert tokenizer.decode(ids, skip_special=False) == "<s>user: hi</s><s>user:  there </s><s>me: "
    with pytest.raises(PromptError, match="toy's chat template refuses the messages: no tools"):
        tokenizer.chat([Turn("tool", "hi")])


def test_an_id_between_two_tokens_that_means_nothing_has_no_string() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 3}, unk_token="a"))
    tokenizer = HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend), "toy", frozenset())
    assert tokenizer.token_strings() == ("a", None, None, "b")
    assert tokenizer.vocab_size == 4


def test_text_encoded_plainly_in_some_threads_leaves_the_prompts_of_another_alone() -> None:
    tokenizer = HFTokenizer(toy_tokenizer("{{ messages[0].content }}"), "toy", frozenset())
    text, done = "a" * 200 + "<end>", Event()
    expected = tokenizer.encode(text)
    assert expected[-1] == 3

    def encode_plainly() -> None:
        while not done.is_set():
            tokenizer.encode_plain(text)

    usual, others = sys.getswitchinterval(), [Thread(target=encode_plainly) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    for other in others:
        other.start()
    try:
        for _ in range(300):
            assert tokenizer.encode(text) == expected
            assert tokenizer.chat([Turn("user", text)]) == expected
            assert len(tokenizer.encode_plain(text)) == 205
    finally:
        done.set()
        for other in others:
            other.join()
        sys.setswitchinterval(usual)
