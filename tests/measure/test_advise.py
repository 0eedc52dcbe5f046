"""From measurements to advice on toys, by a clock that makes every prediction checkable."""

from random import Random

import pytest

from draftwise.drafters.lookup import PromptLookup
from draftwise.measure import memory
from draftwise.measure.advise import OtherEngine, advise, compared
from draftwise.measure.bench import Bench, BenchPlan
from draftwise.measure.recording import Recording
from draftwise.measure.summary import timed
from tests.measure.rig import CODE, PROSE, SECOND, TOKENS, Billed, Toys, carry_out
from tests.measure.test_advice import choice

PASS = 8 * SECOND
"""What a plain pass of the toy target takes."""


def measured(subject, prompts):
    """What the verb does before it advises: look at all prompts, time the first."""
    recording = Recording()
    bench = Bench(subject, BenchPlan(prompts=prompts), recording)
    for step in bench.look():
        step.work()
    carry_out(Bench(subject, BenchPlan(prompts=prompts[:1], workload_ks=("best",)), recording))
    return bench


def advice_on(toys, *drafters, prompts=(PROSE,), other=None):
    with toys.subject(*drafters) as subject:
        return advise(measured(subject, prompts), other)


def test_a_cheap_draft_that_is_always_right_is_to_be_used_as_far_as_the_text_goes():
    toys = Toys()
    advice = advice_on(toys, toys.scripted(PROSE, accuracy=1.0, seconds=PASS / 64))
    assert advice.verdict == "do"
    assert (advice.best.k, advice.best.alpha, advice.best.c) == (11, 1, 1 / 64)
    assert (
        advice.best.tokens_per_round == TOKENS / 2
    )  # with any more than 11 it takes two rounds too
    assert advice.best.low > 1
    assert advice.plain_tokens_per_second == pytest.approx(1 / PASS)


@pytest.mark.parametrize("accuracy", [1.0, 0.7])
def test_a_draft_as_slow_as_its_target_is_not_to_be_used_and_the_clock_agrees(accuracy):
    toys = Toys()
    drafter = toys.scripted(PROSE, accuracy, seconds=PASS)
    with toys.subject(drafter) as subject:
        bench = measured(subject, (PROSE,))
        advice = advise(bench)
        (row,) = timed(bench.records)
    assert advice.verdict == "do not"
    assert "a guess costs as much as the token that it might save (c = 1.00" in advice.reasons[0]
    assert advice.best.break_even_alpha is None
    assert row.speedup.median <= 1


def test_the_target_as_its_own_draft_is_always_right_and_not_to_be_used():
    toys = Toys()
    advice = advice_on(toys, toys.itself(), prompts=(PROSE, CODE))
    assert (advice.verdict, advice.best.alpha, advice.best.c) == ("do not", 1, 1)
    assert "nothing is gained even if every guess is right" in advice.reasons[0]


