"""Options become a distribution: filters in order, on true prefixes, over real tokens only."""

import math
from dataclasses import dataclass

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.core.distributions import Dense, OneHot
from draftwise.core.errors import ModelError, OptionError
from draftwise.core.sampling import (
    Sampler,
    SamplingOptions,
    filtered_probabilities,
    require_choice,
)

VOCAB = 16
EVERYTHING = SamplingOptions(
    temperature=0.7,
    top_k=9,
    top_p=0.9,
    min_p=0.02,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.2,
    logit_bias={3: 1.5, 5: -math.inf},
    banned_words=((7,), (1, 2), (2, 2, 4)),
    no_repeat_ngram=3,
    min_tokens=4,
)


def random_logits(n, vocab=VOCAB, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, vocab, generator=generator, dtype=dtype)


def of_probabilities(*row):
    return torch.tensor([row], dtype=torch.float64).log()


def sampler(vocab_size=VOCAB, end_ids=(0,), processors=(), **options):
    options = SamplingOptions(**options)
    return Sampler(options, vocab_size=vocab_size, end_ids=end_ids, processors=processors)


def warped_by_transformers(logits, options):
    warpers = [
        transformers.TemperatureLogitsWarper(options.temperature),
        options.top_k and transformers.TopKLogitsWarper(options.top_k),
        options.top_p < 1 and transformers.TopPLogitsWarper(options.top_p),
        options.min_p and transformers.MinPLogitsWarper(options.min_p),
    ]
    for warper in filter(None, warpers):
        logits = warper(None, logits)
    return logits.softmax(-1)


# Filters


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.8])
@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 10_000])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5, 1e-9])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 1.0])
def test_filters_keep_the_tokens_that_transformers_keeps(temperature, top_k, top_p, min_p):
    options = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = random_logits(6, vocab=400, dtype=torch.float64)
    ours, theirs = filtered_probabilities(logits, options), warped_by_transformers(logits, options)
    assert torch.equal(ours > 0, theirs > 0)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("top_p", [0.5, 0.99, 0.9999])
def test_a_flat_row_of_a_large_vocabulary_widens_the_search_of_top_p(top_p):
    flat = random_logits(1, vocab=6000, dtype=torch.float64) / 10
    logits = torch.cat([flat, 5 * flat])
    options = SamplingOptions(temperature=1.0, top_p=top_p)
    ours = filtered_probabilities(logits, options)
    assert (ours[0] > 0).sum() > 256
    torch.testing.assert_close(ours, warped_by_transformers(logits, options), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_row_does_not_depend_on_the_other_rows_of_its_block(dtype):
    logits = torch.cat(
        [random_logits(4, 5000, dtype=dtype), random_logits(2, 5000, dtype=dtype) / 9]
    )
    for top_k in (0, 50):
        options = SamplingOptions(temperature=0.9, top_k=top_k, top_p=0.9, min_p=0.001)
        block = filtered_probabilities(logits, options)
        rows = [filtered_probabilities(logits[i : i + 1], options) for i in range(6)]
        assert torch.equal(block, torch.cat(rows))


def test_temperature_comes_before_top_p_and_top_k_before_both_of_the_others():
    p = of_probabilities(0.4, 0.3, 0.2, 0.1)
    # At temperature 1/2 the squares count, 16:9:4:1, so two tokens hold 25/30.
    cool = filtered_probabilities(p, SamplingOptions(temperature=0.5, top_p=0.8))
    torch.testing.assert_close(cool[0], torch.tensor([16, 9, 0, 0], dtype=torch.float64) / 25)
    # Of the top three, .4 and .3 hold 7/9; among all four they would hold only .7.
    both = filtered_probabilities(p, SamplingOptions(temperature=1.0, top_k=3, top_p=0.75))
    torch.testing.assert_close(both[0], torch.tensor([4, 3, 0, 0], dtype=torch.float64) / 7)


def test_tokens_that_tie_at_an_edge_stay_together_whatever_their_ids():
    p = of_probabilities(0.15, 0.25, 0.15, 0.3, 0.15)
    for filters in ({"top_k": 3}, {"top_p": 0.6}, {"top_k": 3, "top_p": 0.9}):
        kept = filtered_probabilities(p, SamplingOptions(temperature=1.0, **filters))
        torch.testing.assert_close(kept, p.exp())
    two = filtered_probabilities(p, SamplingOptions(temperature=1.0, top_k=4, top_p=0.5))
    assert two[0].nonzero().flatten().tolist() == [1, 3]


def test_ties_at_the_edge_of_top_k_are_kept_as_transformers_keeps_them():
    logits = random_logits(8, vocab=200).round()  # like 16-bit logits: few distinct values
    options = SamplingOptions(temperature=1.0, top_k=10)
    ours = filtered_probabilities(logits, options)
    assert ((ours > 0).sum(-1) > 10).any()
    torch.testing.assert_close(ours, warped_by_transformers(logits, options))


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(
        st.sampled_from([-math.inf, -50.0, -1.0, 0.0, 0.5, 20.0]), min_size=1, max_size=9
    ),
    temperature=st.sampled_from([1e-6, 0.1, 1.0, 1e6]),
    top_k=st.integers(0, 12),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
)
def test_the_most_likely_token_always_survives_and_rows_sum_to_one(
    logits, temperature, top_k, top_p, min_p
):
    rows = torch.tensor([[*logits, 1.0]])
    options = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    p = filtered_probabilities(rows, options)
    assert p.argmax() == rows.argmax()
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert not p[rows == -math.inf].any()


