"""Which sections a report has, and what it says: gains and losses alike."""

from dataclasses import replace

import pytest

from draftwise.core.counters import RoundCount
from draftwise.core.errors import OptionError
from draftwise.report.sections import compose
from tests.report import made
from tests.report.made import CONDITIONS, LARGE, SMALL


def ids(report):
    return [section.id for section in report.sections]


def section(report, name):
    return next(section for section in report.sections if section.id == name)


def runs(speedups, drafter=SMALL, k=1, **given):
    """Runs of two tokens on workloads, each so many times as fast as plain."""
    found = []
    for workload, speedup in speedups.items():
        beside = made.plain(2, workload=workload)
        fast = made.run([RoundCount(1, 1, 2, 1)], drafter, k, workload, **given)
        seconds = beside.seconds / speedup
        rounds = (fast.rounds[0].model_copy(update={"draft": 0.0, "verify": seconds, "rest": 0.0}),)
        found += [beside, fast.model_copy(update={"rounds": rounds})]
    return found


def test_records_of_every_kind_make_every_section():
    assert ids(compose(made.everything())) == [
        *("bill", "advice", "k", "k-2", "k-3", "workloads", "drafts", "verify", "round", "text"),
        *("nesting", "conditions"),
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([made.passes()], ["verify", "conditions"]),
        ([made.passes(SMALL)], ["conditions"]),
        ([made.nesting(), made.nesting()], ["nesting", "nesting-2", "conditions"]),
        ([made.advice()], ["advice", "conditions"]),
        ([made.plain()], ["conditions"]),
        (runs({"code": 2.0}), ["bill", "round", "conditions"]),
        ([made.agreement(SMALL, "code")], ["conditions"]),
    ],
)
def test_a_section_is_there_only_if_there_are_records_for_it(records, expected):
    assert ids(compose(records)) == expected


def test_what_was_only_counted_is_predicted():
    drafters = (SMALL, LARGE)
    records = [made.passes(), *map(made.passes, drafters)]
    records += [made.agreement(d, w) for d in drafters for w in ("prose", "code")]

    report = compose(records)

    assert ids(report) == ["k", "k-2", "workloads", "drafts", "verify", "conditions"]
    assert report.headline.startswith("Speculation should pay: smollm2-135m at k = ")
    [table] = section(report, "k").tables
    assert len(table.rows) == made.LONGEST
    assert {row[0] for row in section(report, "workloads").tables[0].rows} == {
        "prose",
        "code",
        "all",
    }


@pytest.mark.parametrize(
    ("speedups", "begins", "ends"),
    [
        ({"code": 2.0}, "Speculation pays: ", " makes qwen2.5-coder-1.5b 2.00x as fast on code"),
        ({"code": 2.0, "prose": 1.5}, "Speculation pays: ", " 1.50x to 2.00x as fast, depending on the text"),
        ({"code": 0.5}, "Do not speculate here: ", " runs at 0.50x its plain speed on code"),
        ({"code": 1.0}, "Too close to say: ", " runs at 1.00x its plain speed on code"),
        (
            {"code": 2.0, "prose": 0.8, "data": 1.5},
            "It depends on the text: ",
            " is faster on code and data, slower on prose (0.80x to 2.00x)",
        ),
    ],
)  # fmt: skip
def test_the_headline_says_a_loss_as_plainly_as_a_gain(speedups, begins, ends):
    headline = compose(runs(speedups)).headline

    assert headline.startswith(begins)
    assert "smollm2-135m at k = 1" in headline
    assert headline.endswith(ends)


def test_the_fastest_drafter_speaks_for_all_and_the_number_tried_is_said():
    records = runs({"code": 0.5}) + runs({"code": 0.7}, LARGE)

    assert compose(records).headline.startswith(
        "Do not speculate here: with smollm2-360m at k = 1, the best of 2 drafters,"
    )


def test_k_is_chosen_by_prediction_so_that_noise_neither_flatters_nor_harms():
    """At k = 1 all rounds are alike; at k = 2 they are cheaper, but for one that was disturbed."""
    steady = made.run([RoundCount(1, 1, 2, 1)] * 3, SMALL, k=1)
    better = made.run([RoundCount(2, 2, 3, 2)] * 3, SMALL, k=2)
    *rounds, last = better.rounds
    disturbed = (*rounds, last.model_copy(update={"verify": 3.0}))

    report = compose([made.plain(), steady, better.model_copy(update={"rounds": disturbed})])

    assert "smollm2-135m at k = 2" in report.headline


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [
        ("do", "Speculation should pay: smollm2-135m at k = 3"),
        ("do not", "Do not speculate here: smollm2-135m at k = 3"),
        ("too noisy to say", "Too noisy to say: smollm2-135m at k = 3"),
    ],
)
def test_an_advice_is_the_headline_where_nothing_was_measured(verdict, begins):
    assert compose([made.advice(verdict=verdict), made.passes()]).headline.startswith(begins)


def test_near_ties_are_counted_apart():
    records = runs({"code": 2.0}, identical="near-tie") + runs({"prose": 2.0})

    report = compose(records)

    assert "Of 2 speculative runs, 1 wrote the very text of plain decoding; 1 parted from it" in (
        report.standfirst
    )


def test_a_better_guesser_that_is_slower_is_explained():
    records = [made.passes(), made.passes(SMALL), made.passes(LARGE)]
    records += [made.agreement(SMALL, "code", alpha=0.7), made.agreement(LARGE, "code", alpha=0.8)]

    [said] = section(compose(records), "drafts").points

    assert said.startswith("smollm2-360m guesses better than smollm2-135m (alpha 0.")


def test_nothing_is_explained_where_the_best_guesser_is_the_fastest():
    better = replace(SMALL, name="better")
    records = [made.passes(), made.passes(SMALL), made.passes(better)]
    records += [made.agreement(SMALL, "code", alpha=0.5), made.agreement(better, "code", alpha=0.9)]

    assert section(compose(records), "drafts").points == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target": "other"}, "differ in target (qwen2.5-coder-1.5b, other)"),
        ({"machine": "other"}, "differ in machine"),
        ({"threads": 1}, "differ in threads (4, 1)"),
        (
            {"settings": {"device": "cpu", "dtype": "float32"}},
            "differ in dtype (bfloat16, float32)",
        ),
    ],
)
def test_runs_that_may_not_be_compared_are_not_put_on_one_page(changed, said):
    other = made.plain(conditions=CONDITIONS.model_copy(update=changed))

    with pytest.raises(OptionError) as error:
        compose([made.plain(), other])

    assert said in str(error.value)


def test_the_text_shown_is_one_in_which_something_was_accepted():
    dull = runs({"code": 3.0}, pieces=(("ab", "plain"),))
    telling = runs({"prose": 2.0}, LARGE, pieces=(("a", "accepted"), ("b", "bonus")))

    text = section(compose([*dull, *telling]), "text")

    assert text.pieces == (("a", "accepted"), ("b", "bonus"))
    assert text.paragraphs[0].startswith("Written with smollm2-360m at k = 1")


def test_conditions_list_every_setting_of_the_draft():
    conditions = CONDITIONS.model_copy(update={"draft": {"draft_dtype": "float32"}})

    [table] = compose([made.plain(conditions=conditions)]).sections[-1].tables

    assert ("dtype", "bfloat16") in table.rows
    assert ("draft_dtype", "float32") in table.rows
    assert ("torch", "2.13.0") in table.rows
    assert ("runs recorded", "1") in table.rows