@pytest.mark.parametrize("accuracy", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("seconds", [PASS / 16, PASS / 4])
def test_what_is_predicted_is_what_the_clock_says(accuracy, seconds):
    toys = Toys()
    with toys.subject(toys.scripted(PROSE, accuracy, seconds), toys.draft(0.1)) as subject:
        bench = measured(subject, (PROSE,))
        advice = advise(bench)
        clock = {row.drafter: row for row in timed(bench.records)}
    for each in advice.choices:
        assert clock[each.drafter].k == each.k
        assert each.speedup == pytest.approx(clock[each.drafter].speedup.median)
        assert clock[each.drafter].predicted == pytest.approx(each.speedup, rel=0.03)
        note = f"checked by the clock: {each.drafter} at k = {each.k} on prose: {each.speedup:.2f}x"
        assert any(told.startswith(note) for told in advice.notes)


def test_the_best_of_several_drafters_is_advised_and_each_is_shown_at_its_own_k():
    toys = Toys()
    cheap, dear = (
        toys.draft(0.1, "cheap", first=SECOND / 2),
        toys.draft(0.1, "dear", first=6 * SECOND),
    )
    advice = advice_on(toys, dear, PromptLookup(), cheap, prompts=(PROSE, CODE))
    assert (advice.verdict, advice.best.drafter) == ("do", "cheap")
    found = {each.drafter: each for each in advice.choices}
    assert list(found) == ["dear", "lookup", "cheap"]
    assert found["cheap"].k > found["dear"].k
    assert found["cheap"].speedup > found["dear"].speedup
    assert any(note.startswith("memory: fits") for note in advice.notes)


def test_advice_is_about_the_prompts_asked_for_and_not_about_all_that_a_file_has():
    toys = Toys()
    with toys.subject(toys.scripted(PROSE, accuracy=1.0, seconds=PASS / 16)) as subject:
        bench = measured(subject, (PROSE,))
        alone = advise(bench)
        wider = Bench(subject, BenchPlan(prompts=(PROSE, CODE)), bench.recording)
        for step in wider.look():
            step.work()
        assert advise(bench).choices == alone.choices
        assert advise(wider).best.alpha < 1  # the script is that of the other prompt


class Erratic(Billed):
    """A pass takes whatever it likes."""

    chance = Random(1)

    def read(self, reads, hidden_layers=()):
        self.clock.advance(PASS * self.chance.expovariate(1))
        return super().read(reads, hidden_layers)


def test_a_machine_that_is_too_noisy_is_said_to_be():
    toys = Toys(runner=Erratic)
    advice = advice_on(toys, toys.scripted(PROSE, accuracy=1.0, seconds=0.0))
    assert advice.verdict == "too noisy to say"
    assert "this machine is too noisy to say" in advice.reasons[0]


def test_what_was_not_measured_is_not_advised_on():
    toys = Toys()
    with (
        toys.subject(PromptLookup()) as subject,
        pytest.raises(ValueError, match="nothing was measured of lookup"),
    ):
        advise(Bench(subject, BenchPlan(prompts=(PROSE,)), Recording()))


def test_an_engine_that_is_faster_plain_is_to_be_kept():
    toys = Toys()
    other = OtherEngine("llama.cpp", 1000.0)
    drafter = toys.scripted(PROSE, accuracy=1.0, seconds=PASS / 16)
    advice = advice_on(toys, drafter, other=other)
    assert advice.verdict == "do"
    (told,) = [note for note in advice.notes if "llama.cpp" in note]
    assert "llama.cpp writes 1000.0 tokens/s" in told
    assert "stay with llama.cpp" in told


@pytest.mark.parametrize(
    ("verdict", "rate", "told"),
    [
        ("do", 10.0, "draftwise 24.0 with small at k = 3: 2.40x"),
        ("do", 22.0, "draftwise 24.0 with small at k = 3: 1.09x"),
        ("do", 24.1, "draftwise 24.0 with small at k = 3: stay with theirs"),
        ("do not", 10.0, "draftwise 20.0 plainly: 2.00x"),
        ("do not", 22.0, "draftwise 20.0 plainly: stay with theirs"),
        ("too close to say", 22.0, "draftwise 20.0 plainly: stay with theirs"),
    ],
)
def test_another_engine_is_compared_with_what_would_be_run_here(verdict, rate, told):
    line = compared(OtherEngine("theirs", rate), 20.0, choice(speedup=1.2), verdict)
    assert line.startswith(f"theirs writes {rate:.1f} tokens/s, {told}")


def test_a_text_that_was_looked_at_is_not_written_again_for_advice(monkeypatch):
    monkeypatch.setattr(memory, "_available", lambda *_: 8 << 30)  # else it changes while one looks
    toys = Toys()
    with toys.subject(PromptLookup()) as subject:
        bench = measured(subject, (PROSE,))
        before = toys.runner.passes
        first = advise(bench)
        assert advise(bench) == first
    assert toys.runner.passes == before
    assert first.conditions.settings["tokens"] == TOKENS
