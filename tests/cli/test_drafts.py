"""`draftwise drafts` as a user runs it, on toys."""

import pytest

from draftwise.engine.options import OTHERWISE
from draftwise.measure.recording import of_kind, read_records
from draftwise.measure.records import RunRecord
from tests.cli.conftest import as_json

TARGET = ("--target", "./target", "--dtype", "float32", "--threads", "1")


@pytest.fixture
def drafts(command, tmp_path):
    (tmp_path / "loops.txt").write_text("ab ab ab ab", encoding="utf-8")

    def run(*arguments):
        given = (
            "--prompts",
            tmp_path / "loops.txt",
            "--tokens",
            "16",
            "--out",
            tmp_path / "out.jsonl",
        )
        return command("drafts", *TARGET, *given, *arguments)

    return run


def test_every_drafter_has_a_row_over_all_texts_and_one_for_each_workload(drafts):
    process = drafts("--draft", "./draft", "--draft", "self", "--draft", "lookup")
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    over_all, by_workload = shown.split("Medians over runs")
    for drafter in ("./draft", "self", "lookup"):
        assert [line for line in over_all.splitlines() if line.startswith(f"{drafter} ")]
        rows = [line.split() for line in by_workload.splitlines() if line.startswith("loops ")]
        assert drafter in [row[1] for row in rows]
    assert "speculative runs" in shown
    assert "./target; cpu, float32, eager, 1 threads" in " ".join(shown.split())


def test_json_has_the_rows_of_the_tables_and_the_explanations(drafts):
    told = as_json(drafts("--draft", "self", "--draft", "lookup", "--json"))
    assert isinstance(told["explanations"], list)
    (own,) = {row["rates"]["alpha"] for row in told["counted"] if row["drafter"] == "self"}
    assert own == 1
    assert {row["drafter"] for row in told["timed"]} == {"self", "lookup"}


def test_the_target_as_its_own_draft_shows_what_a_perfect_guesser_costs(drafts, tmp_path):
    as_json(drafts("--draft", "self", "--json"))
    (run, *_) = [r for r in of_kind(read_records(tmp_path / "out.jsonl"), RunRecord) if r.k]
    assert run.identical == "identical"
    assert all(round_.accepted == round_.drafted for round_ in run.rounds)


def test_without_a_draft_named_two_ways_to_copy_are_compared(drafts):
    told = as_json(drafts("--json"))
    assert {row["drafter"] for row in told["counted"]} == {OTHERWISE, "lookup"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--draft", "none"), "leave it out"),
        (("--repeats", "0"), "repeats is 0"),
        (("--workload", "qa"), "either --workload or --prompts"),
        (("--draft", "./nothing-there"), "nothing-there"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(drafts, given, told):
    process = drafts(*given)
    assert process.returncode in (1, 2)
    assert process.stdout == b""
    assert told in process.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in process.stderr
