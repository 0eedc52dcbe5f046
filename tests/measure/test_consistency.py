"""In float32 the rounds of timed runs are those that recorded agreement foretold, to the integer."""

import pytest

from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.measure.bench import Bench, BenchPlan
from draftwise.measure.consistency import Consistency, consistency
from draftwise.measure.recording import Recording, of_kind
from draftwise.measure.records import AgreementRecord, RunRecord
from tests.measure.rig import CODE, PROSE, Toys, carry_out

KS = (1, 2, 3, 5, 16)


@pytest.fixture(
    scope="module", params=[{}, {"temperature": 0.05, "seed": 3}], ids=["greedy", "sampled"]
)
def records(request):
    toys, plan = Toys(), BenchPlan(prompts=(PROSE, CODE), workload_ks=(*KS, "auto"))
    drafters = PromptLookup(), SuffixDrafter(), toys.itself(), toys.draft(0.1)
    with toys.subject(*drafters, **request.param) as subject, Recording() as recording:
        carry_out(Bench(subject, plan, recording))
    return recording.records


def test_every_run_of_every_drafter_at_every_k_is_as_replayed(records):
    runs = 2 * len(KS)  # not those of a lookahead, which the replay does not know
    assert consistency(records) == [
        Consistency(name, equal=runs, otherwise=0, other_text=0)
        for name in ("lookup", "suffix", "self", "draft")
    ]
    for run in of_kind(records, RunRecord):
        if run.drafter in ("self", "draft"):
            assert any(round_.accepted for round_ in run.rounds), (run.drafter, run.k)


def test_a_run_in_other_rounds_and_one_with_another_text_are_told_apart(records):
    runs = [r for r in of_kind(records, RunRecord) if r.drafter == "self" and r.k == 5]
    one, other = runs
    first = one.rounds[0]
    split = [
        first.model_copy(update={"drafted": 2, "accepted": n - 1, "emitted": n}) for n in (2, 3)
    ]
    altered = [
        one.model_copy(update={"rounds": (*split, *one.rounds[1:])}),
        other.model_copy(update={"token_ids": (*other.token_ids[:-1], 999)}),
    ]
    agreements = of_kind(records, AgreementRecord)
    assert consistency([*agreements, *altered]) == [Consistency("self", 0, 1, 1)]


def test_a_run_that_nobody_foretold_is_not_compared(records):
    agreements, runs = of_kind(records, AgreementRecord), of_kind(records, RunRecord)
    assert consistency(runs) == []
    elsewhere = runs[0].conditions.model_copy(update={"threads": 99})
    moved = [run.model_copy(update={"conditions": elsewhere}) for run in runs]
    assert consistency([*agreements, *moved]) == []
    shorter = [record.model_copy(update={"longest": 4}) for record in agreements]
    assert {row.equal for row in consistency([*shorter, *runs])} == {2 * 3}
