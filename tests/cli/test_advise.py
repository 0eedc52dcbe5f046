"""`draftwise advise` as a user runs it, on toys whose passes take the time that a test says."""

import json

import pytest

from draftwise.cli.advise import show
from draftwise.core.clock import FakeClock
from draftwise.measure.records import AdviceRecord
from tests.cli.conftest import as_json
from tests.measure.rig import SECOND, Billed
from tests.measure.test_advice import choice
from tests.report import made

TARGET = ("--target", "./target", "--dtype", "float32", "--threads", "1")
PASS = 8 * SECOND


@pytest.fixture
def advise(command, tmp_path, monkeypatch):
    """Passes of the target, which is loaded first, take PASS; those of a draft a sixteenth of it."""
    clock, loaded = FakeClock(), []

    def billed(model, context_length):
        loaded.append(model)
        first = PASS / 16 if len(loaded) == 2 else PASS
        return Billed(model, context_length, clock=clock, first=first)

    monkeypatch.setattr("draftwise.engine.runners.EagerRunner", billed)
    monkeypatch.setattr("draftwise.measure.subject.SystemClock", lambda: clock)
    lines = [json.dumps({"prompt": text}) for text in ("ab ab ab", "One two three.")]
    (tmp_path / "own.jsonl").write_text("\n".join(lines), encoding="utf-8")

    def run(*arguments):
        loaded.clear()
        given = (
            "--prompts",
            tmp_path / "own.jsonl",
            "--tokens",
            "24",
            "--out",
            tmp_path / "out.jsonl",
        )
        return command("advise", *TARGET, *given, *arguments)

    return run


def test_the_target_as_its_own_draft_is_advised_against_with_the_reason(advise):
    process = advise("--draft", "self")
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    first, reason, *_ = shown.splitlines()
    assert first == "Do not speculate here."
    assert "self: a guess costs as much as the token that it might save (c = 1.00" in reason
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("self ")]
    assert row[7:9] == ["1.000", "never"]
    assert "plain: 8.0 tokens/s" in shown
    shown = " ".join(shown.split())  # long notes are wrapped
    assert "checked by the clock: self at k = " in shown
    assert "output identical" in shown


def test_a_good_and_cheap_draft_is_advised_with_k_interval_and_settings(advise):
    process = advise("--draft", "./draft")
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    first = shown.splitlines()[0]
    assert first.startswith("Do: --draft ./draft -k ")
    k = first.split("-k ")[1].split(",")[0]
    assert "predicted " in first
    assert " to " in first
    assert f'"num_speculative_tokens": {k}' in shown
    assert f"--spec-draft-n-max {k}" in shown
    assert f"num_assistant_tokens = {k}" in shown
    for engine in ("vLLM", "SGLang", "llama.cpp", "transformers"):
        assert f"\n{engine}:\n" in shown
    assert "memory: fits" in shown
    assert shown.rstrip().splitlines()[-1].startswith("./target; cpu, float32, eager, 1 threads")


def test_where_speculation_does_not_pay_the_settings_are_those_of_plain_decoding(advise):
    told = as_json(advise("--draft", "self", "--json"))
    assert told["verdict"] == "do not"
    assert all("speculation is off" in text for text in told["exports"].values())
    assert not any("speculative" in text for text in told["exports"].values())


def test_json_is_one_record_of_advice_and_the_file_has_it_too(advise, tmp_path):
    process = advise("--draft", "./draft", "--draft", "lookup", "--json")
    told = as_json(process)
    record = AdviceRecord.model_validate(told)
    assert process.stdout.count(b"\n") == 1
    assert [each.drafter for each in record.choices] == ["./draft", "lookup"]
    assert set(record.exports) == {"vLLM", "SGLang", "llama.cpp", "transformers"}
    assert json.loads((tmp_path / "out.jsonl").read_bytes().splitlines()[-1]) == told


def test_asking_again_measures_nothing_and_gives_the_same_advice(advise, monkeypatch):
    first = as_json(advise("--draft", "./draft", "--json"))
    for name in ("logits", "prefill"):  # whoever measures now, fails
        monkeypatch.setattr(f"draftwise.models.row.Row.{name}", None)
    again = advise("--draft", "./draft", "--json")
    told = as_json(again)
    assert told["choices"] == first["choices"]
    assert told["verdict"] == first["verdict"]
    assert b"records already" in again.stderr


@pytest.mark.parametrize(
    ("rate", "told"),
    [("5000", "fastserve writes 5000.0 tokens/s"), ("1", "fastserve writes 1.0 tokens/s")],
)
def test_an_engine_that_is_faster_is_to_be_kept(advise, rate, told):
    process = advise(
        "--draft", "./draft", "--engine", "fastserve", "--engine-tokens-per-second", rate
    )
    (line,) = [
        line for line in process.stdout.decode().splitlines() if line.startswith("fastserve")
    ]
    assert line.startswith(told)
    assert ("stay with fastserve" in line) == (rate == "5000")


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("do", "Do: --draft small -k 3, predicted 1.20x (1.10 to 1.30)"),
        ("do not", "Do not speculate here."),
        ("too close to say", "Too close to say: the best found is small at k = 3, predicted 1.20x"),
        ("too noisy to say", "Too noisy to say."),
    ],
)
def test_the_first_line_is_the_verdict_and_markup_is_shown_as_it_reads(capsys, verdict, told):
    best = choice()
    show(made.advice(verdict=verdict, best=best, choices=(best,), reasons=("[/b] because",)))
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(told)
    assert second == "  [/b] because"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--draft", "none"), "leave it out"),
        (("--engine-tokens-per-second", "0"), "--engine-tokens-per-second"),
        (("--workload", "qa"), "either --workload or --prompts"),
        (("-k", "3"), "-k"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(advise, given, told):
    process = advise(*given)
    assert process.returncode == 2
    assert process.stdout == b""
    assert told in process.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in process.stderr


def test_more_prompts_than_advice_needs_are_refused_before_anything_is_loaded(command, tmp_path):
    (tmp_path / "many.jsonl").write_text('{"prompt": "x"}\n' * 201, encoding="utf-8")
    process = command("advise", "--target", "./nowhere", "--prompts", tmp_path / "many.jsonl")
    assert process.returncode == 2
    assert b"201 prompts are more than advice needs: set --limit" in process.stderr
