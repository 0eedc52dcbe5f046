"""Rows made of a few records whose every number was worked out by hand."""

import pytest

from draftwise.core.counters import Counters, RoundCount
from draftwise.measure.records import (
    PLAIN,
    AgreementRecord,
    Conditions,
    Foresight,
    PassesRecord,
    PromptRef,
    RoundRecord,
    RunRecord,
)
from draftwise.measure.summary import ALL, best, costs, counted, timed

HERE = Conditions(target="big", machine="test", threads=1)
PLAIN_ROUND = RoundRecord(drafted=0, accepted=0, emitted=1, verify=0.10, rest=0.01)


def prompt(name, workload="prose"):
    return PromptRef(workload=workload, index=0, sha256=name, tokens=5)


def run(rounds, drafter=PLAIN, k=0, name="a", repeat=0, conditions=HERE, **given):
    return RunRecord(
        conditions=conditions,
        drafter=drafter,
        k=k,
        prompt=prompt(name, given.pop("workload", "prose")),
        repeat=repeat,
        seed=0,
        token_ids=tuple(range(sum(r.emitted for r in rounds))),
        finish_reason="length",
        prefill=9.0,
        rounds=tuple(rounds),
        **given,
    )


def drafted(accepted, k=2, passes=2, draft=0.04, verify=0.12, rest=0.02):
    return RoundRecord(
        drafted=k,
        accepted=accepted,
        emitted=accepted + 1,
        draft_passes=passes,
        draft=draft,
        verify=verify,
        rest=rest,
    )


def agreement(tokens, proposals, workload="prose", drafter="small", longest=2):
    return AgreementRecord(
        conditions=HERE,
        drafter=drafter,
        prompt=prompt(workload, workload),
        seed=0,
        token_ids=tokens,
        max_tokens=8,
        foresight=tuple(Foresight(tokens=said, drafted=longest) for said in proposals),
        longest=longest,
        passes_per_token=1,
    )


def passes(samples, drafter=None, context=0):
    return PassesRecord(conditions=HERE, drafter=drafter, context=context, samples_ms=samples)


def test_a_run_is_compared_with_the_plain_run_beside_it():
    [row] = timed(
        [
            run([PLAIN_ROUND] * 4),
            run([drafted(2), drafted(0)], "small", 2, identical="identical"),
        ]
    )

    assert (row.target, row.workload, row.drafter, row.k) == ("big", "prose", "small", 2)
    assert (row.prompts, row.runs, row.identical, row.near_ties) == (1, 1, 1, 0)
    assert row.counters == Counters(
        rounds=2, target_passes=2, draft_passes=4, drafted=4, accepted=2, emitted=4, rejections=1,
        prompt_tokens=5,
    )  # fmt: skip
    assert row.plain.emitted == row.plain.rounds == 4
    assert row.speedup.median == pytest.approx(0.44 / 0.36)
    assert row.interval.low <= row.speedup.median <= row.interval.high
    assert row.tokens_per_second.median == pytest.approx(4 / 0.36)
    assert row.plain_tokens_per_second.median == pytest.approx(4 / 0.44)
    times = (row.draft_ms, row.verify_ms, row.rest_ms, row.plain_ms, row.plain_rest_ms)
    assert times == pytest.approx((40, 120, 20, 100, 10))
    assert row.rates.cost_ratio == pytest.approx(0.2)
    assert row.rates.verify_overhead == pytest.approx(1.2)
    assert row.rates.alpha == pytest.approx(2 / 3)
    assert row.predicted == pytest.approx(1.1 * 2 / (2 * 0.2 + 1.2 + 0.2))


def test_where_no_model_drafts_proposing_is_part_of_the_rest_and_an_empty_round_a_plain_pass():
    looked_up = drafted(2, passes=0, draft=0.01)
    nothing = RoundRecord(drafted=0, accepted=0, emitted=1, draft=0.01, verify=0.3, rest=0.02)

    [row] = timed([run([PLAIN_ROUND] * 4), run([looked_up, nothing], "lookup", 2)])

    assert row.rates.cost_ratio is None
    assert row.verify_ms == pytest.approx(210)
    assert row.rates.verify_overhead == pytest.approx(1.2)  # the empty round verified nothing
    assert row.predicted == pytest.approx(1.1 * 2 / ((1.2 + 1) / 2 + 0.3))


def test_without_a_plain_run_of_the_same_prompt_repeat_and_conditions_there_is_no_row():
    elsewhere = HERE.model_copy(update={"threads": 2})
    others = [{"name": "b"}, {"repeat": 1}, {"conditions": elsewhere}]
    records = [run([PLAIN_ROUND], **other) for other in others]

    assert timed([*records, run([drafted(0)], "small", 2)]) == []


def test_settings_of_a_draft_do_not_keep_its_runs_from_the_plain_one():
    with_draft = HERE.model_copy(update={"draft": {"dtype": "float32"}})
    records = [run([PLAIN_ROUND]), run([drafted(0)], "small", 2, conditions=with_draft)]

    assert len(timed(records)) == 1


def test_a_draft_that_never_proposes_predicts_nothing():
    nothing = RoundRecord(drafted=0, accepted=0, emitted=1, verify=0.1, rest=0.02)

    [row] = timed([run([PLAIN_ROUND]), run([nothing], "lookup", 2)])

    assert row.predicted is None
    assert row.rates.alpha is None


