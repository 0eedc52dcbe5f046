"""`draftwise nesting` as a user runs it, on a toy."""

import pytest

from draftwise.engine import load
from draftwise.measure.recording import read_records
from draftwise.measure.records import NestingRecord
from tests.cli.conftest import as_json
from tests.measure.test_nesting import Altered, rounds_otherwise, sees_the_end

TARGET = ("--target", "./target", "--dtype", "float32", "--threads", "1")


@pytest.fixture
def nesting(command):
    def run(*arguments):
        return command("nesting", *arguments, *TARGET)

    return run


def told_in_a_line(process, *words):
    (line,) = process.stderr.decode().splitlines()
    assert line.startswith("draftwise: ")
    assert all(word in line for word in words), line
    assert process.stdout == b""
    return process.returncode


def test_both_tables_of_the_essay_and_the_largest_difference(nesting):
    process = nesting("Zürich [/b]")
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    assert process.stderr == b""
    assert "12 tokens -> 12 predictions, one pass" in shown
    assert "'Zürich [/b]'" in shown  # as it reads: no markup
    assert "cut to 8 of its 12 tokens" in shown
    assert len([line for line in shown.splitlines() if "  same  " in line]) == 20
    assert "largest numerical difference" in shown
    assert "rounding in float32 explains up to 0.001" in shown
    assert "One pass answers every prefix." in shown
    assert "./target; cpu, float32, eager, 1 threads" in " ".join(shown.split())


def test_without_a_text_it_is_the_essays(nesting):
    told = as_json(nesting("--json"))
    assert told["text"] == "The capital of France is Paris and it"
    assert len(told["predictions"]) == 37


def test_json_is_one_object_with_both_comparisons(nesting):
    told = as_json(nesting("abcdefgh", "--shortened", 3, "--json"))
    assert [p["prefix"] for p in told["predictions"]][:2] == ["a", "ab"]
    assert len(told["shortened_predictions"]) == told["shortened"] == 3
    assert told["fault"] is False
    assert told["near_ties"] == 0
    assert told["bound"] == 1e-3
    assert told["conditions"]["settings"]["dtype"] == "float32"


def test_a_record_is_kept_with_each_run(nesting, tmp_path):
    for text in ("abcd", "efgh"):
        assert nesting(text, "--out", tmp_path / "out.jsonl").returncode == 0
    first, second = read_records(tmp_path / "out.jsonl")
    assert isinstance(first, NestingRecord)
    assert (first.text, second.text) == ("abcd", "efgh")


def test_a_long_prefix_is_shown_by_its_end(nesting):
    shown = nesting("x" * 60 + "yz").stdout.decode()
    assert f"'…{'x' * 37}yz'" in shown


@pytest.fixture
def alter(monkeypatch):
    """Let a function have a hand in the logits of whatever is loaded."""
    load_runner = load.load_runner

    def by(function):
        def loaded(*arguments):
            target, runner = load_runner(*arguments)
            return target, Altered(runner, function)

        monkeypatch.setattr(load, "load_runner", loaded)

    return by


def test_a_model_that_looks_ahead_ends_in_status_3_behind_the_tables(nesting, alter):
    alter(sees_the_end)
    process = nesting("abcdefgh")
    assert process.returncode == 3
    assert b"differs" in process.stdout
    assert b"ONE PASS DOES NOT ANSWER EVERY PREFIX" in process.stdout
    (line,) = process.stderr.decode().splitlines()
    assert "logits differ by 50" in line


def test_another_token_within_rounding_is_said_to_be_a_near_tie(nesting, alter):
    alter(rounds_otherwise)
    process = nesting("abcd")
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    assert "near-tie after 'abc': rounding decides between '!' and '\"'" in " ".join(shown.split())
    assert "One pass answers every prefix." not in shown


def test_bad_input_is_a_line_each(nesting):
    assert told_in_a_line(nesting(""), "empty") == 2
    assert told_in_a_line(nesting("x"), "1 token", "two or more") == 2
    assert told_in_a_line(nesting("x" * 600), "600 tokens", "512") == 2
    assert told_in_a_line(nesting("abc", "--shortened", 3), "keep 1 to 2") == 2


def test_a_model_that_is_not_there_is_told(command):
    assert told_in_a_line(command("nesting", "--target", "./nowhere"), "nowhere") == 1


def test_options_of_a_draft_are_unknown_to_it(nesting):
    process = nesting("abc", "--draft", "lookup")
    assert process.returncode == 2
    assert b"--draft" in process.stderr
