"""`draftwise compare` as a user runs it, on records made without a model."""

import json
import subprocess
import sys

import pytest

from draftwise.measure.recording import Recording
from tests.cli.conftest import as_json
from tests.report import made


@pytest.fixture
def files(tmp_path):
    """Two benches: the newer one on fewer threads, with one drafter and fewer k."""
    fewer = made.CONDITIONS.model_copy(update={"threads": 2})
    newer = made.bench(drafters=(made.SMALL,), ks=(1, 3))
    written = {
        "old": made.bench(),
        "new": [record.model_copy(update={"conditions": fewer}) for record in newer],
        "counted": [made.passes(), made.agreement(made.SMALL, "prose")],
    }
    for name, records in written.items():
        with Recording(tmp_path / f"{name}.jsonl") as recording:
            recording.add(*records)
    return {name: tmp_path / f"{name}.jsonl" for name in written}


def test_what_both_timed_is_a_table_and_the_rest_is_named(command, files):
    process = command("compare", files["old"], files["new"])
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    assert process.stderr == b""
    rows = [
        line.split() for line in shown.splitlines() if "smollm2-135m" in line and "unclear" in line
    ]
    assert [row[:4] for row in rows[:2]] == [
        ["prose", "smollm2-135m", "1", "2"],
        ["prose", "smollm2-135m", "3", "2"],
    ]
    assert len(rows) == 5
    assert all(row.count("1.00") == 4 for row in rows)  # two ratios, and both ends of an interval
    flat = " ".join(shown.split())
    assert "smollm2-135m at k = 5, 8, 16 on prose" in flat
    assert "Only in" in flat
    assert str(files["new"]) not in flat
    assert "threads: 4 before, 2 now" in flat
    assert "tokens a second do not compare" in flat


def test_json_is_one_object(command, files):
    told = as_json(command("compare", files["old"], files["new"], "--json"))
    assert set(told) == {"changes", "only_old", "only_new", "differences"}
    assert told["differences"] == [{"name": "threads", "old": 4, "new": 2}]
    assert told["changes"][0]["place"] == {"workload": "prose", "drafter": "smollm2-135m", "k": 1}
    assert told["changes"][0]["interval"] == {"low": 1, "high": 1}
    assert told["only_new"] == []


def test_alike_conditions_need_no_warning(command, files):
    shown = command("compare", files["old"], files["old"]).stdout.decode()
    assert "conditions" not in shown
    assert "Only in" not in shown


def test_files_with_nothing_in_common_say_so(command, files, tmp_path):
    with Recording(tmp_path / "other.jsonl") as recording:
        recording.add(*made.bench(drafters=(made.LOOKUP,), workloads=("code",)))
    process = command("compare", files["new"], tmp_path / "other.jsonl")
    assert process.returncode == 0
    assert b"Nothing was timed on the same prompts in both files." in process.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "old",
            "counted",
            "counted.jsonl holds no timed runs: compare files that bench or drafts wrote",
        ),
        ("absent", "old", "absent.jsonl cannot be read"),
        ("broken", "old", "broken.jsonl, line 1 is no record"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(command, files, tmp_path, old, new, told):
    (tmp_path / "broken.jsonl").write_text(json.dumps({"kind": "run"}) + "\n", encoding="utf-8")
    process = command("compare", tmp_path / f"{old}.jsonl", tmp_path / f"{new}.jsonl")
    assert process.returncode == 2
    assert process.stdout == b""
    (line,) = process.stderr.decode().splitlines()
    assert told in line


def test_two_files_are_needed(command, files):
    assert command("compare", files["old"]).returncode == 2


def test_files_are_compared_without_torch(files):
    script = (
        "import sys; from draftwise.cli.main import main\n"
        "try: main()\n"
        "finally: assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "compare", files["old"], files["new"]], capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
