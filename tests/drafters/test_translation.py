"""Drafts that speak another vocabulary: the text is followed exactly, and the output never changes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import draftwise
from draftwise.core.distributions import Dense, OneHot
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.drafters.model import DraftModel, highest_probability
from draftwise.drafters.strings import StringDraft
from draftwise.drafters.translation import Dictionary, Foreign
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.models.tokenizer import HFTokenizer
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer, word_tokenizer
from draftwise.testing.toys import toy
from tests.decoding.rig import plain, request, speculate
from tests.drafters.words import Words, partly_shared

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
    return Dictionary(target, draft, target.vocab_size, draft.vocab_size)


DICTIONARIES = {name: dictionary(name) for name in PAIRS}
GREEDY, WARM = SamplingOptions(), SamplingOptions(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05)


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


@pytest.mark.parametrize("penalty", [1.0, 1.3])
@pytest.mark.parametrize("options", [GREEDY, WARM])
def test_only_shared_tokens_are_drawn_by_the_drafts_law_over_them(options, penalty):
    """The reference: the draft's logits written out over the target's whole vocabulary."""
    pair = DICTIONARIES["large target, small draft"]
    size = len(pair.target.bytes)
    options = replace(options, repetition_penalty=penalty)
    state = Sampler(options, vocab_size=size).start([*pair.overlap.to_draft][:9])
    logits = torch.randn(3, len(pair.draft.bytes), dtype=torch.float64)
    whole = torch.full((3, size), -torch.inf, dtype=torch.float64)
    for ours, theirs in pair.overlap.to_draft.items():
        whole[:, ours] = logits[:, theirs]
    seen = [*pair.overlap.to_draft][3:5]
    reference = state.processed(whole, seen)
    expected = state.distribution(reference)
    processed, q = Foreign(pair).law(logits, state, seen)
    for position in range(3):
        torch.testing.assert_close(q.dense(position, size), expected.dense(position, size))
    assert int(processed[0].isfinite().sum()) == len(pair.overlap.to_draft)
    assert highest_probability(processed) == pytest.approx(highest_probability(reference))


def test_a_draft_gone_wild_names_tokens_of_the_target_all_the_same():
    pair = DICTIONARIES["large target, small draft"]
    size = len(pair.target.bytes)
    names, _ = pair.names(torch.device("cpu"))
    nowhere = int((names == size).nonzero()[0])
    assert OneHot(torch.tensor([nowhere])).renamed(names, size).ids.tolist() == [size - 1]
    spread = Dense(torch.eye(len(names))[[nowhere, 70]]).renamed(names, size)
    assert spread.p.sum(-1).tolist() == [0.0, 1.0]
    assert int(spread.p[1].argmax()) == int(names[70])


def test_what_a_context_costs_a_foreign_draft_is_measured_in_its_own_tokens(monkeypatch):
    """The target's ids go beyond the draft's."""
    monkeypatch.setattr("draftwise.engine.calibration._FAR", 200)
    target, draft = (model_for(tokenizer, 1) for tokenizer in (LARGE, SMALL))
    with draftwise.load(target, draft) as engine:
        costs = engine.costs
    assert [len(c.measured) for c in (costs.read_more, costs.propose_more)] == [2, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_that_the_target_has_no_row_for_is_not_drafted(temperature):
    dictionary = Dictionary(Words(["a", "b", "c"]), Words(["c", "b", "a"]), 2, 3)
    draft = DraftModel(EagerRunner(toy("llama", vocab_size=3)), "longer", dictionary)
    asked = request([0, 1], vocab_size=2, temperature=temperature)
    for seed in range(20):
        drafted = draft.open().propose([0, 1], 4, asked.sampler.start([0, 1]), KeyedNoise(seed))
        assert len(drafted.tokens) == 4
        assert set(drafted.tokens) <= {0, 1}


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
    else:
        assert result.counters.drafted > 0


KINDS = {"intersection": DraftModel, "string": StringDraft}


@pytest.mark.parametrize("foreign", KINDS)
def test_tokens_without_a_row_are_neither_read_nor_drafted(foreign):
    """A draft whose tokenizer learnt tokens that its model was not resized for."""
    added = ["<|x|>", "<|y|>"]
    tokenizers = [byte_tokenizer(), byte_tokenizer()]
    for tokenizer in tokenizers:
        tokenizer.add_special_tokens({"bos_token": added[0], "eos_token": added[1]})
        tokenizer.add_tokens(["hello"])
    tokenizers[0].add_tokens(["there"])
    tokenizers[1].backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|x|> $A", special_tokens=[("<|x|>", NUM_TOKENS)]
    )
    assert tokenizers[1]("").input_ids == [NUM_TOKENS]
    target = toy("llama", vocab_size=NUM_TOKENS + 4), tokenizers[0]
    draft = toy("llama", seed=1, vocab_size=NUM_TOKENS), tokenizers[1]
    with draftwise.load(target, draft, foreign=foreign) as engine:
        dictionary = engine.drafter.dictionary
        for temperature in (0.0, 1.0):
            result = engine.generate(
                "hello there <|x|> hello", raw=True, tokens=12, k=3, baseline=True,
                temperature=temperature, seed=1,
            )  # fmt: skip
            assert result.identity.identical
            assert result.counters.drafted > 0
    ids = tokenizers[0]("hello <|x|>").input_ids
    assert max(ids) >= NUM_TOKENS
    read = Foreign(dictionary).follow(ids)
    assert max(read) < NUM_TOKENS
    assert dictionary.draft.join(read) == b"hello <|x|>"


SIZE = 12
TINY = partly_shared(SIZE)
SHARED = sorted(TINY.overlap.to_draft)
PROMPT = [*SHARED[:4], *range(SIZE)]


class Forces:
    """A user's processor that leaves one token to choose."""

    def __init__(self, token):
        self.token = token

    def start(self, prompt):
        return None

    def advance(self, state, token):
        return None

    def apply(self, state, logits):
        return torch.full_like(logits, -torch.inf).index_fill(0, torch.tensor(self.token), 0.0)


