"""`draftwise precondition` as a user runs it, on a toy; its verdicts, on numbers of the test's own."""

import pytest

from draftwise.cli.precondition import verdict
from draftwise.decoding import passes
from draftwise.measure.recording import read_records
from draftwise.measure.records import Conditions, PassesRecord
from draftwise.models.row import Row
from tests.cli.conftest import as_json

QUICK = ("--lengths", "2,4", "--repeats", "3", "--context", "16")


@pytest.fixture
def precondition(command):
    def run(*arguments):
        given = ("--target", "./target", "--dtype", "float32", "--threads", "1")
        return command("precondition", *given, *arguments)

    return run


def record(milliseconds, runs=9):
    """A record of timings without noise, or of those given."""
    return PassesRecord(
        conditions=Conditions(target="toy", machine="a machine", threads=1),
        context=8,
        samples_ms={
            n: ms if isinstance(ms, tuple) else (float(ms),) * runs
            for n, ms in milliseconds.items()
        },
    )


def test_the_table_gives_medians_ratios_and_a_bar_for_each_length(precondition):
    process = precondition(*QUICK)
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    assert process.stderr == b""
    assert "./target reads n new tokens behind 16 cached ones, 3 times in turns" in shown
    rows = [line.split() for line in shown.splitlines() if "█" in line]
    assert [row[0] for row in rows] == ["1", "2", "4"]
    assert rows[0][5] == "1.00x"
    assert any(word in shown for word in ("Speculation ", "too noisy to say"))
    assert "cpu, float32, eager, 1 threads" in " ".join(shown.split())


def test_json_is_one_object_with_an_entry_for_each_context(precondition):
    told = as_json(precondition(*QUICK, "--context", "32", "--json"))
    assert [each["context"] for each in told["contexts"]] == [16, 32]
    for each in told["contexts"]:
        assert [row["n"] for row in each["passes_ms"]] == [1, 2, 4]
        assert each["passes_ms"][0]["v"] == 1
        assert each["passes_ms"][0]["runs"] == 3
        assert each["verdict"]["word"] in each["verdict"]["reason"]
    assert told["conditions"]["threads"] == 1


def test_what_a_file_has_already_is_not_measured_again(precondition, tmp_path, monkeypatch):
    out = ("--out", tmp_path / "out.jsonl")
    first = as_json(precondition(*QUICK, *out, "--json"))
    (kept,) = read_records(tmp_path / "out.jsonl")
    assert isinstance(kept, PassesRecord)
    with monkeypatch.context() as patch:
        patch.setattr(passes, "time_reads", None)  # whoever measures now, fails
        assert as_json(precondition(*QUICK, *out, "--json")) == first
    for changed in (("--context", "24"), ("--lengths", "2,3"), ("--repeats", "4")):
        as_json(precondition(*QUICK, *changed, *out, "--json"))
    assert len(read_records(tmp_path / "out.jsonl")) == 4
    as_json(precondition(*QUICK, "--dtype", "float64", *out, "--json"))
    assert len(read_records(tmp_path / "out.jsonl")) == 5


def test_an_interrupt_keeps_the_contexts_that_were_done(precondition, tmp_path, monkeypatch):
    out = ("--out", tmp_path / "out.jsonl")
    prefill = Row.prefill

    def interrupted(self, ids):
        if len(ids) == 32:
            raise KeyboardInterrupt
        prefill(self, ids)

    monkeypatch.setattr(Row, "prefill", interrupted)
    process = precondition(*QUICK, "--context", "32", *out)
    assert process.returncode == 130
    assert b"goes on from there" in b" ".join(process.stderr.split())
    assert process.stdout == b""
    assert [r.context for r in read_records(tmp_path / "out.jsonl")] == [16]
    monkeypatch.undo()
    as_json(precondition(*QUICK, "--context", "32", *out, "--json"))
    assert [r.context for r in read_records(tmp_path / "out.jsonl")] == [16, 32]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_plot_is_a_file_of_the_kind_that_its_name_says(precondition, tmp_path, ending):
    plot = tmp_path / f"cost.{ending}"
    process = precondition(*QUICK, "--plot", plot)
    assert process.returncode == 0, process.stderr.decode()
    assert {"svg": b"<svg", "png": b"\x89PNG"}[ending] in plot.read_bytes()


def test_a_text_of_the_users_is_read(precondition, tmp_path):
    (tmp_path / "text").write_text("Zürich", encoding="utf-8")
    given = precondition(*QUICK, "--text-file", tmp_path / "text", "--json")
    ours = precondition(*QUICK, "--json")
    texts = [as_json(process)["conditions"]["settings"]["text"] for process in (given, ours)]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--lengths", "1,x"), "1,2,4,8"),
        (("--lengths", "0,2"), "none below 1"),
        (("--lengths", "1"), "one above it"),
        (("--repeats", "2"), "--repeats"),
        (("--context", "0"), "--context"),
        (("--plot", "cost.gif"), ".svg, .png or .pdf"),
        (("--plot", "./nowhere/cost.png"), "no folder"),
        (("--text-file", "./nowhere"), "nowhere"),
        (("--context", "500"), "532 tokens"),
        (("--draft", "lookup"), "--draft"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(precondition, arguments, told):
    process = precondition(*arguments)
    assert process.returncode == 2
    assert process.stdout == b""
    assert told in process.stderr.decode()
    assert b"Traceback" not in process.stderr


def test_flat_passes_can_pay_and_the_best_k_for_a_good_draft_is_named():
    judged = verdict(record({n: 60 + n for n in (1, 2, 4, 8, 16, 32)}))
    assert judged.word == "can pay"
    assert "checking 8 tokens costs 1.11x one" in judged.reason
    assert "v stays below 2 up to n = 32" in judged.reason
    assert "2.3" in judged.reason
    assert "k = 5" in judged.reason


def test_the_essays_numbers_can_pay_and_v_is_said_to_reach_2_at_16():
    essay = {1: 1.0, 8: 1.15, 12: 1.71, 16: 2.0}
    judged = verdict(record({n: 66.3 * v for n, v in essay.items()}))
    assert judged.word == "can pay"
    assert "checking 8 tokens costs 1.15x one, and v reaches 2 at n = 16" in judged.reason


def test_passes_that_cost_by_the_token_cannot_pay_with_any_draft():
    judged = verdict(record({n: 10 * n for n in (1, 2, 4, 8)}))
    assert judged.word == "cannot pay"
    assert "checking 8 tokens costs 8.00x one, and v reaches 2 at n = 2" in judged.reason
    assert "free and always right would give 1.00x" in judged.reason


def test_passes_that_leave_room_for_a_perfect_draft_only_will_hardly_pay():
    judged = verdict(record({n: 10 * n**0.8 for n in (1, 2, 4, 8)}))
    assert judged.word == "will hardly pay"
    assert f"always right {8**0.2:.2f}x" in judged.reason


def test_a_machine_that_is_too_noisy_gets_no_verdict():
    loud = (10.0, 30.0, 12.0, 22.0, 10.0)
    judged = verdict(record({1: loud, 8: loud}))
    assert judged.word == "too noisy to say"
    assert judged.reason.startswith("This machine is too noisy to say")
