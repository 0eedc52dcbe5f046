"""A bench does each piece of work once, however often it is interrupted, and records what it proved."""

import pytest
import torch

from draftwise.core.errors import FaultError, OptionError
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.model import DraftModel
from draftwise.measure.bench import LONGEST, Bench, BenchPlan
from draftwise.measure.recording import Recording, of_kind, read_records
from draftwise.measure.records import PLAIN, AgreementRecord, PassesRecord, RunRecord
from draftwise.measure.summary import best, counted
from tests.measure.rig import (
    CODE,
    PROSE,
    SECOND,
    TOKENS,
    AlwaysWrong,
    Billed,
    ForgetsToCrop,
    Toys,
    carry_out,
    left,
    model_of,
)

PLAN = BenchPlan(prompts=(PROSE, CODE), sweep=("prose",), ks=(1, 3), workload_ks=(2,), repeats=2)
WORK = [
    "timing passes of the target",
    "timing lookup",
    "timing draft",
    "counting prose 1",
    "counting code 1",
    *["timing prose 1", "timing code 1"] * 2,
]


class Session:
    """A bench as one start of the program makes it, on toys of its own."""

    def __init__(self, path, plan=PLAN, dtype=torch.float32, **options):
        self.path, self.plan, self.options = path, plan, options
        self.toys = Toys(dtype=dtype)

    def __enter__(self):
        self.subject = self.toys.subject(PromptLookup(), self.toys.draft(0.1), **self.options)
        self.recording = Recording(self.path)
        return Bench(self.subject, self.plan, self.recording)

    def __exit__(self, *_):
        self.recording.close()
        self.subject.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The file of a bench that nobody interrupted, and in how many passes it was made."""
    path = tmp_path_factory.mktemp("whole") / "bench.jsonl"
    session = Session(path)
    with session as bench:
        assert carry_out(bench) == WORK
    return path, session.toys.runner.passes


def runs_of(path):
    return of_kind(read_records(path), RunRecord)


def test_a_whole_bench_has_a_record_of_everything_in_the_plan(whole):
    records = read_records(whole[0])
    passes, agreements = of_kind(records, PassesRecord), of_kind(records, AgreementRecord)
    assert [record.drafter for record in passes] == [None, "lookup", "draft"]
    assert [(r.prompt.workload, r.drafter) for r in agreements] == [
        (workload, drafter) for workload in ("prose", "code") for drafter in ("lookup", "draft")
    ]
    drafters = ("lookup", "draft")
    prose = [(PLAIN, 0), *((name, k) for k in (1, 3, 2) for name in drafters)]
    code = [(PLAIN, 0), *((name, 2) for name in drafters)]
    assert [(r.prompt.workload, r.repeat, r.drafter, r.k) for r in of_kind(records, RunRecord)] == [
        (workload, repeat, *variant)
        for repeat in (0, 1)
        for workload, variants in (("prose", prose), ("code", code))
        for variant in variants
    ]
    assert len({record.conditions.alike for record in records}) == 1


def test_every_run_is_proved_and_writes_the_text_that_was_looked_at(whole):
    texts = {
        r.prompt.workload: r.token_ids for r in of_kind(read_records(whole[0]), AgreementRecord)
    }
    for run in runs_of(whole[0]):
        assert run.identical == ("not compared" if run.drafter == PLAIN else "identical")
        assert run.token_ids == texts[run.prompt.workload]
        assert len(run.token_ids) == TOKENS
        assert "".join(text for text, _ in run.pieces)


def test_what_each_pass_costs_is_what_the_clock_said(whole):
    target, lookup, draft = of_kind(read_records(whole[0]), PassesRecord)
    assert target.samples_ms[1] == (125.0,) * 8
    assert target.samples_ms[9][0] == 125 + 8 * 125 / 64
    assert set(lookup.samples_ms[16]) == {0.0}
    assert draft.samples_ms[4][0] == 4 * 31.25
    assert target.context == draft.context > TOKENS // 2


@pytest.mark.parametrize("share", [0.0, 0.3, 0.55, 0.7, 0.85, 0.999])
def test_an_interrupt_at_any_pass_loses_the_step_at_hand_and_nothing_else(whole, tmp_path, share):
    path, passes = whole
    session = Session(tmp_path / "bench.jsonl")
    done: list[str] = []
    with session as bench:
        session.toys.runner.interrupt_at = 1 + int(share * passes)
        with pytest.raises(KeyboardInterrupt):
            carry_out(bench, done)
    kept = session.path.read_bytes()
    with Session(session.path) as bench:
        assert done + [step.what for step in left(bench)] == WORK
        assert done + carry_out(bench) == WORK
    assert session.path.read_bytes().startswith(kept)
    assert read_records(session.path) == read_records(path)


def test_a_finished_bench_has_nothing_left_to_do(whole):
    with Session(whole[0]) as bench:
        assert left(bench) == []


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_group_of_which_a_failing_machine_kept_a_part_is_completed(whole, tmp_path, lost):
    """The last group is that of code, behind the seven runs of prose: a plain run and two others."""
    path = tmp_path / "bench.jsonl"
    path.write_bytes(b"".join(whole[0].read_bytes().splitlines(keepends=True)[:-lost]))
    with Session(path) as bench:
        assert carry_out(bench) == WORK[-2 if lost > 3 else -1 :]
        assert left(bench) == []
    beside = {(run.prompt.workload, run.repeat) for run in runs_of(path) if run.drafter == PLAIN}
    assert {(run.prompt.workload, run.repeat) for run in runs_of(path)} == beside


def test_a_run_without_a_plain_one_beside_it_does_not_count(whole, tmp_path):
    path = tmp_path / "bench.jsonl"
    lines = whole[0].read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"drafter":"none"' not in line))
    with Session(path) as bench:
        assert [step.what for step in left(bench)] == WORK[-4:]


def test_a_larger_plan_does_what_is_new_and_keeps_the_rest(whole, tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_bytes(whole[0].read_bytes())
    plan = BenchPlan(prompts=PLAN.prompts, sweep=("prose",), ks=(1, 3, 5), workload_ks=(2,))
    with Session(path, plan) as bench:
        assert carry_out(bench) == ["timing prose 1"]
    new = runs_of(path)[len(runs_of(whole[0])) :]
    assert [(r.drafter, r.k, r.repeat) for r in new] == [
        (PLAIN, 0, 2), ("lookup", 5, 2), ("draft", 5, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [{"tokens": TOKENS - 1}, {"dtype": torch.float64}, {"temperature": 0.5}, {"raw": True}],
)
def test_records_of_other_conditions_are_not_taken_for_ones_own(whole, tmp_path, changed):
    path = tmp_path / "bench.jsonl"
    path.write_bytes(whole[0].read_bytes())
    with Session(path, **changed) as bench:
        assert [step.what for step in bench.look()] == WORK[:5]
        assert bench.records == []
        assert len([*bench.time()]) == 4


@pytest.mark.parametrize(
    "changed",
    [
        {"repetition_penalty": 1.5},
        {"presence_penalty": 1.0},
        {"logit_bias": ((3, -5.0),)},
        {"stop": ("a",)},
        {"min_tokens": 5},
    ],
)
def test_no_option_of_writing_is_forgotten_in_the_conditions(whole, tmp_path, changed):
    path = tmp_path / "bench.jsonl"
    path.write_bytes(whole[0].read_bytes())
    with Session(path, **changed) as bench:
        assert bench.records == []


def test_a_draft_in_another_dtype_is_measured_anew_and_its_target_is_not(whole, tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_bytes(whole[0].read_bytes())
    toys = Toys()
    model = Billed(model_of("circles", torch.bfloat16), 512, clock=toys.clock)
    drafters = PromptLookup(), DraftModel(model, "draft")
    with toys.subject(*drafters) as subject, Recording(path) as recording:
        todo = [step.what for step in Bench(subject, PLAN, recording).look()]
    assert todo == ["timing draft", "counting prose 1", "counting code 1"]


def test_the_best_k_is_the_one_that_the_counts_promise_most_for():
    toys, plan = Toys(), BenchPlan(prompts=(PROSE, CODE), workload_ks=("best",))
    with toys.subject(PromptLookup(), toys.draft(0.1)) as subject, Recording() as recording:
        bench = Bench(subject, plan, recording)
        carry_out(bench)
        chosen = best(counted(bench.records, range(1, LONGEST + 1)))
    timed = [run for run in of_kind(recording.records, RunRecord) if run.k]
    assert [run.k for run in timed] == [chosen[r.prompt.workload, r.drafter].k for r in timed]
    assert len({run.k for run in timed}) > 1


def test_a_lookahead_spends_by_the_costs_that_were_measured_before():
    toys, plan = Toys(), BenchPlan(prompts=(PROSE,), workload_ks=("auto",))
    good, dear = toys.draft(0.1, "good"), toys.draft(0.1, "dear", first=9 * SECOND)
    with toys.subject(good, dear) as subject, Recording() as recording:
        carry_out(Bench(subject, plan, recording))
    runs = {run.drafter: run for run in of_kind(recording.records, RunRecord)}
    assert {run.k for run in runs.values()} == {0, "auto"}
    drafted = {name: sum(r.drafted for r in run.rounds) for name, run in runs.items()}
    assert drafted["good"] > TOKENS / 2 > drafted["dear"]


def test_a_corrupted_cache_ends_the_bench_and_nothing_of_that_group_is_recorded(tmp_path):
    toys = Toys("wild", runner=ForgetsToCrop)
    path = tmp_path / "bench.jsonl"
    plan = BenchPlan(prompts=(PROSE, CODE), workload_ks=(3,))
    with toys.subject(PromptLookup(), AlwaysWrong()) as subject, Recording(path) as recording:
        bench = Bench(subject, plan, recording)
        for step in bench.look():
            step.work()
        looked = read_records(path)
        first, *_ = bench.time()
        with pytest.raises(FaultError, match="with wrong at k = 3"):
            first.work()
        assert read_records(path) == looked == recording.records
        assert len([*bench.time()]) == 2


def test_the_first_runs_are_warmed_up_and_the_warm_up_is_not_recorded():
    toys = Toys()
    plan = BenchPlan(prompts=(PROSE,), workload_ks=(2,), repeats=2)
    with toys.subject(PromptLookup()) as subject, Recording() as recording:
        bench = Bench(subject, plan, recording)
        took = []
        for step in bench.time():
            before = toys.runner.passes
            step.work()
            took.append(toys.runner.passes - before)
    assert took[0] > took[1]
    assert {len(run.token_ids) for run in of_kind(recording.records, RunRecord)} == {TOKENS}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"prompts": ()}, "no prompts"),
        ({"ks": (1, LONGEST + 1)}, "k is 17: a bench takes 1 to 16"),
        ({"workload_ks": (0,)}, "k is 0"),
        ({"repeats": 0}, "repeats is 0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changed, told):
    with pytest.raises(OptionError, match=told):
        BenchPlan(**{"prompts": (PROSE,)} | changed)