def test_prompts_and_not_runs_are_resampled():
    records = []
    for name, seconds in (("a", 0.05), ("b", 0.20)):
        for repeat in range(3):
            records.append(run([PLAIN_ROUND], name=name, repeat=repeat))
            one = RoundRecord(drafted=1, accepted=0, emitted=1, verify=seconds)
            records.append(run([one], "small", 1, name=name, repeat=repeat))

    [row] = timed(records)

    assert (row.prompts, row.runs) == (2, 6)
    assert (row.interval.low, row.interval.high) == pytest.approx((0.11 / 0.20, 0.11 / 0.05))


def test_an_interval_covers_what_prompts_and_rounds_might_have_been():
    slow = RoundRecord(drafted=1, accepted=0, emitted=1, verify=0.2)
    fast = RoundRecord(drafted=1, accepted=1, emitted=2, verify=0.1)
    even = [*timed([run([PLAIN_ROUND]), run([fast, fast], "small", 1)])]
    mixed = [*timed([run([PLAIN_ROUND]), run([fast, slow] * 8, "small", 1)])]
    assert even[0].interval.low == even[0].interval.high == even[0].speedup.median
    assert mixed[0].interval.low < 0.9 * mixed[0].speedup.median
    assert mixed[0].interval.high > 1.1 * mixed[0].speedup.median


def test_files_can_be_joined_since_each_group_of_runs_has_a_name():
    fast, slow = drafted(2, k=2), RoundRecord(drafted=0, accepted=0, emitted=1, verify=0.4)
    one = [run([PLAIN_ROUND]), run([fast], "small", 2)]
    other = [run([slow]), run([fast], "small", 2)]
    named = [r.model_copy(update={"group": g}) for g, rs in (("a", one), ("b", other)) for r in rs]
    [row] = timed(named)
    [alone], [beside] = timed(one), timed(other)
    assert sorted(row.speedup.median * 2 - s for s in (alone.speedup.median,)) == [
        pytest.approx(beside.speedup.median)
    ]


def test_the_same_drafter_in_another_dtype_is_another_row():
    one, other = (
        run(
            [drafted(0, k=1)],
            "small",
            1,
            conditions=HERE.model_copy(update={"draft": {"draft_dtype": dtype}}),
        )
        for dtype in ("float32", "bfloat16")
    )
    assert [row.runs for row in timed([run([PLAIN_ROUND]), one, other])] == [1, 1]


def test_rows_come_in_the_order_of_the_records():
    records = [run([PLAIN_ROUND])]
    records += [run([drafted(0, k=k)], name, k) for name, k in (("z", 3), ("a", 1), ("z", 2))]

    assert [(row.drafter, row.k) for row in timed(records)] == [("z", 3), ("a", 1), ("z", 2)]


AGREED = agreement((1, 2, 3, 4), [(1, 2), (2, 3), (9,), (4,)])
"""With k = 2: all of 1 2 3 in one round, then 4. With k = 1: 1 2, then 9 for 3, then 4."""


def test_every_k_is_counted_from_what_was_proposed():
    rows = counted([AGREED], (1, 2, 3))

    assert [(row.workload, row.k) for row in rows] == [
        ("prose", 1), ("prose", 2), (ALL, 1), (ALL, 2),
    ]  # fmt: skip
    assert rows[0].counters.rounds == 3
    assert rows[1].counters == Counters.from_rounds(
        [RoundCount(2, 2, 3, 2), RoundCount(2, 1, 1, 2)], prompt_tokens=5
    )
    assert all(row.speedup is None and row.rates.cost_ratio is None for row in rows)


def test_all_workloads_together_are_all_rounds_together():
    hopeless = agreement((5, 6), [(0,), (0,)], workload="code")

    *_, whole = counted([AGREED, hopeless], (2,))

    assert (whole.workload, whole.prompts, whole.counters.rounds) == (ALL, 2, 4)
    assert whole.counters.prompt_tokens == 10


def test_where_passes_were_timed_the_speedup_is_predicted():
    records = [
        AGREED,
        passes({1: (100.0,), 2: (110.0,), 3: (120.0,)}),
        passes({1: (10.0,), 2: (20.0,)}, "small"),
        run([PLAIN_ROUND]),
        run([drafted(0)], "small", 2),
    ]

    rows = counted(records, (1, 2))

    plain, host = 110, 20
    one, two = 10 + 110 + host, 20 + 120 + host
    assert rows[0].speedup == pytest.approx(4 * plain / (3 * one))
    assert rows[1].speedup == pytest.approx(4 * plain / (2 * two))
    assert rows[1].rates.cost_ratio == pytest.approx(0.1)
    assert rows[1].rates.verify_overhead == pytest.approx(1.2)
    assert best(rows) == {("prose", "small"): rows[1], (ALL, "small"): rows[3]}


def test_what_was_not_priced_is_never_the_best():
    assert best(counted([AGREED], (1, 2))) == {}


def test_a_target_is_read_behind_the_context_that_its_draft_was_timed_behind():
    records = [
        passes({1: (100.0,)}),
        passes({1: (300.0,)}, context=512),
        passes({1: (10.0,)}, "small", context=512),
    ]

    found = costs(records, "big", "small")

    assert found is not None
    assert found.read(1) == 300
    assert costs(records, "big", "other") is None
    assert costs(records, "small", "small") is None
