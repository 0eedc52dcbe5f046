"""Contexts that end, budgets smaller than k, and drafters that do less, or worse, than asked."""

import pytest
import torch

from draftwise.core.clock import FakeClock
from draftwise.core.errors import OptionError, PromptError
from draftwise.decoding.round import Origin
from draftwise.decoding.run import Run
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.toys import VOCAB_SIZE, chain_model, table_model, toy
from tests.decoding.rig import (
    KS,
    Says,
    counted,
    letters,
    plain,
    request,
    rig,
    some_prompt,
    speculate,
    tokens_of,
)

SIZE = 26
ALPHABET = list(range(SIZE))
ROW = Row(EagerRunner(chain_model(ALPHABET, SIZE)))


class WatchedRunner(EagerRunner):
    """Remembers the longest row that it was ever made to hold."""

    longest = 0

    def read(self, reads, hidden_layers=()):
        readings = super().read(reads, hidden_layers)
        self.longest = max(self.longest, *(self.length(read.row) for read in reads))
        return readings


@pytest.mark.parametrize("k", KS)
def test_a_target_whose_context_ends_stops_there_and_never_reads_a_position_too_many(k):
    runner = WatchedRunner(toy("llama"))
    row, session = Row(runner), DraftModel(runner, "self").open()
    for context in range(14, 20):
        asked = request(some_prompt(1), k=k, max_tokens=30, context_length=context)
        run = speculate(asked, row, session)
        assert len(run.token_ids) == context - 13
        assert run.finish_reason == "length"
        assert runner.longest <= context


def test_learned_positions_are_written_to_the_last_one():
    model = toy("gpt2")  # an index error at position 512
    row, prompt = Row(EagerRunner(model)), some_prompt(1, length=503)
    for k in (0, 3, 8):
        session = DraftModel(EagerRunner(model), "same").open()
        asked = request(prompt, k=k, max_tokens=30, context_length=512)
        assert len(speculate(asked, row, session).token_ids) == 9


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers():
    for length in (16, 17):
        with pytest.raises(PromptError, match=rf"{length} tokens.*16.*shorten"):
            request(some_prompt(1, length), context_length=16)
    with pytest.raises(PromptError, match="empty"):
        request([])


@pytest.mark.parametrize("k", KS)
def test_where_the_drafts_context_ends_speculation_pauses_visibly_and_the_text_is_unchanged(k):
    model = toy("llama")
    prompt, row = some_prompt(1), Row(EagerRunner(model))
    expected = plain(request(prompt, max_tokens=20), row).token_ids
    for context in (1, 12, 13, 14, 15, 20, 26, 50):
        runner = WatchedRunner(model, context_length=context)
        run = speculate(
            request(prompt, k=k, max_tokens=20), row, DraftModel(runner, "short").open()
        )
        assert run.token_ids == expected
        assert runner.longest <= context
        length = len(prompt)
        for round_ in run.rounds:
            wanted = min(k, len(prompt) + 20 - length - 1)
            possible = max(0, context - length + 1)  # the last token drafted is not read
            assert round_.count.drafted == min(wanted, possible)
            assert (round_.note is not None) == (possible < wanted)
            length += round_.count.emitted
        paused = {round_.note for round_ in run.rounds if round_.note}
        assert paused <= {"the draft model's context is full"}


def test_a_prompt_of_one_token_is_drafted_for_like_any_other():
    r = rig("llama")
    run = speculate(request([5], k=8, max_tokens=9), r.row, r.draft("same").session)
    assert counted(run) == [(8, 8, 9)]


@pytest.mark.parametrize("k", [6, 50, 5000])
def test_a_k_beyond_the_budget_is_trimmed_to_it(k):
    r = rig("llama")
    run = speculate(request(some_prompt(1), k=k, max_tokens=6), r.row, r.draft("same").session)
    assert counted(run) == [(5, 5, 6)]


