"""`draftwise bench` as a user runs it, interrupts it and runs it again, on toys."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from draftwise.measure.recording import of_kind, read_records
from draftwise.measure.records import AgreementRecord, PassesRecord, RunRecord
from tests.cli.conftest import as_json
from tests.measure.rig import ForgetsToCrop

TARGET = ("--target", "./target", "--dtype", "float32", "--threads", "1")
PROMPTS = [
    {"prompt": "ab ab ab", "workload": "loops"},
    {"prompt": "to be, or not", "workload": "verse"},
    {"messages": [{"role": "user", "content": "One more."}], "workload": "verse"},
]


@pytest.fixture
def arguments(tmp_path):
    """A small bench: three prompts, two drafters."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(map(json.dumps, PROMPTS)), encoding="utf-8")
    return (
        *("bench", *TARGET, "--draft", "lookup", "--draft", "./draft", "--prompts", str(prompts)),
        *("--tokens", "16", "-k", "1,3", "--workload-k", "2", "--out", str(tmp_path / "out.jsonl")),
    )


def told_in_a_line(process, *words):
    (line,) = process.stderr.decode().splitlines()[-1:]
    assert all(word in line for word in words), line
    assert b"Traceback" not in process.stderr
    assert process.stdout == b""
    return process.returncode


def done(path):
    """What the records of a file are about, without their times."""
    found = []
    for record in read_records(path):
        prompt = getattr(record, "prompt", None)
        where = prompt and (prompt.workload, prompt.index, getattr(record, "repeat", None))
        found.append(
            (record.kind, getattr(record, "drafter", None), getattr(record, "k", None), where)
        )
    return found


def test_the_sweep_the_workloads_and_what_was_proved_are_shown(command, arguments, tmp_path):
    process = command(*arguments)
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    for drafter in ("lookup", "./draft"):
        assert f"{drafter} on loops; drafting and round in plain passes" in shown
        assert f"runs of {drafter} as replayed." in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith(("loops ", "verse "))]
    assert {tuple(row[:3]) for row in rows} >= {("verse", "lookup", "2"), ("verse", "./draft", "2")}
    assert "Of 10 speculative runs, 10 wrote the very text of plain decoding." in shown
    assert "cpu, float32, eager, 1 threads" in " ".join(shown.split())
    records = read_records(tmp_path / "out.jsonl")
    assert len(of_kind(records, PassesRecord)) == 3
    assert len(of_kind(records, AgreementRecord)) == 3 * 2
    assert len(of_kind(records, RunRecord)) == 3 + 6 + 2 * 2


def test_json_is_one_object_and_counts_foretell_every_run(command, arguments):
    told = as_json(command(*arguments, "--json"))
    assert set(told) == {"conditions", "timed", "counted", "consistency"}
    assert told["conditions"]["settings"]["tokens"] == 16
    assert [(row["drafter"], row["equal"], row["otherwise"]) for row in told["consistency"]] == [
        ("lookup", 5, 0),
        ("./draft", 5, 0),
    ]
    assert {row["k"] for row in told["counted"]} == set(range(1, 17))
    assert all(row["speedup"]["median"] > 0 for row in told["timed"])


def test_a_second_run_measures_nothing_and_says_the_same(command, arguments, tmp_path, monkeypatch):
    first = as_json(command(*arguments, "--json"))
    written = (tmp_path / "out.jsonl").read_bytes()
    for name in ("logits", "prefill"):  # whoever measures now, fails
        monkeypatch.setattr(f"draftwise.models.row.Row.{name}", None)
    again = command(*arguments, "--json")
    assert as_json(again) == first
    assert b"out.jsonl has 22 records already" in again.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == written


