"""`draftwise report` as a user runs it."""

import subprocess
import sys

import pytest

from draftwise.cli.main import main
from draftwise.measure.recording import Recording
from tests.report import made


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run it in a folder that holds records; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name, records in (("runs.jsonl", [made.plain()]), ("passes.jsonl", [made.passes()])):
        with Recording(tmp_path / name) as recording:
            recording.add(*records)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["draftwise", "report", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capsys.readouterr()

    return run


def test_the_page_lies_beside_the_first_file_and_its_name_is_printed(command, tmp_path):
    folder = tmp_path / "deeper"
    folder.mkdir()
    (tmp_path / "runs.jsonl").rename(folder / "runs.jsonl")

    status, out, err = command("deeper/runs.jsonl", "passes.jsonl")

    assert (status, out, err) == (0, "deeper/report.html\n", "")
    assert "What checking costs" in (folder / "report.html").read_text(encoding="utf-8")


def test_markdown_and_title_are_as_asked_for(command, tmp_path):
    status, out, _ = command(
        "runs.jsonl", "--html", "a.html", "--markdown", "a.md", "--title", "Ours"
    )

    assert (status, out) == (0, "a.html\na.md\n")
    assert "<title>Ours</title>" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("# Ours\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.jsonl"], "absent.jsonl cannot be read: No such file or directory"),
        (["empty.jsonl"], "empty.jsonl holds no records"),
        (["bad.jsonl"], "bad.jsonl, line 2 is no record: "),
        (["runs.jsonl", "--html", "no/where.html"], "no/where.html cannot be written: "),
        (["runs.jsonl", "--html", "./runs.jsonl"], "runs.jsonl holds the records: "),
        (["runs.jsonl", "--markdown", "report.html"], "report.html cannot be both"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(command, tmp_path, arguments, said):
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    good = (tmp_path / "runs.jsonl").read_text(encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text(good + '{"kind": "run"}\n', encoding="utf-8")

    status, out, err = command(*arguments)

    assert (status, out) == (2, "")
    assert err.startswith(f"draftwise: {said}")
    assert err.count("\n") == 1
    assert (tmp_path / "runs.jsonl").read_text(encoding="utf-8") == good


def test_no_file_is_a_wrong_use(command):
    status, _, err = command()

    assert status == 2
    assert "RECORDS" in err


def test_a_report_is_made_without_torch(command, tmp_path):
    script = (
        "import sys; from draftwise.cli.main import main\n"
        "try: main()\n"
        "finally: assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "report", "runs.jsonl"], cwd=tmp_path, capture_output=True
    )

    assert (done.returncode, done.stderr) == (0, b"")
