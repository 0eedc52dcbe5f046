"""On a real model in float32, timed runs have the counts of their replay, to the integer."""

import pytest

from draftwise.engine.options import GenerateOptions, ModelOptions
from draftwise.measure.bench import Bench, BenchPlan
from draftwise.measure.consistency import consistency
from draftwise.measure.recording import Recording
from draftwise.measure.subject import load_subject
from draftwise.measure.workloads import choose

pytestmark = pytest.mark.slow


def test_counts_of_the_loop_are_those_of_the_replay():
    models = ModelOptions(target="smollm2-135m", dtype="float32", runner="eager")
    prompts = tuple(choose(("prose", "editing"), limit=1))
    plan = BenchPlan(prompts=prompts, workload_ks=(1, 3, 8, "auto"))
    drafts = ("lookup", "suffix", "self")
    with (
        load_subject(models, drafts, GenerateOptions(tokens=32)) as subject,
        Recording() as recording,
    ):
        bench = Bench(subject, plan, recording)
        for steps in (bench.look(), bench.time()):
            for step in list(steps):
                step.work()
    found = consistency(recording.records)
    assert [row.drafter for row in found] == list(drafts)
    for row in found:
        assert (row.equal, row.otherwise, row.other_text) == (2 * 3, 0, 0), row