def test_k_of_nought_is_plain_decoding():
    r = rig("llama")
    asked = request(some_prompt(1), k=0, max_tokens=6)
    run = speculate(asked, r.row, r.draft("same").session)
    assert counted(run) == [(0, 0, 1)] * 6
    assert run.token_ids == plain(asked, r.row).token_ids
    assert {origin for round_ in run.rounds for origin in round_.origins} == {Origin.PLAIN}


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_drafter_may_return_fewer_tokens_than_asked_for_or_none(k, share):
    session = ScriptedDrafter(ALPHABET, 0.8, vocab_size=SIZE, shortfall=share, seed=k)
    run = speculate(request([0], vocab_size=SIZE, k=k, max_tokens=20), ROW, session)
    assert run.text == letters(ALPHABET[1:21])
    fell_short = [round_.count.drafted for round_ in run.rounds if round_.note]
    assert fell_short
    assert max(fell_short) < k
    assert share < 1 or len(fell_short) == len(run.rounds) - 1  # the last one drafts nothing


def test_a_drafter_that_returns_too_many_tokens_is_told_so():
    session = Says(lambda ids, k: ids[-1:] * (k + 1))
    with pytest.raises(ValueError, match="asked for 3 tokens, the drafter proposed 4"):
        speculate(request([0], vocab_size=SIZE, k=3), ROW, session)


@pytest.mark.parametrize("token", [-1, SIZE, SIZE + 1, 10**12])
def test_a_drafter_that_returns_what_is_no_token_is_told_so(token):
    session = Says(lambda ids, k: [1, token])
    with pytest.raises(ValueError, match=rf"proposed {token}.*0 to 25"):
        speculate(request([0], vocab_size=SIZE, k=3), ROW, session)
    run = plain(request([0], vocab_size=SIZE, max_tokens=4), ROW)
    assert run.text == "bcde"


def test_a_draft_that_options_corner_on_its_own_branch_does_not_stop_the_target():
    following = torch.zeros(SIZE, SIZE)
    following[:, tokens_of("z")[0]] = 10.0
    session = DraftModel(EagerRunner(table_model(following)), "writes z").open()
    nothing_after_z = [(tokens_of("z")[0], token) for token in range(SIZE)]
    asked = request([0], vocab_size=SIZE, k=3, max_tokens=6, banned_words=tuple(nothing_after_z))
    run = speculate(asked, ROW, session)
    assert run.text == "bcdefg"
    assert run.rounds[0].count.drafted == 1
    assert run.rounds[0].note == "the options leave the draft model no token to choose"


@pytest.mark.parametrize("k", [0, *KS])
def test_options_that_leave_the_target_nothing_are_an_error_at_any_k(k):
    nothing_after_d = tuple((tokens_of("d")[0], token) for token in range(SIZE))
    asked = request([0], vocab_size=SIZE, k=k, max_tokens=12, banned_words=nothing_after_d)
    right = ScriptedDrafter(ALPHABET, 1.0, vocab_size=SIZE)
    run = Run(asked, ROW, right, FakeClock())
    with pytest.raises(OptionError, match="no token to choose"):
        run.finish()
    assert "bcd".startswith(run.text)
    assert speculate(request([0], vocab_size=SIZE, k=k), ROW, right).text[:4] == "bcde"


def test_no_id_beyond_the_real_vocabulary_is_ever_written_or_drafted():
    real = 40  # the rest of the model's 96 columns is padding
    r = rig("llama")
    prompt = [token % real for token in some_prompt(1)]
    for temperature in (0.0, 1.5):
        asked = request(prompt, vocab_size=real, max_tokens=30, temperature=temperature)
        runs = [speculate(asked, r.row, r.draft(name).session) for name in ("same", "other")]
        assert runs[0].token_ids == runs[1].token_ids == plain(asked, r.row).token_ids
        assert max(runs[0].token_ids) < real < VOCAB_SIZE
        assert runs[0].counters.discarded == 0
