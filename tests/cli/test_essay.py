"""`draftwise essay` as a user runs it, on toys: the whole set, its pages, and a second run of it."""

import pytest

from draftwise.measure.recording import of_kind, read_records
from draftwise.measure.records import AgreementRecord, NestingRecord, PassesRecord, RunRecord

SMALL = ("--repeats", "1", "--tokens", "12")


@pytest.fixture
def essay(command):
    def run(*arguments):
        given = ("--target", "./target", "--dtype", "float32", "--threads", "1")
        return command("essay", *given, *arguments)

    return run


def test_the_whole_set_is_measured_once_and_its_claims_are_judged(essay, tmp_path, monkeypatch):
    folder = tmp_path / "deeper" / "essay"
    given = (*SMALL, "--draft", "./draft", "--draft", "lookup", "--out", folder)
    process = essay(*given)
    shown = " ".join(process.stdout.decode().split())
    assert process.returncode == 0, process.stderr.decode()
    assert "One pass over a text answers every" in shown
    assert "not shown" in shown  # a draft that shares its target's tokenizer
    assert str(folder / "essay.md") in shown.replace(" ", "")

    records = read_records(folder / "records.jsonl")
    assert len(of_kind(records, NestingRecord)) == 1
    assert len(of_kind(records, PassesRecord)) == 3
    assert len(of_kind(records, AgreementRecord)) == 5 * 2
    assert {r.k for r in of_kind(records, RunRecord)} == {0, 1, 3, 5, 8, 12, 16}
    assert len({r.prompt.workload for r in of_kind(records, RunRecord)}) == 5

    page, claims = ((folder / n).read_text(encoding="utf-8") for n in ("report.html", "essay.md"))
    assert "<title>The essay&#39;s measurements, repeated</title>" in page
    head, rule, *rows = claims.split("\n\n")[0].splitlines()
    assert "One pass over a text answers every prefix of it" in rows[0]
    assert head == "| the essay says | there | here | holds here |"
    assert rule == "|--|--|--|--|"
    assert len(rows) == 17
    assert {row.split("|")[-2].strip() for row in rows} <= {"yes", "no", "not shown"}

    written = (folder / "records.jsonl").read_bytes()
    for page in ("report.html", "essay.md"):
        (folder / page).unlink()
    for name in ("logits", "prefill"):  # whoever measures now, fails
        monkeypatch.setattr(f"draftwise.models.row.Row.{name}", None)
    again = essay(*given)
    assert again.returncode == 0, again.stderr.decode()
    assert again.stdout == process.stdout
    assert (folder / "records.jsonl").read_bytes() == written
    assert (folder / "essay.md").read_text(encoding="utf-8") == claims
    assert (folder / "report.html").exists()


def test_ctrl_c_keeps_what_was_done(essay, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("draftwise.measure.bench.Bench._time_drafter", interrupted)
        process = essay(*SMALL, "--draft", "lookup", "--out", tmp_path)
    assert process.returncode == 130
    assert b"has 2 records; the same command goes on" in process.stderr
    kinds = [record.kind for record in read_records(tmp_path / "records.jsonl")]
    assert kinds == ["nesting", "passes"]
    assert not (tmp_path / "essay.md").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--repeats", "0"), "repeats is 0"),
        (("--tokens", "0"), "tokens is 0"),
        (("--draft", "none"), "leave it out"),
        (("-k", "5"), "-k"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(essay, tmp_path, given, told):
    process = essay("--out", tmp_path / "new", *given)
    assert process.returncode == 2
    assert process.stdout == b""
    assert told in process.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in process.stderr


def test_a_folder_that_is_a_file_is_refused(essay, tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    process = essay(*SMALL, "--out", tmp_path / "file")
    assert process.returncode == 2
    assert b"cannot be written" in process.stderr
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
