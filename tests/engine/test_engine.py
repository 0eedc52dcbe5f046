"""The Python API: load once, generate and stream, with proof and bill; one request at a time."""

import gc
import json
import threading
import time

import pytest
import torch

import draftwise
from draftwise.core.errors import BusyError, ClosedError, FaultError, OptionError, PromptError
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.tokenizers import NUM_TOKENS
from draftwise.testing.toys import toy

PROMPT = "Tell me about rivers, and about rivers again."


def reference(target, ids, tokens):
    """What transformers' own generate writes."""
    model, _ = target
    given = torch.tensor([ids])
    with torch.inference_mode():
        out = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            max_new_tokens=tokens,
            eos_token_id=256,
            pad_token_id=0,
        )
    return out[0, len(ids) :].tolist()


@pytest.mark.parametrize("drafter", ["model", "lookup", "self", "none"])
@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_the_text_is_what_transformers_alone_writes(target, draft, drafter, k):
    with draftwise.load(target, draft if drafter == "model" else drafter) as engine:
        ids = engine.target.tokenizer.chat([draftwise.Message("user", PROMPT)])
        result = engine.generate(PROMPT, tokens=40, k=k)
    assert list(result.token_ids) == reference(target, ids, 40)


def test_a_result_carries_text_proof_and_bill(engine):
    result = engine.generate(PROMPT, tokens=40, k=3, baseline=True)
    assert result.identity.identical
    assert result.baseline.token_ids == result.token_ids
    counters = result.counters
    assert counters.emitted == 40 == result.baseline.counters.target_passes
    assert counters.target_passes == counters.rounds < 40
    assert counters.discarded == counters.drafted - counters.accepted
    assert result.rates.cost_ratio > 0
    assert result.rates.verify_overhead > 0
    assert result.speedup.measured > 0
    assert result.speedup.predicted > 0
    assert result.settings["dtype"] == "float64"
    assert result.settings["k"] == 3
    assert result.settings["draft"] == engine.drafter.name
    assert result.settings["warmed_up"] is True
    assert result.versions["torch"] == torch.__version__


def test_the_json_has_the_documented_names_and_no_undefined_numbers(engine):
    for options in (
        {},
        {"baseline": True},
        {"tokens": 1, "baseline": True},
        {"k": 0, "baseline": True},
    ):
        given = json.loads(
            json.dumps(
                engine.generate(PROMPT, **{"tokens": 12} | options).as_dict(), allow_nan=False
            )
        )
        assert {
            "text", "token_ids", "finish_reason", "settings", "versions", "counters", "rates", "times",
            "baseline", "identical", "speedup",
        } <= given.keys()  # fmt: skip
        assert {
            "rounds",
            "target_passes",
            "draft_passes",
            "drafted",
            "accepted",
            "discarded",
            "emitted",
        } <= given["counters"].keys()
        assert {
            "alpha",
            "draft_utilisation",
            "tokens_per_round",
            "cost_ratio",
            "verify_overhead",
        } <= given["rates"].keys()
        assert {"prefill", "draft", "verify", "rest", "total"} <= given["times"].keys()


def test_phases_add_up_to_the_time_of_the_loop(engine):
    start = time.perf_counter()
    times = engine.generate(PROMPT, tokens=60).times
    wall = time.perf_counter() - start
    phases = times.prefill + times.draft + times.verify + times.rest
    assert phases == pytest.approx(times.total)
    assert times.total <= wall


def test_deltas_join_to_the_text_and_the_last_round_says_why_it_ended(engine):
    stream = engine.stream(PROMPT, tokens=40)
    rounds = list(stream)
    assert "".join(r.text for r in rounds) == stream.result.text
    assert [r.finish_reason for r in rounds[:-1]] == [None] * (len(rounds) - 1)
    assert rounds[-1].finish_reason == stream.result.finish_reason == "length"