class Centres(Forces):
    """A user's processor that makes nothing of -inf, as translated logits have it."""

    def apply(self, state, logits):
        return logits - logits.mean()


def tiny(foreign):
    models = [EagerRunner(toy("llama", seed, vocab_size=SIZE)) for seed in (0, 1)]
    return Row(models[0]), KINDS[foreign](models[1], "tiny", TINY).open()


def bans(tokens):
    return {"logit_bias": dict.fromkeys(tokens, -torch.inf)}


@pytest.mark.parametrize("foreign", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "options",
    [
        {"top_k": len(SHARED) + 2},
        {"top_k": 2, "top_p": 0.9},
        {"min_p": 0.2},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5},
        {"no_repeat_ngram": 2},
        bans(SHARED),
        bans(SHARED[1:]),
        {"processors": [Forces(SHARED[0])]},
        {"processors": [Forces(next(i for i in range(SIZE) if i not in SHARED))]},
        {"processors": [Centres(0)]},
    ],
    ids=str,
)
def test_whatever_changes_the_logits_the_output_never_changes(foreign, temperature, options):
    row, session = tiny(foreign)
    for seed in range(3):
        asked = request(
            PROMPT, vocab_size=SIZE, temperature=temperature, seed=seed, max_tokens=12, **options
        )
        assert speculate(asked, row, session).token_ids == plain(asked, row).token_ids


def proposed(foreign, ids=PROMPT, k=3, **options):
    _, session = tiny(foreign)
    state = request(ids, vocab_size=SIZE, **options).sampler.start(ids)
    return session.propose(ids, k, state, KeyedNoise(1))


def test_top_k_above_the_number_of_shared_tokens_draws_shared_tokens_alone():
    options = {"temperature": 5.0, "top_k": len(SHARED) + 2}
    proposal = proposed("intersection", k=8, **options)
    assert set(proposal.tokens) <= set(SHARED)
    assert all(set(row.nonzero().flatten().tolist()) == set(SHARED) for row in proposal.q.p)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_every_shared_token_is_banned_nothing_is_drafted_and_it_says_so(temperature):
    options = {"temperature": temperature, **bans(SHARED)}
    proposal = proposed("intersection", **options)
    assert proposal.tokens == ()
    assert proposal.q is None
    assert "no token to choose" in proposal.note
    row, session = tiny("intersection")
    run = speculate(request(PROMPT, vocab_size=SIZE, max_tokens=9, **options), row, session)
    assert run.counters.drafted == 0
    assert run.counters.emitted == 9


def test_a_token_that_a_processor_forces_is_drafted_though_only_the_target_has_it():
    forced = next(i for i in range(SIZE) if i not in SHARED)
    assert proposed("intersection", processors=[Forces(forced)]).tokens == (forced,) * 3


def test_a_processor_that_makes_nothing_of_missing_tokens_stops_the_draft_alone():
    assert "not a number" in proposed("intersection", processors=[Centres(0)]).note


@pytest.mark.parametrize("foreign", KINDS)
def test_a_text_that_the_draft_cannot_read_at_all_is_not_drafted_for(foreign):
    unread = next(
        i for i in range(SIZE) if not TINY.draft.continuation(TINY.target.join([i]).decode())
    )
    proposal = proposed(foreign, ids=[unread])
    assert proposal.tokens == ()
    assert "no token for any of the text" in proposal.note


def test_text_of_which_the_target_has_no_token_is_not_proposed_and_it_says_so():
    """Every word of this draft is foreign to the target but one, which it reads and never writes."""
    dictionary = Dictionary(Words(["a", "b"]), Words(["x", "y", "a"], special=[2]), 2, 3)
    draft = StringDraft(EagerRunner(toy("llama", vocab_size=3)), "strange", dictionary)
    dictionary.special[0] = [2]
    row, session = Row(EagerRunner(toy("llama", 1, vocab_size=2))), draft.open()
    for temperature in (0.0, 1.0):
        asked = request([0, 1], vocab_size=2, max_tokens=8, temperature=temperature)
        proposal = session.propose([0, 1], 3, asked.sampler.start([0, 1]), KeyedNoise(1))
        assert (proposal.tokens, proposal.passes) == ((), 3)
        assert "no token for what the draft model wrote" in proposal.note
        assert speculate(asked, row, session).token_ids == plain(asked, row).token_ids
