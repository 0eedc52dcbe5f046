"""Processors give what transformers gives, and a rejected draft leaves nothing in their states."""

import math
import random
from collections import Counter

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.core.processors import (
    BannedWords,
    FrequencyPenalty,
    LogitBias,
    MinTokens,
    NoRepeatNgram,
    PresencePenalty,
    RepetitionPenalty,
)

VOCAB = 12
WORDS = ((3,), (1, 2), (1, 4), (2, 2, 5), (7, 8, 9, 10), (0, 1, 2))
BIAS = {0: 2.5, 4: -1.0, 11: -math.inf}
ENDS = (2, 9)

PROCESSORS = (
    RepetitionPenalty(1.7),
    RepetitionPenalty(0.6),
    PresencePenalty(0.9),
    FrequencyPenalty(0.4),
    LogitBias(BIAS),
    BannedWords(WORDS),
    NoRepeatNgram(1),
    NoRepeatNgram(2),
    NoRepeatNgram(3),
    MinTokens(4, ENDS),
)

tokens = st.lists(st.integers(0, VOCAB - 1), max_size=14)


def theirs(processor, prompt):
    """The processor of transformers that means the same."""
    match processor:
        case RepetitionPenalty(penalty):
            return transformers.RepetitionPenaltyLogitsProcessor(penalty)
        case NoRepeatNgram(n):
            return transformers.NoRepeatNGramLogitsProcessor(n)
        case BannedWords(words):
            return transformers.NoBadWordsLogitsProcessor([list(word) for word in words])
        case LogitBias(bias):
            return transformers.SequenceBiasLogitsProcessor({(i,): v for i, v in bias.items()})
        case MinTokens(n, end_ids):
            return transformers.MinNewTokensLengthLogitsProcessor(len(prompt), n, list(end_ids))


def random_logits(seed=0, vocab=VOCAB, dtype=torch.float32):
    return 3 * torch.randn(vocab, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def state_after(processor, prompt, generated):
    state = processor.start(prompt)
    for token in generated:
        state = processor.advance(state, token)
    return state


@pytest.mark.parametrize(
    "processor",
    [p for p in PROCESSORS if not isinstance(p, PresencePenalty | FrequencyPenalty)],
    ids=str,
)
def test_each_processor_gives_what_transformers_gives_on_random_histories(processor):
    rng = random.Random(1)
    changed = 0
    for seed in range(60):
        letters = rng.choice([3, 6, VOCAB])  # few letters repeat themselves more
        prompt = [rng.randrange(letters) for _ in range(rng.randint(1, 12))]
        generated = [rng.randrange(letters) for _ in range(rng.randint(0, 12))]
        logits = random_logits(seed)
        ours = processor.apply(state_after(processor, prompt, generated), logits)
        ids = torch.tensor([prompt + generated])
        assert torch.equal(ours, theirs(processor, prompt)(ids, logits[None])[0])
        changed += not torch.equal(ours, logits)
    assert changed > 10  # otherwise the comparison saw nothing


@settings(max_examples=50, deadline=None)
@given(prompt=tokens, generated=tokens)
def test_presence_and_frequency_penalties_follow_openai_and_leave_the_prompt_out(prompt, generated):
    logits, counts = random_logits(), Counter(generated)
    presence, frequency = PresencePenalty(0.5), FrequencyPenalty(-0.25)
    after_presence = presence.apply(state_after(presence, prompt, generated), logits)
    after_frequency = frequency.apply(state_after(frequency, prompt, generated), logits)
    for token in range(VOCAB):
        assert after_presence[token] == logits[token] - 0.5 * (counts[token] > 0)
        assert after_frequency[token] == logits[token] + 0.25 * counts[token]


def test_a_banned_word_is_banned_when_its_beginning_ends_the_prompt():
    processor = BannedWords(((5, 6, 7), (4,)))
    fresh = processor.apply(processor.start([1, 5, 6]), torch.zeros(VOCAB))
    assert fresh.isinf().nonzero().flatten().tolist() == [4, 7]
    later = processor.apply(state_after(processor, [1, 5, 6], [1]), torch.zeros(VOCAB))
    assert later.isinf().nonzero().flatten().tolist() == [4]


def test_a_history_that_is_itself_one_ngram_already_counts():
    processor = NoRepeatNgram(2)
    banned = processor.apply(processor.start([5, 5]), torch.zeros(VOCAB)).isinf()
    assert banned.nonzero().flatten().tolist() == [5]
    assert not processor.apply(processor.start([5]), torch.zeros(VOCAB)).isinf().any()


def test_end_tokens_are_free_from_the_very_token_that_min_tokens_names():
    processor = MinTokens(3, ENDS)
    banned = [
        bool(processor.apply(state_after(processor, [1] * 9, [5] * n), torch.zeros(VOCAB))[9] < 0)
        for n in range(5)
    ]
    assert banned == [True, True, True, False, False]


def test_ids_beyond_the_logits_are_passed_over():
    logits = random_logits()
    for processor in (*PROCESSORS, MinTokens(4, (2, 99))):
        with_image = processor.apply(state_after(processor, [1, 99, 2], [99, 3]), logits)
        assert with_image.shape == logits.shape
    penalty = RepetitionPenalty(2.0)
    assert torch.equal(
        penalty.apply(penalty.start([1, 99, 3]), logits),
        penalty.apply(penalty.start([1, 3]), logits),
    )


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_dtype_of_the_logits_is_kept(processor, dtype):
    logits = random_logits(dtype=dtype)
    assert processor.apply(state_after(processor, [1, 2], [3, 1]), logits).dtype == dtype


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@settings(max_examples=40, deadline=None)
@given(prompt=tokens, kept=tokens, branches=st.lists(tokens, min_size=1, max_size=3))
def test_a_state_that_was_advanced_along_other_branches_is_as_good_as_new(
    processor, prompt, kept, branches
):
    logits = random_logits()
    state = state_after(processor, prompt, kept)
    for branch in branches:  # drafts that are rejected, read and applied all the way
        drafted = state
        for token in branch:
            drafted = processor.advance(drafted, token)
            processor.apply(drafted, logits)
        fresh = processor.apply(state_after(processor, prompt, kept + branch), random_logits())
        assert torch.equal(processor.apply(drafted, logits), fresh)
    fresh = processor.apply(state_after(processor, prompt, kept), random_logits())
    assert torch.equal(processor.apply(state, logits), fresh)
    assert torch.equal(logits, random_logits()), "apply wrote into its argument"
