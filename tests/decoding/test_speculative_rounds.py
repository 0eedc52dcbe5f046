"""What a round shows its consumer: text as it comes, origins, counts, scores, times that add up."""

import math
from contextlib import ExitStack
from itertools import pairwise

import pytest

from draftwise.core.clock import FakeClock, Times
from draftwise.decoding.generation import Generation
from draftwise.decoding.round import Origin
from draftwise.decoding.run import Run, interleave, keep_pace
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.toys import chain_model, toy
from tests.decoding.rig import KS, counted, letters, plain, request, rig, some_prompt, speculate

# The text of a chain of tokens, in bytes: characters of two, three and four bytes lie split over
# tokens in every way, words begin with spaces, and a long stretch has none.
TEXT = "naïve  fox, 😀🎉 日本語のテキスト, ends so…"
BYTES = TEXT.encode()
CUTS = [0, 1, 3, 5, 8, 9, 13, 15, 16, 18, 19, 22, 24, 25, 26, 27, 30, 32, 37, 38, 44, 45, 51, 53]
ENDS = [*CUTS, 58, 59, len(BYTES)]
PIECES = [b"", *(BYTES[a:b] for a, b in pairwise(ENDS))]
CHAIN = list(range(len(PIECES)))
SIZE = len(PIECES)
ROW = Row(EagerRunner(chain_model(CHAIN, SIZE)))


def utf8(ids):
    return b"".join(PIECES[token] for token in ids).decode("utf-8", errors="replace")


def written(k, accuracy=0.7, **options):
    options = {"vocab_size": SIZE, "max_tokens": SIZE - 1, "decode": utf8} | options
    session = ScriptedDrafter(CHAIN, accuracy, vocab_size=SIZE, seed=k)
    return speculate(request([0], k=k, **options), ROW, session)


@pytest.mark.parametrize("k", [0, *KS])
def test_deltas_are_appended_and_joined_they_are_the_whole_text(k):
    run = written(k)
    assert run.text == TEXT == utf8(run.token_ids)
    ids, delivered = [], ""
    for round_ in run.rounds:
        ids += round_.tokens
        delivered += round_.text
        assert "\ufffd" not in round_.text
        assert delivered == BYTES[: ENDS[len(ids)]].decode(errors="ignore"), "whole characters only"


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("last", range(1, SIZE))
def test_the_text_of_a_run_cut_inside_a_character_is_that_of_its_ids(k, last):
    for ending in ({"max_tokens": last}, {"end_ids": [last]}, {"stop_ids": [last]}):
        run = written(k, accuracy=1.0, **ending)
        assert run.token_ids == CHAIN[1 : last + 1]
        assert run.text == utf8(run.token_ids)


@pytest.mark.parametrize("stop", ["fox", "🎉", " 日本", "テキスト, e", "…"])
@pytest.mark.parametrize("k", KS)
def test_stop_strings_of_any_script_end_the_text_before_them(k, stop):
    run = written(k, stop_strings=[stop])
    assert run.text == TEXT[: TEXT.index(stop)]
    assert utf8(run.token_ids).startswith(run.text + stop)


@pytest.mark.parametrize("stop_strings", [(), ("zzz", "kl", "fgz")])
@pytest.mark.parametrize("k", KS)
def test_every_character_is_delivered_under_the_origin_of_its_token(k, stop_strings):
    run = written(k, decode=letters, stop_strings=stop_strings)
    origins = [origin for round_ in run.rounds for origin in round_.origins]
    shown = [o for round_ in run.rounds for text, o in round_.segments for _ in text]
    assert shown == origins[: len(run.text)]
    assert len(run.text) == (9 if stop_strings else SIZE - 1)
    assert all(text for round_ in run.rounds for text, _ in round_.segments)


@pytest.mark.parametrize("draft_name", ["same", "noisy", "other", "lookup", "none"])
@pytest.mark.parametrize("k", KS)
def test_a_round_emits_what_was_accepted_and_one_token_of_the_targets_own(k, draft_name):
    r = rig("table")
    run = speculate(request(some_prompt(1), k=k), r.row, r.draft(draft_name).session)
    for round_ in run.rounds:
        count = round_.count
        accepted, extra = round_.origins[:-1], round_.origins[-1]
        assert 0 <= count.accepted <= count.drafted <= k
        assert count.emitted == count.accepted + 1 == len(round_.tokens)
        assert set(accepted) <= {Origin.ACCEPTED}
        if not count.drafted:
            assert extra is Origin.PLAIN
        else:
            assert extra is (Origin.CORRECTION if count.rejected else Origin.BONUS)
        model_draft = draft_name in ("same", "noisy", "other")
        assert count.draft_passes == (count.drafted if model_draft else 0)
    assert run.counters.emitted == run.counters.accepted + run.counters.rounds == 20
    assert run.counters.target_passes == len(run.rounds)


def test_prefill_is_counted_apart_and_the_next_turn_reads_only_what_is_new():
    runner = EagerRunner(toy("llama"))
    row, session = Row(runner), DraftModel(runner, "self").open()
    prompt = some_prompt(1)
    first = speculate(request(prompt, max_tokens=8), row, session)
    assert (first.counters.prefill_tokens, first.counters.prefill_passes) == (12, 1)
    second = speculate(request([*prompt, *first.token_ids, 7, 8, 9]), row, session)
    assert second.counters.prefill_tokens == 3  # the last token emitted, and all new ones but one
    again = speculate(request([*prompt, *first.token_ids, 7, 8, 9]), row, session)
    assert again.counters.prefill_tokens == again.counters.prefill_passes == 0
    assert counted(again) == counted(second)
    assert first.counters.prefill_tokens == 12, "what the row reads later is not this run's"