@pytest.mark.parametrize("after", [1, 4, 12])
def test_ctrl_c_keeps_what_was_done_and_the_same_command_goes_on(
    command, arguments, tmp_path, monkeypatch, after
):
    from draftwise.measure.recording import Recording

    add = Recording.add

    def interrupted(self, *records):
        if len(self.records) >= after:
            raise KeyboardInterrupt
        add(self, *records)

    with monkeypatch.context() as patch:
        patch.setattr(Recording, "add", interrupted)
        process = command(*arguments)
    path = tmp_path / "out.jsonl"
    kept = path.read_bytes()
    assert process.returncode == 130
    assert process.stdout == b""
    told = f"interrupted: {path} has {len(done(path))} records; the same command goes on"
    assert told in process.stderr.decode()
    assert kept
    assert command(*arguments).returncode == 0
    assert path.read_bytes().startswith(kept)
    assert len(done(path)) == len(set(done(path))) == 22


def test_a_bench_that_is_killed_goes_on_where_it_was(command, arguments, folders, tmp_path):
    path = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "draftwise", *arguments],
        cwd=folders,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"schema_version":1,"conditions":{"tar')  # as a failing machine leaves it
    assert command(*arguments).returncode == 0
    assert path.read_bytes().startswith(kept)
    assert len(done(path)) == len(set(done(path))) == 22


def test_other_tokens_or_another_dtype_are_measured_anew(command, arguments, tmp_path):
    given = (*arguments, "--limit", "1", "--sweep", "verse", "-k", "1")
    one = len(as_json(command(*given, "--json"))["timed"])
    before = len(done(tmp_path / "out.jsonl"))
    for changed in (("--tokens", "15"), ("--dtype", "float64")):
        told = as_json(command(*given, *changed, "--json"))
        assert len(told["timed"]) == one  # those of these conditions alone
    assert len(done(tmp_path / "out.jsonl")) == 3 * before


def test_a_corrupted_cache_fails_the_bench_and_no_run_is_recorded(
    command, arguments, tmp_path, monkeypatch
):
    class Faulty(ForgetsToCrop):
        def __init__(self, model, context_length):
            from draftwise.core.clock import FakeClock

            super().__init__(model, context_length, clock=FakeClock())

    monkeypatch.setattr("draftwise.engine.runners.EagerRunner", Faulty)
    process = command(*arguments)
    assert told_in_a_line(process, "the output changed with", "FAULT") == 3
    assert of_kind(read_records(tmp_path / "out.jsonl"), RunRecord) == []


def test_a_drafter_that_is_named_twice_is_measured_once(command, arguments, tmp_path):
    given = (*arguments, "--draft", "lookup", "--limit", "1")
    assert command(*given).returncode == 0
    assert len(done(tmp_path / "out.jsonl")) == len(set(done(tmp_path / "out.jsonl")))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("-k", "17"), ["k is 17", "1 to 16"]),
        (("-k", "1,x"), ["1,3,5"]),
        (("-k", "0"), ["1,3,5"]),
        (("--workload-k", "17"), ["k is 17", "1 to 16"]),
        (("--workload-k", "most"), ["best", "auto"]),
        (("--repeats", "0"), ["repeats is 0"]),
        (("--limit", "0"), ["--limit"]),
        (("--workload", "poetry"), ["no workload poetry"]),
        (("--workload", "pose"), ["did you mean prose"]),
        (("--workload", "qa", "--prompts", "./x.jsonl"), ["either --workload or --prompts"]),
        (("--prompts", "./nowhere.jsonl"), ["cannot read ./nowhere.jsonl"]),
        (("--draft", "none"), ["--draft none", "leave it out"]),
        (("--tokens", "0"), ["tokens is 0"]),
        (("--rule", "block"), ["--rule"]),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(command, tmp_path, given, told):
    process = command("bench", *TARGET, "--out", tmp_path / "out.jsonl", *given)
    assert told_in_a_line(process, *told) == 2


def test_a_file_without_prompts_is_refused(command, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n", encoding="utf-8")
    process = command(
        "bench", *TARGET, "--out", tmp_path / "out.jsonl", "--prompts", tmp_path / "empty.jsonl"
    )
    assert told_in_a_line(process, "empty.jsonl is empty") == 2
