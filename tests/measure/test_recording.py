"""Files of records: whole lines, resumable, one writer, and nothing else let in."""

import json
import os
import signal
import subprocess
import sys

import pytest

from draftwise.core.errors import OptionError
from draftwise.measure.recording import Recording, line_of, of_kind, read_records
from draftwise.measure.records import Conditions, NestingRecord, PassesRecord, Prediction

CONDITIONS = Conditions(target="toy", machine="a machine", threads=1, settings={"k": [1, None]})


def passes(context: int) -> PassesRecord:
    return PassesRecord(
        conditions=CONDITIONS, context=context, samples_ms={1: (1.5, 1.25), 8: (2,)}
    )


def nesting() -> NestingRecord:
    said = Prediction(prefix="Zürich\n", token="\u2028", alone=" x", same=False, difference=0.25)
    return NestingRecord(
        conditions=CONDITIONS,
        text="Zürich",
        predictions=(said,),
        shortened=1,
        shortened_difference=0,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def test_what_is_added_is_read_back_and_lies_on_the_disk_before_the_next_work_starts(path):
    with Recording(path) as recording:
        recording.add(passes(1))
        assert read_records(path) == [passes(1)]
        recording.add(nesting())
        assert read_records(path) == [passes(1), nesting()] == recording.records
    assert path.read_bytes().count(b"\n") == 2
    assert of_kind(read_records(path), NestingRecord) == [nesting()]


def test_resuming_loses_nothing_and_goes_on_where_it_stopped(path):
    for context in range(3):
        with Recording(path) as recording:
            assert recording.records == [passes(done) for done in range(context)]
            recording.add(passes(context))
    assert read_records(path) == [passes(0), passes(1), passes(2)]


@pytest.mark.parametrize("kept", [1, 20, -2])
def test_half_a_line_is_dropped_on_opening_and_the_next_record_starts_a_line(path, kept):
    path.write_bytes(line_of(passes(0)) + line_of(passes(1))[:kept])
    with Recording(path) as recording:
        assert recording.records == [passes(0)]
        recording.add(passes(2))
    assert read_records(path) == [passes(0), passes(2)]


def test_records_that_belong_together_are_written_together(path):
    with Recording(path) as recording:
        recording.add(passes(0), passes(1))
        recording.add()
    assert read_records(path) == [passes(0), passes(1)]


def test_a_program_that_is_killed_leaves_whole_lines(path):
    script = (
        "import os, pathlib, signal, sys\n"
        "from tests.measure.test_recording import Recording, passes\n"
        "recording = Recording(pathlib.Path(sys.argv[1]))\n"
        "for context in range(3): recording.add(passes(context))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", script, path])
    assert process.returncode == -signal.SIGKILL
    with Recording(path) as recording:
        assert recording.records == [passes(0), passes(1), passes(2)]


def test_a_second_writer_is_refused_and_the_first_goes_on(path):
    with Recording(path) as recording:
        with pytest.raises(OptionError, match="written by another program"):
            Recording(path)
        recording.add(passes(0))
    with Recording(path) as recording:  # and afterwards the file is free
        assert recording.records == [passes(0)]


def test_without_a_file_records_are_kept_in_memory():
    with Recording() as recording:
        recording.add(passes(0))
        assert recording.records == [passes(0)]


def with_change(**changed):
    return json.dumps(json.loads(line_of(passes(0))) | changed).encode()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"half', "line 3"),
        (b"[1, 2]", "line 3"),
        (b"\xff\xfe", "line 3"),
        (with_change(context=float("nan")), "context"),
        (with_change(samples_ms={"1": [float("nan")]}), "samples_ms"),
        (with_change(samples_ms={"1": [float("inf")]}), "samples_ms"),
        (with_change(samples_ms={"1": [-1.0]}), "samples_ms"),
        (with_change(samples_ms={"1": []}), "without samples"),
        (with_change(note="seen"), "note"),
        (with_change(schema_version=2), "schema_version"),
        (with_change(kind="rumour"), "rumour"),
        (with_change(conditions={"target": "toy"}), "machine"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line_and_the_file_is_left_alone(path, line, told):
    before = line_of(passes(0)) + b"\n" + line + b"\n"
    path.write_bytes(before)
    for opening in (read_records, Recording):
        with pytest.raises(OptionError) as refusal:
            opening(path)
        assert "line 3" in str(refusal.value)
        assert told in str(refusal.value)
        assert "\n" not in str(refusal.value)
    assert path.read_bytes() == before
    path.write_bytes(b"")
    with Recording(path):  # the refusal gave the lock back
        pass


def test_a_file_of_something_else_is_left_alone(path):
    for content in (b"my notes, without a newline", b'{"a": 1}'):
        path.write_bytes(content)
        with pytest.raises(OptionError, match="line 1"):
            Recording(path)
        assert path.read_bytes() == content


def test_a_disk_that_takes_half_a_line_is_an_error_and_not_a_broken_file(path, monkeypatch):
    whole = os.write
    with Recording(path) as recording:
        recording.add(passes(0))
        monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[: len(data) // 2]))
        with pytest.raises(OptionError, match="cannot be written"):
            recording.add(passes(1))
        monkeypatch.undo()
        recording.add(passes(2))
    assert read_records(path) == [passes(0), passes(2)]


def test_a_path_that_cannot_be_used_is_told_in_a_line(tmp_path):
    with pytest.raises(OptionError, match="cannot be read"):
        read_records(tmp_path / "nothing.jsonl")
    with pytest.raises(OptionError, match="cannot be written"):
        Recording(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be written"):
        Recording(tmp_path / "file" / "records.jsonl")


def test_folders_that_are_missing_are_made(tmp_path):
    with Recording(tmp_path / "new" / "newer" / "records.jsonl") as recording:
        recording.add(passes(0))
    assert len(read_records(tmp_path / "new" / "newer" / "records.jsonl")) == 1