def test_plain_decoding_of_n_tokens_is_n_passes_of_the_target():
    r = rig("llama")
    run = plain(request(some_prompt(4), max_tokens=9), r.row)
    assert (run.counters.target_passes, run.counters.emitted, run.counters.drafted) == (9, 9, 0)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "top_p": 0.9}])
@pytest.mark.parametrize("draft_name", ["same", "noisy", "other", "none"])
def test_scores_are_the_targets_at_every_emitted_position_and_the_token_comes_first(
    draft_name, options
):
    r = rig("llama")
    asked = request(some_prompt(1), k=4, **options)
    expected = plain(asked, r.row)
    run = speculate(asked, r.row, r.draft(draft_name).session)
    assert len(run.leading) == len(run.token_ids)
    for token, mine, theirs in zip(run.token_ids, run.leading, expected.leading, strict=True):
        assert mine.ids[0] == token
        assert mine.ids == theirs.ids
        finite = [score for score in theirs.scores if score > -math.inf]
        assert mine.scores[: len(finite)] == pytest.approx(finite, abs=1e-9)


def test_the_token_comes_first_among_equals():
    asked = request([SIZE - 1], vocab_size=SIZE, max_tokens=5, decode=utf8)  # the chain's end: 0
    run = plain(asked, ROW)
    assert [scores.ids[0] for scores in run.leading] == run.token_ids == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_no_scores_are_kept_of_draws_that_depend_on_the_rounds_before(rule):
    r = rig("table")
    asked = request(some_prompt(1), rule=rule, temperature=1.0)
    assert speculate(asked, r.row, r.draft("same").session).leading == []


class SlowRunner(EagerRunner):
    """A target whose every pass takes 4 s, and 0.25 s more for each token."""

    def __init__(self, model, clock):
        super().__init__(model)
        self._clock = clock

    def read(self, reads, hidden_layers=()):
        self._clock.advance(4.0 + 0.25 * sum(len(read.tokens) for read in reads))
        return super().read(reads, hidden_layers)


def timed_run(clock, k=3):
    session = ScriptedDrafter(
        CHAIN, 0.7, vocab_size=SIZE, seconds_per_token=0.5, sleep=clock.advance
    )
    row = Row(SlowRunner(chain_model(CHAIN, SIZE), clock))
    asked = request([0, 1, 2], vocab_size=SIZE, k=k, max_tokens=12, decode=utf8)
    return Run(asked, row, session, clock)


@pytest.mark.parametrize("k", KS)
def test_every_second_is_billed_to_its_phase_and_the_phases_are_the_total(k):
    clock = FakeClock(start=100.0)
    run = timed_run(clock, k).finish()
    counts = run.counters
    assert run.times == Times(
        prefill=4.5,
        draft=0.5 * counts.drafted,
        verify=4.0 * counts.rounds + 0.25 * (counts.drafted + counts.rounds),
        rest=0.0,
    )
    assert run.times.total == clock.now() - 100.0


def test_the_times_of_the_rounds_are_those_of_the_run_without_prefill():
    run = timed_run(FakeClock()).finish()
    assert sum(round_.times.draft for round_ in run.rounds) == run.times.draft
    assert sum(round_.times.verify for round_ in run.rounds) == run.times.verify
    assert sum(round_.times.prefill for round_ in run.rounds) == 0
    for round_ in run.rounds:
        assert round_.times.draft == 0.5 * round_.count.drafted


def test_a_consumer_that_takes_its_time_is_not_billed_to_the_run():
    clock, idle = FakeClock(), 0.0
    run = timed_run(clock)
    for _ in run:
        clock.advance(1000.0)
        idle += 1000.0
    assert run.times.total == clock.now() - idle


def test_interleaved_runs_keep_pace_and_are_billed_apart():
    r = rig("llama")
    asked = request(some_prompt(1), k=4)
    with Row(r.runner) as other_row:
        speculative = Run(asked, r.row, r.draft("noisy").session, FakeClock())
        baseline = Run(asked, other_row, None, FakeClock())
        for round_ in interleave(speculative, baseline):
            before = len(speculative.token_ids) - len(round_.tokens)
            assert len(baseline.token_ids) == before
    assert baseline.token_ids == speculative.token_ids
    assert baseline.finish_reason == "length"


def test_of_several_runs_the_one_that_has_written_least_is_next():
    r, asked = rig("llama"), [request(some_prompt(1), k=k, max_tokens=14) for k in (0, 2, 5)]
    with ExitStack() as rows:
        runs = [
            Run(
                one,
                rows.enter_context(Row(r.runner)),
                DraftModel(r.draft_runner("noisy"), "noisy").open() if one.k else None,
                FakeClock(),
            )
            for one in asked
        ]
        written = {id(run): 0 for run in runs}
        for run, round_ in keep_pace(runs):
            assert written[id(run)] == min(written.values())
            written[id(run)] += len(round_.tokens)
            if round_.finish_reason is not None:
                del written[id(run)]
    assert not written
    assert runs[0].token_ids == runs[1].token_ids == runs[2].token_ids


def test_a_generation_knows_its_budget_and_what_is_worth_drafting():
    generation = Generation(request([1, 2], k=4, max_tokens=3))
    assert (generation.budget, generation.draft_limit, generation.num_generated) == (3, 2, 0)
