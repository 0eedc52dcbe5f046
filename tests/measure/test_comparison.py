"""What changed between two files: found where it is, and not where it is not."""

import pytest

from draftwise.measure.comparison import Difference, Place, compare, last_runs
from draftwise.measure.records import PLAIN, Conditions, PromptRef, RoundRecord, RunRecord

HERE = Conditions(
    target="big",
    machine="a machine",
    threads=2,
    settings={"dtype": "float32", "tokens": 64},
    versions={"torch": "2.13.0"},
)
PROMPTS = ("a", "b", "c", "d")


def run(seconds, prompt="a", drafter=PLAIN, k=0, repeat=0, conditions=HERE, workload="prose"):
    """Ten tokens in so many seconds."""
    return RunRecord(
        conditions=conditions,
        drafter=drafter,
        k=k,
        prompt=PromptRef(workload=workload, index=0, sha256=prompt, tokens=5),
        repeat=repeat,
        seed=0,
        token_ids=tuple(range(10)),
        finish_reason="length",
        prefill=1.0,
        rounds=tuple(
            RoundRecord(drafted=0, accepted=0, emitted=1, verify=seconds / 10) for _ in range(10)
        ),
    )


def bench(speedups, plain=2.0, drafter="small", k=3, repeat=0, conditions=HERE, workload="prose"):
    """A plain run and a speculative one for each prompt, by name."""
    shared = {"repeat": repeat, "conditions": conditions, "workload": workload}
    records = []
    for prompt, speedup in speedups.items():
        records += [
            run(plain, prompt, **shared),
            run(plain / speedup, prompt, drafter, k, **shared),
        ]
    return records


def evenly(speedup):
    return dict.fromkeys(PROMPTS, speedup)


def test_a_change_is_the_new_speedup_over_the_old_one():
    (change,) = compare(bench(evenly(1.5)), bench(evenly(1.8), plain=1.0)).changes
    assert change.place == Place("prose", "small", 3)
    assert (change.speedup_old, change.speedup_new) == pytest.approx((1.5, 1.8))
    assert change.ratio == pytest.approx(1.2)
    assert (change.interval.low, change.interval.high) == pytest.approx((1.2, 1.2))
    assert (change.plain_old, change.plain_new, change.plain_ratio) == pytest.approx((5, 10, 2))
    assert (change.prompts, change.outcome) == (4, "faster")


def test_the_other_way_round_it_is_slower():
    (change,) = compare(bench(evenly(1.8)), bench(evenly(1.5))).changes
    assert change.ratio == pytest.approx(1 / 1.2)
    assert change.outcome == "slower"


def test_a_file_compared_with_itself_shows_no_change():
    records = bench({"a": 1.2, "b": 2.0, "c": 0.9})
    found = compare(records, records)
    (change,) = found.changes
    assert (change.ratio, change.outcome) == (1, "unclear")
    assert change.interval.low == change.interval.high == 1
    assert (found.only_old, found.only_new, found.differences) == ((), (), ())


def test_prompts_are_resampled_in_pairs_so_that_a_gain_on_each_is_a_gain():
    old = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    (change,) = compare(bench(old), bench({name: 1.1 * s for name, s in old.items()})).changes
    assert (change.interval.low, change.interval.high) == pytest.approx((1.1, 1.1))


def test_a_gain_on_one_prompt_and_a_loss_on_another_is_unclear():
    (change,) = compare(bench({"a": 1.0, "b": 1.0}), bench({"a": 1.3, "b": 0.9})).changes
    assert (change.interval.low, change.interval.high) == pytest.approx((0.9, 1.3))
    assert change.outcome == "unclear"


def test_the_runs_of_an_only_prompt_are_resampled_and_one_run_has_no_interval():
    def repeated(*speedups):
        return [r for i, s in enumerate(speedups) for r in bench({"a": s}, repeat=i)]

    (change,) = compare(repeated(1.0, 1.1, 1.2), repeated(1.5, 1.6, 1.7)).changes
    assert change.ratio == pytest.approx(1.6 / 1.1)
    assert change.interval.low == pytest.approx(1.5 / 1.2)
    assert change.interval.high == pytest.approx(1.7 / 1.0)
    assert change.outcome == "faster"
    (single,) = compare(repeated(1.0), repeated(1.5, 1.6)).changes
    assert (single.interval, single.outcome) == (None, "unclear")


def test_only_prompts_that_both_have_are_compared():
    (change,) = compare(bench({"a": 1.5, "b": 9.0}), bench({"a": 1.5, "c": 0.1})).changes
    assert (change.prompts, change.ratio) == (1, 1)


def test_what_only_one_file_has_is_named():
    old = [*bench(evenly(1.5)), *bench(evenly(1.5), k=5), *bench({"x": 1.5}, workload="code")]
    new = [
        *bench(evenly(1.5)),
        *bench(evenly(1.5), drafter="large"),
        *bench({"y": 1.5}, workload="code"),
    ]
    found = compare(old, new)
    assert [change.place for change in found.changes] == [Place("prose", "small", 3)]
    code = Place("code", "small", 3)  # on other prompts
    assert found.only_old == (Place("prose", "small", 5), code)
    assert found.only_new == (Place("prose", "large", 3), code)


def test_a_k_that_a_lookahead_chose_is_compared_like_any_other():
    old, new = bench(evenly(1.5), k="auto"), bench(evenly(1.8), k="auto")
    (change,) = compare(old, new).changes
    assert change.place == Place("prose", "small", "auto")


def test_conditions_that_differ_are_named_with_both_values():
    elsewhere = Conditions(
        target="big",
        machine="another",
        threads=2,
        settings={"dtype": "bfloat16", "tokens": 64, "runner": "eager"},
        draft={"draft_dtype": "bfloat16"},
        versions={"torch": "2.14.0"},
    )
    drafted = HERE.model_copy(update={"draft": {"draft_dtype": "float32"}})
    found = compare(
        bench(evenly(1.5), conditions=drafted), bench(evenly(1.5), conditions=elsewhere)
    )
    assert found.differences == (
        Difference("machine", "a machine", "another"),
        Difference("dtype", "float32", "bfloat16"),
        Difference("torch", "2.13.0", "2.14.0"),
        Difference("draft_dtype of none", "float32", "bfloat16"),
        Difference("draft_dtype of small", "float32", "bfloat16"),
    )


def test_of_a_file_with_several_conditions_the_last_count():
    before = HERE.model_copy(update={"threads": 1})
    mixed = [*bench(evenly(9.0), conditions=before), *bench(evenly(1.5))]
    found = compare(mixed, bench(evenly(1.5)))
    assert [change.ratio for change in found.changes] == [1]
    assert found.differences == ()
    assert last_runs([]) == []