@pytest.mark.parametrize("k", [0, 1, 4, 9])
def test_sampled_text_depends_on_the_seed_alone(target, draft, engine, k):
    asked = {"tokens": 30, "temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.5, "seed": 11}
    with draftwise.load(target, "none") as plain:
        expected = plain.generate(PROMPT, **asked)
    assert engine.generate(PROMPT, k=k, **asked).token_ids == expected.token_ids
    assert engine.generate(PROMPT, k=k, **asked | {"seed": 12}).token_ids != expected.token_ids


def test_without_a_seed_every_answer_is_fresh_and_says_its_seed(engine):
    one, other = (engine.generate(PROMPT, tokens=30, temperature=1.0) for _ in range(2))
    assert one.token_ids != other.token_ids
    again = engine.generate(PROMPT, tokens=30, temperature=1.0, seed=one.settings["seed"])
    assert again.token_ids == one.token_ids


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_rules_of_law_are_not_claimed_to_be_token_exact(engine, rule):
    result = engine.generate(PROMPT, tokens=20, temperature=1.0, rule=rule, baseline=True)
    assert result.identity is None
    assert result.as_dict()["identical"] is None
    assert engine.generate(PROMPT, tokens=20, rule=rule, baseline=True).identity.identical  # greedy


def test_the_next_turn_of_a_chat_reads_only_what_is_new(engine):
    first = [draftwise.Message("user", PROMPT)]
    answer = engine.generate(first, tokens=20)
    turns = [
        *first,
        draftwise.Message("assistant", answer.text),
        draftwise.Message("user", "More."),
    ]
    fresh_prompt = engine.target.tokenizer.chat(turns)
    result = engine.generate(turns, tokens=20)
    assert result.counters.prompt_tokens == len(fresh_prompt)
    assert result.counters.prefill_tokens < len(fresh_prompt) - answer.counters.prompt_tokens
    assert list(result.token_ids) == reference((engine.target.model, None), fresh_prompt, 20)


def test_an_abandoned_stream_leaves_the_engine_as_good_as_new(engine):
    expected = engine.generate(PROMPT, tokens=30).token_ids
    for leave_after in range(1, 8):
        stream = engine.stream("Something else entirely", tokens=30)
        for _ in range(leave_after):
            next(stream)
        stream.close()
        assert engine.generate(PROMPT, tokens=30).token_ids == expected


def test_a_dropped_stream_frees_the_engine_at_once(engine):
    gc.disable()
    try:
        for _ in engine.stream(PROMPT, tokens=30):
            break
        assert engine.generate(PROMPT, tokens=5).counters.emitted == 5
    finally:
        gc.enable()


def test_a_closed_engine_says_so_and_may_be_closed_again(target):
    engine = draftwise.load(target, "lookup")
    stream = engine.stream(PROMPT, tokens=30)
    next(stream)
    engine.close()
    engine.close()
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(ClosedError, match="load another"):
        engine.generate(PROMPT)


def test_an_error_in_the_consumer_is_the_one_that_is_seen(target):
    def consume():
        with draftwise.load(target, "lookup") as engine:
            for _ in engine.stream(PROMPT, tokens=30):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()


def test_a_stream_may_be_handed_to_another_thread_which_then_holds_the_turn(engine):
    stream = engine.stream(PROMPT, tokens=30)
    next(stream)
    refused = []

    def drive():
        next(stream)
        try:
            engine.generate(PROMPT, tokens=2)
        except BusyError as error:
            refused.append(error)
        stream.close()

    thread = threading.Thread(target=drive)
    thread.start()
    assert engine.generate(PROMPT, tokens=2).counters.emitted == 2  # waits, and is not refused
    thread.join()
    assert refused


def test_a_comparison_that_was_cut_off_claims_nothing(engine):
    with engine.stream(PROMPT, tokens=30, k=8, baseline=True) as stream:
        next(stream)
    assert stream.result.baseline is stream.result.identity is stream.result.speedup is None


def test_a_bias_without_bounds_is_still_json(engine):
    result = engine.generate(PROMPT, tokens=5, logit_bias={65: float("-inf")})
    told = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert told["settings"]["logit_bias"] == [[65, "-inf"]]


def test_a_stop_token_ends_the_text_and_stays_in_the_ids(engine):
    ids = engine.generate(PROMPT, tokens=20).token_ids
    stopped = engine.generate(PROMPT, tokens=20, stop_ids=[ids[3]])
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == ids[: ids.index(ids[3]) + 1]


def test_the_time_of_the_loop_is_billed_within_five_percent(target):
    with draftwise.load(target, "none") as engine:
        ids = engine.target.tokenizer.chat([draftwise.Message("user", PROMPT)])
        text = engine.generate(ids, tokens=40).token_ids
    slow = ScriptedDrafter([*ids, *text], 0.8, vocab_size=NUM_TOKENS, seconds_per_token=0.01)
    with draftwise.load(target, slow) as engine:
        engine.generate(ids, tokens=4)
        stream = engine.stream(ids, tokens=40)
        start = time.perf_counter()
        for _ in stream:
            pass
        wall = time.perf_counter() - start
    times = stream.result.times
    assert 0.95 * wall <= times.total <= wall
    assert times.draft >= 0.01 * stream.result.counters.drafted


def test_a_second_request_in_the_same_thread_is_refused_and_harms_nothing(engine):
    expected = engine.generate(PROMPT, tokens=30).token_ids
    stream = engine.stream(PROMPT, tokens=30)
    next(stream)
    with pytest.raises(BusyError, match="close it first"):
        engine.generate("other", tokens=5)
    for _ in stream:
        pass
    assert stream.result.token_ids == expected


def test_threads_take_turns_and_never_touch_each_others_text(engine):
    prompts = [f"Question {i}?" for i in range(6)]
    expected = [
        engine.generate(p, tokens=20, temperature=1.0, seed=i).token_ids
        for i, p in enumerate(prompts)
    ]
    got = {}

    def ask(i):
        got[i] = engine.generate(prompts[i], tokens=20, temperature=1.0, seed=i).token_ids

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(6)] == expected


