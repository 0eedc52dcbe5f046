"""Drafts that speak another vocabulary: the text is followed exactly, and the output never changes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import draftwise
from draftwise.drafters.translation import Dictionary, Foreign
from draftwise.models.tokenizer import HFTokenizer
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer, word_tokenizer
from draftwise.testing.toys import toy

LEARNT = [
    "The quick brown fox jumps over the lazy dog. " * 3,
    "def f(x):\n    return x + 1\n\nclass A:\n    pass\n" * 3,
    "naïve café Žluťoučký kůň 日本語のテキスト 🦊🌊 " * 3,
    "In 2024 there were 1234567 items, 42 of them new. " * 3,
]
TEXTS = st.text(
    st.one_of(
        st.sampled_from("abcdefgh \n\t.,0123456789"),
        st.sampled_from("éüßžč日本語のテ🦊🌊👩‍🚀"),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=40,
) | st.sampled_from(
    [*LEARNT, "<|end|> as text <|user|>", "    four\n        eight", "\ufffd\ufffd"]
)


def byte_level(vocab_size, special=("<|end|>",)):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=alphabet,
        special_tokens=list(special),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LEARNT, trainer)
    return wrapped(tokenizer)


def sentencepiece():
    """Metaspace with byte fallback and a space before every text, as Llama 2 has it."""
    lone = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = sorted({letter for text in LEARNT[:2] for letter in text if letter.isalpha()})
    merges = [
        ("▁", "t"),
        ("▁t", "h"),
        ("▁th", "e"),
        ("r", "e"),
        ("▁", "f"),
        ("u", "r"),
        ("ur", "n"),
    ]
    vocab = ["<unk>", *lone, "▁", *letters, "é", *(a + b for a, b in merges)]
    tokenizer = Tokenizer(
        models.BPE(
            {token: i for i, token in enumerate(vocab)},
            merges,
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<|end|>"])
    return wrapped(tokenizer)


def wrapped(tokenizer):
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    return HFTokenizer(fast, "built", frozenset({fast.eos_token_id}))


BYTES = HFTokenizer(byte_tokenizer(), "bytes", frozenset({256}))
SMALL, LARGE, PIECES = byte_level(300), byte_level(420), sentencepiece()
PAIRS = {
    "large target, small draft": (LARGE, SMALL),
    "small target, large draft": (SMALL, LARGE),
    "bytes alone as target": (BYTES, LARGE),
    "bytes alone as draft": (LARGE, BYTES),
    "sentencepiece draft": (LARGE, PIECES),
    "sentencepiece target": (PIECES, SMALL),
}


def dictionary(name):
    target, draft = PAIRS[name]
    return Dictionary(target, draft, draft.vocab_size)


DICTIONARIES = {name: dictionary(name) for name in PAIRS}


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_the_drafts_tokens_spell_the_targets_text_byte_for_byte(name, text):
    pair = DICTIONARIES[name]
    ids = pair.target.continuation(text)
    written = Foreign(pair).follow(ids)[len(pair.beginning) :]
    assert pair.draft.join(written) == pair.target.join(ids)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=40, deadline=None)
@given(text=TEXTS, other=TEXTS, data=st.data())
def test_following_in_steps_with_rollbacks_is_following_at_once(name, text, other, data):
    pair = DICTIONARIES[name]
    one, two = pair.target.continuation(text), pair.target.continuation(other)
    translation = Foreign(pair)
    for _ in range(4):
        kept = data.draw(st.integers(0, len(one)))
        ids = one[:kept] + two[: data.draw(st.integers(0, len(two)))]
        assert translation.follow(ids) == Foreign(pair).follow(ids)


@pytest.mark.parametrize("name", PAIRS)
def test_any_ids_whatever_can_be_followed(name):
    pair = DICTIONARIES[name]
    generator = torch.Generator().manual_seed(3)
    size = len(pair.target.bytes)
    for _ in range(50):
        ids = torch.randint(size, (12,), generator=generator).tolist()
        written = Foreign(pair).follow(ids)
        assert all(0 <= i < len(pair.draft.bytes) for i in written)


@pytest.mark.parametrize("name", PAIRS)
def test_special_tokens_are_never_shared(name):
    pair = DICTIONARIES[name]
    assert pair.overlap.to_draft
    for ours, theirs in pair.overlap.to_draft.items():
        assert ours not in pair.target.tokenizer.special_ids
        assert theirs not in pair.draft.tokenizer.special_ids
        assert pair.target.bytes[ours] == pair.draft.bytes[theirs]


def test_logits_move_to_shared_tokens_and_nothing_else_can_be_drawn():
    pair = DICTIONARIES["large target, small draft"]
    logits = torch.randn(1, len(pair.draft.bytes), dtype=torch.float64)
    moved = Foreign(pair).to_target(logits)
    assert moved.shape == (1, len(pair.target.bytes))
    assert int(moved.isfinite().sum()) == len(pair.overlap.to_draft)
    for ours, theirs in pair.overlap.to_draft.items():
        assert moved[0, ours] == logits[0, theirs]


def model_for(tokenizer, seed):
    return toy("llama", seed=seed, vocab_size=tokenizer.vocab_size), tokenizer._tokenizer


@pytest.mark.parametrize("foreign", ["intersection", "string"])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_output_never_changes(name, foreign, temperature):
    target, draft = (model_for(tokenizer, seed) for seed, tokenizer in enumerate(PAIRS[name]))
    with draftwise.load(target, draft, foreign=foreign) as engine:
        for k in (1, 4):
            result = engine.generate(
                "The quick café 日本",
                raw=True,
                tokens=24,
                k=k,
                temperature=temperature,
                seed=k,
                baseline=True,
            )
            assert result.identity.identical
            assert result.counters.drafted > 0
        assert result.settings["foreign"] == foreign


@pytest.mark.parametrize("foreign", ["intersection", "string"])
def test_a_pair_with_nothing_in_common_is_plain_decoding_and_says_so(foreign):
    target = toy("llama", vocab_size=NUM_TOKENS), byte_tokenizer()
    draft = toy("llama", seed=1, vocab_size=3), word_tokenizer()
    with draftwise.load(target, draft, foreign=foreign) as engine:
        result = engine.generate("hello", tokens=10, baseline=True)
    assert result.identity.identical
    if foreign == "intersection":
        assert result.counters.drafted == 0
        assert "shares no token" in result.notes[0]