# Distributions


def test_temperature_0_puts_all_mass_on_the_lowest_of_the_tied_ids():
    state = sampler(top_k=2, top_p=0.5).start([1])
    logits = torch.zeros(2, VOCAB)
    logits[1, [4, 9, 11]] = 2.0
    p = state.distribution(state.processed(logits, [3]))
    assert isinstance(p, OneHot)
    assert p.ids.tolist() == [0, 4]


def test_a_temperature_gives_rows_of_probabilities():
    state = Sampler(EVERYTHING, vocab_size=VOCAB, end_ids=(0,)).start([1])
    processed = state.processed(random_logits(3), [3, 4])
    p = state.distribution(processed)
    assert isinstance(p, Dense)
    assert torch.equal(p.p, filtered_probabilities(processed, EVERYTHING))


@pytest.mark.parametrize(
    ("given_dtype", "used"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
def test_16_bit_logits_are_sampled_in_float32_and_float64_stays(given_dtype, used):
    for options in ({}, {"repetition_penalty": 1.2}):
        state = sampler(temperature=1.0, **options).start([1])
        logits = random_logits(2).to(given_dtype)
        processed = state.processed(logits, [2])
        assert processed.dtype == state.distribution(processed).p.dtype == used
        assert logits.dtype == given_dtype


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_rows_of_a_model_are_never_emitted_however_likely(temperature):
    state = sampler(temperature=temperature).start([1])
    logits = random_logits(2, vocab=VOCAB + 8)
    logits[:, VOCAB:] = 100.0
    processed = state.processed(logits, [2])
    assert torch.equal(processed, logits[:, :VOCAB])
    p = state.distribution(processed)
    assert sum(float(p.dense(0, VOCAB)[i]) for i in range(VOCAB)) == pytest.approx(1)


# Processors in a block


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@settings(max_examples=40, deadline=None)
@given(
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10),
    written=st.lists(st.integers(0, VOCAB - 1), max_size=6),
    draft=st.lists(st.integers(0, VOCAB - 1), max_size=6),
)
def test_a_block_row_by_row_equals_each_true_prefix_from_scratch(
    temperature, prompt, written, draft
):
    options = {name: getattr(EVERYTHING, name) for name in EVERYTHING.__slots__}
    each = sampler(**{**options, "temperature": temperature})
    logits = random_logits(len(draft) + 1, vocab=VOCAB + 3)
    before = logits.clone()
    state = each.start(prompt)
    for token in written:
        state = state.advance(token)
    block = state.processed(logits, draft)
    for i in range(len(draft) + 1):
        scratch = each.start(prompt)
        for token in written + draft[:i]:
            scratch = scratch.advance(token)
        row = scratch.processed(logits[i : i + 1], ())
        assert torch.equal(block[i : i + 1], row)
        one, many = scratch.distribution(row), state.distribution(block)
        assert torch.equal(one.dense(0, VOCAB), many.dense(i, VOCAB))
    assert torch.equal(logits, before)
    assert torch.equal(state.processed(logits, draft), block), "the draft left a trace"


@pytest.fixture(scope="module")
def wild_llama():
    """A tiny Llama with weights so large that its logits are far apart and its text varied."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        initializer_range=0.7,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("prompt", [[4, 5, 8, 4], [1], [9, 2, 9, 2, 9]], ids=str)
def test_greedy_text_with_every_processor_is_that_of_transformers_generate(wild_llama, prompt):
    length, end = 24, 0
    text = wild_llama.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=length,
        min_new_tokens=length - 2,
        eos_token_id=end,
        pad_token_id=end,
        repetition_penalty=1.5,
        sequence_bias={(4,): 3.0, (5,): -3.0},
        no_repeat_ngram_size=2,
        bad_words_ids=[[6], [8, 9], [4, 4]],
    )[0, len(prompt) :].tolist()
    state = sampler(
        end_ids=[end],
        min_tokens=length - 2,
        repetition_penalty=1.5,
        logit_bias={4: 3.0, 5: -3.0},
        no_repeat_ngram=2,
        banned_words=((6,), (8, 9), (4, 4)),
    ).start(prompt)
    ours = []
    with torch.no_grad():
        while len(ours) < len(text):
            logits = wild_llama(torch.tensor([prompt + ours])).logits[0, -1:]
            ours += state.distribution(state.processed(logits)).ids.tolist()
            state = state.advance(ours[-1])
    assert len(text) >= length - 2
    assert ours == text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_distributions_of_the_cpu():
    state = Sampler(EVERYTHING, vocab_size=VOCAB, end_ids=(0,)).start([1, 2, 3, 1])
    logits, draft = random_logits(4, dtype=torch.float64), [2, 4, 4]
    ours = state.processed(logits.cuda(), draft)
    assert ours.is_cuda
    there, here = state.distribution(ours), state.distribution(state.processed(logits, draft))
    torch.testing.assert_close(there.p.cpu(), here.p, rtol=1e-12, atol=0)


def test_only_the_processors_whose_option_is_on_are_built():
    assert sampler(temperature=1.0, top_k=3).processors == ()
    assert len(Sampler(EVERYTHING, vocab_size=VOCAB).processors) == 7


@dataclass(frozen=True, slots=True)
class OnlyAfter:
    """A grammar of a user: a token may only be followed by its successor, and 13 is a dead end."""

    def start(self, prompt):
        return prompt[-1]

    def advance(self, state, token):
        return token

    def apply(self, state, logits):
        allowed = torch.full_like(logits, -math.inf)
        if state != 13:
            allowed[(state + 1) % VOCAB] = logits[(state + 1) % VOCAB]
        return allowed


def test_a_users_own_processor_comes_last_and_sees_the_true_prefix():
    each = sampler(logit_bias={3: 50.0}, processors=[OnlyAfter()])
    assert isinstance(each.processors[-1], OnlyAfter)
    state = each.start([1])
    p = state.distribution(state.processed(random_logits(3), [2, 7]))
    assert p.ids.tolist() == [2, 3, 8]
    with pytest.raises(ValueError, match="draft tokens"):
        state.processed(random_logits(3), [2])


# Errors


def test_a_position_without_any_token_names_the_options_to_loosen():
    state = sampler(vocab_size=2, min_tokens=3, banned_words=((1,),)).start([1])
    with pytest.raises(OptionError, match="leave no token"):
        state.processed(torch.zeros(1, 2))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_dead_end_behind_a_draft_stops_the_request_only_where_it_is_reached(temperature):
    state = sampler(temperature=temperature, processors=[OnlyAfter()]).start([1])
    processed = state.processed(random_logits(3), [13, 5])  # 13 cannot follow 1
    p = state.distribution(processed)
    assert p.probability(torch.tensor([2])).tolist() == [1]
    assert p.probability(torch.tensor([13])).tolist() == [0]
    if temperature:
        assert not p.dense(1, VOCAB).any()
    require_choice(processed[:1])
    with pytest.raises(OptionError, match="leave no token"):
        require_choice(processed[:2])
    with pytest.raises(OptionError, match="leave no token"):
        state.advance(13).processed(random_logits(1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("options", [{}, {"presence_penalty": 1.0}])
def test_logits_that_are_no_numbers_are_an_error_of_the_model(bad, temperature, options):
    logits = random_logits(1)
    logits[0, 5] = bad
    with pytest.raises(ModelError, match="float32"):
        sampler(temperature=temperature, **options).start([1]).processed(logits)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, "from 0 to"),
        ("temperature", math.nan, "from 0 to"),
        ("temperature", math.inf, "from 0 to"),
        ("temperature", "warm", "from 0 to"),
        ("temperature", 1e-9, "0 (greedy) or at least 1e-6"),
        ("top_k", -1, "0 (off) or more"),
        ("top_k", 2.5, "a whole number"),
        ("top_k", True, "a whole number"),
        ("top_p", 0.0, "above 0"),
        ("top_p", 1.01, "from 0 to 1"),
        ("top_p", math.nan, "from 0 to 1"),
        ("min_p", -0.1, "from 0 to 1"),
        ("min_p", 1.1, "from 0 to 1"),
        ("repetition_penalty", 0.0, "from 0.01 to 100"),
        ("presence_penalty", 2.1, "from -2 to 2"),
        ("frequency_penalty", -math.inf, "from -2 to 2"),
        ("logit_bias", {3: math.inf}, "or -inf"),
        ("logit_bias", {3: math.nan}, "or -inf"),
        ("logit_bias", {-3: 1.0}, "0 or more"),
        ("logit_bias", ((3, 1.0), (3, 2.0)), "one value"),
        ("banned_words", ((1,), ()), "at least one"),
        ("banned_words", ((-1,),), "0 or more"),
        ("no_repeat_ngram", -2, "0 (off) or more"),
        ("min_tokens", -1, "0 (off) or more"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_option_and_its_range(name, value, allowed):
    with pytest.raises(OptionError) as error:
        SamplingOptions(**{name: value})
    assert name in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    "options", [{"logit_bias": {VOCAB: 1.0}}, {"banned_words": ((1, VOCAB), (2,))}]
)
def test_an_id_outside_the_vocabulary_is_refused_before_any_work(options):
    with pytest.raises(OptionError, match=rf"{next(iter(options))}.*0 to {VOCAB - 1}.*{VOCAB}"):
        sampler(**options)


def test_options_given_as_mappings_and_lists_become_hashable_values():
    options = SamplingOptions(logit_bias={3: 1.0}, banned_words=[[1, 2]])
    assert options == SamplingOptions(logit_bias=((3, 1.0),), banned_words=((1, 2),))
    assert hash(options) == hash(SamplingOptions(logit_bias={3: 1.0}, banned_words=((1, 2),)))