def test_wrong_options_are_told_before_any_work_with_the_nearest_name(engine):
    with pytest.raises(OptionError, match="did you mean temperature"):
        engine.generate(PROMPT, temprature=1.0)
    for wrong in (
        {"tokens": 0}, {"k": -1}, {"temperature": float("nan")}, {"temperature": -1}, {"top_p": 0},
        {"rule": "guess"}, {"stop": ("",)}, {"logit_bias": ((10**9, 1.0),)}, {"banned_words": ("",)},
        {"tokens": 2.5}, {"tokens": float("nan")}, {"tokens": True}, {"raw": "no"}, {"k": 1.5},
        {"seed": "x"}, {"stop": 5}, {"stop": (5,)}, {"logit_bias": 5}, {"min_tokens": 99, "tokens": 3},
        {"stop": "\ud800"}, {"stop_ids": (10**9,)}, {"stop_ids": (-1,)},
    ):  # fmt: skip
        with pytest.raises(OptionError):
            engine.generate(PROMPT, **wrong)
    assert engine.generate(PROMPT, tokens=3).counters.emitted == 3


def test_prompts_that_cannot_work_are_refused_with_both_numbers(engine):
    with pytest.raises(PromptError, match="empty"):
        engine.generate("", raw=True)
    with pytest.raises(PromptError, match=r"600 tokens.*512"):
        engine.generate([1] * 600)
    with pytest.raises(PromptError, match=f"0 to {NUM_TOKENS - 1}"):
        engine.generate([NUM_TOKENS])
    with pytest.raises(PromptError):
        engine.generate([True, "x"])
    for wrong in ([True], None, "\ud800", 7):
        with pytest.raises(PromptError):
            engine.generate(wrong)


def test_banned_words_and_stop_strings_are_text(engine):
    text = engine.generate(PROMPT, tokens=40).text
    word = next(letter for letter in text if letter.isascii() and letter.isalnum())
    assert word not in engine.generate(PROMPT, tokens=40, banned_words=(word,)).text
    stopped = engine.generate(PROMPT, tokens=40, stop=word)
    assert stopped.finish_reason == "stop"
    assert text.startswith(stopped.text)
    assert word not in stopped.text


def test_a_draft_that_differs_by_padding_rows_is_welcome_and_padding_is_never_written(target):
    padded = toy("llama", vocab_size=NUM_TOKENS + 60)
    with torch.no_grad():
        padded.lm_head.weight[NUM_TOKENS:] *= 50  # the padding rows shout
    with draftwise.load(target, (padded, target[1])) as engine:
        assert engine.generate(PROMPT, tokens=30, baseline=True).identity.identical
    with draftwise.load((padded, target[1]), target) as engine:
        result = engine.generate(PROMPT, tokens=30, temperature=1.0, baseline=True)
        assert result.identity.identical
        assert max(result.token_ids) < NUM_TOKENS


def test_a_drafter_of_the_users_own_is_taken_as_it_is(target):
    with draftwise.load(target, "none") as engine:
        expected = engine.generate(PROMPT, tokens=30).token_ids
        ids = engine.target.tokenizer.chat([draftwise.Message("user", PROMPT)])
    oracle = ScriptedDrafter([*ids, *expected], 1.0, vocab_size=NUM_TOKENS)
    with draftwise.load(target, oracle) as engine:
        result = engine.generate(PROMPT, tokens=30, k=5, ignore_eos=True)
    assert result.token_ids == expected
    assert result.counters.discarded == 0


def test_a_fault_fails_the_run_and_shows_what_there_was(engine, monkeypatch):
    row = engine._row
    honest = row._keep_common

    def keeps_too_much(ids, at_most):
        honest(ids, at_most)
        if len(row._held) > 60:
            row.runner._cache.lengths[row._row] += 1

    monkeypatch.setattr(row, "_keep_common", keeps_too_much)
    stream = engine.stream(PROMPT, tokens=40, baseline=True)
    with pytest.raises(FaultError, match="FAULT at generated token"):
        list(stream)
    assert stream.result.identity.fault
    assert stream.result.as_dict()["identical"] is False
