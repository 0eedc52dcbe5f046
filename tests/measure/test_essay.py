"""Every claim of the essay holds on records in which it holds, and does not on records in which not."""

from itertools import count

import pytest

from draftwise.core.counters import RoundCount
from draftwise.measure.essay import SWEEP, WORKLOADS, K, claims, plan
from tests.report import made
from tests.report.made import CONDITIONS, LOOKUP, SMALL, Drafter

LARGE = Drafter("large", ms=150, better=0.04)


def holds(records, statement, drafter=SMALL):
    """Whether a claim holds, by how it begins; and what is said of it."""
    (found,) = [c for c in claims(records, drafter.name) if c.statement.startswith(statement)]
    return found.holds, found.here


def timed(accepted, k=K, workload="prose", num=12, passes=None, repeat=0, drafter=SMALL, **given):
    """A run whose rounds accept so many of k tokens, and a plain one beside it."""
    counts = [RoundCount(k, n, n + 1, k if passes is None else passes) for n in [accepted] * num]
    where = {"workload": workload, "repeat": repeat}
    tokens = num * (accepted + 1)
    return [made.plain(tokens, **where), made.run(counts, drafter, k, **where, **given)]


def sweep(accepted, passes=None):
    """A k sweep on prose; accepted: by k, at most k."""
    repeats = count()
    return [
        record
        for k, n in accepted.items()
        for record in timed(n, k, num=6, passes=passes, repeat=next(repeats))
    ]


SATURATES = {1: 1, 3: 2, 5: 3, 8: 3, 16: 3}
PERFECT = {k: k for k in (1, 3, 5, 8, 16)}


def reading(cost):
    """The target reads n tokens at this cost, and the draft writes one in 45 ms."""
    record = made.passes()
    return [
        record.model_copy(
            update={"samples_ms": {n: (float(cost(n)),) * 3 for n in record.samples_ms}}
        ),
        made.passes(SMALL),
    ]


def test_one_pass_answers_every_prefix():
    nested = made.nesting()
    assert holds([nested], "One pass over a text")[0] is True
    first, *rest = nested.predictions
    differing = first.model_copy(update={"same": False, "difference": 3.5})
    altered = nested.model_copy(update={"predictions": (differing, *rest)})
    assert holds([altered], "One pass over a text") == (
        False, "a prediction differs, largest difference 3.5000",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "eight", "past_eight"),
    [
        (lambda n: 250 if n <= 8 else 250 + 60 * (n - 8), True, True),
        (lambda n: 250 if n <= 8 else 300, True, False),
        (lambda n: 100 * n, False, True),
        (lambda n: 100 if n == 1 else 300, False, False),
    ],
)
def test_checking_eight_tokens_is_cheap_and_more_is_not(cost, eight, past_eight):
    records = reading(cost)
    assert holds(records, "Checking eight tokens")[0] is eight
    assert holds(records, "Past eight tokens")[0] is past_eight


def test_the_text_is_that_of_the_target_alone():
    assert holds(timed(3), "The text is token for token") == (True, "1 of 1 runs")
    tie = timed(3, identical="near-tie", repeat=1)
    held, said = holds([*timed(3), *tie], "The text is token for token")
    assert held is None  # equal up to a near-tie is not token for token
    assert said.startswith("1 of 2 runs; 1 part where rounding decides")
    assert holds(timed(3, identical="not compared"), "The text is")[0] is False
    assert holds([made.nesting()], "The text is") == (None, "0 of 0 runs")


def test_prose_is_written_faster():
    assert holds(timed(4), "Prose at k = 5")[0] is True
    held, said = holds(timed(0), "Prose at k = 5")
    assert held is False
    assert said.startswith("0.53x")  # a plain round of 254 ms, and one of 5 x 45 + 250 + 4


def test_the_target_runs_a_fraction_of_the_times():
    assert holds(timed(3), "The target runs") == (True, "12 passes for 48 tokens")
    assert holds(timed(1), "The target runs") == (False, "12 passes for 24 tokens")


def test_the_draft_reads_the_correction_along_with_its_first_guess():
    assert holds(timed(3), "The draft runs k + 1 times")[0] is False
    assert holds(timed(3, passes=6), "The draft runs k + 1 times")[0] is True


def test_the_share_of_accepted_tokens_is_not_alpha_unless_nothing_goes_unexamined():
    held, said = holds(timed(3), "The share of drafted tokens")
    assert held is False
    assert "60% of the drafted are accepted (draft utilisation), and 75% of those" in said
    assert holds(timed(5), "The share of drafted tokens")[0] is True


def test_there_is_a_best_k_and_a_ceiling_that_is_none():
    held, said = holds(sweep(SATURATES), "There is a best k")
    assert held is True
    assert said.startswith("k = 5 (")
    assert holds(sweep(PERFECT), "There is a best k")[0] is False
    held, said = holds(sweep(SATURATES), "Raising k lowers")
    assert held is True
    assert "k = 16: 6 passes, 78 discarded (81% of the drafted; at k = 1 0%)" in said
    assert holds(sweep(PERFECT), "Raising k lowers")[0] is False
    assert holds(sweep(PERFECT), "1 / (1 - accepted / drafted")[0] is True
    high = SATURATES | {16: 12}
    assert holds(sweep(high), "1 / (1 - accepted / drafted") == (
        False, "2.50, and k = 16 makes 13.00",
    )  # fmt: skip


def test_a_drafter_that_never_had_anything_to_propose_is_judged_too():
    silent = [
        record
        for repeat, k in enumerate((1, 5, 16))
        for record in (
            made.plain(9, workload="prose", repeat=repeat),
            made.run([RoundCount(0, 0, 1)] * 9, LOOKUP, k, workload="prose", repeat=repeat),
        )
    ]
    for statement in ("Prose at k = 5", "Raising k lowers", "The target runs"):
        assert holds(silent, statement, LOOKUP)[0] is False


def texts(prose, code, repetition):
    return [
        *timed(prose),
        *timed(code, workload="code"),
        *timed(repetition, workload="repetition"),
    ]


def test_the_text_alone_moves_the_result():
    held, said = holds(texts(1, 4, 5), "The text alone")
    assert held is True
    assert "(prose) to" in said
    assert said.endswith("(repetition)")
    assert holds(texts(3, 3, 3), "The text alone")[0] is False


@pytest.mark.parametrize("workload", ["code", "repetition"])
def test_some_texts_are_easier_to_guess_than_prose(workload):
    assert holds(texts(1, 4, 4), f"Guesses on {workload}")[0] is True
    assert holds(texts(4, 1, 1), f"Guesses on {workload}")[0] is False


def agreements(*drafters, alpha=None):
    return [made.agreement(d, workload, alpha=alpha) for d in drafters for workload in made.ALPHAS]


def test_acceptance_exceeds_the_cost_of_a_guess():
    records = [*reading(made.read_ms), *agreements(SMALL, alpha=0.6)]
    held, said = holds(records, "The draft costs a fraction")
    assert held is True
    assert said.startswith("c = 0.183, alpha = 0.6")  # behind a context; plainly 45 / 250
    hopeless = [*reading(made.read_ms), *agreements(SMALL, alpha=0.05)]
    assert holds(hopeless, "The draft costs a fraction")[0] is False


def test_a_better_guesser_can_be_the_slower_draft():
    records = [*reading(made.read_ms), made.passes(LARGE), *agreements(SMALL, LARGE)]
    held, said = holds(records, "A better guesser")
    assert held is True
    assert said.startswith("large guesses better than smollm2-135m")
    assert holds([*reading(made.read_ms), *agreements(SMALL)], "A better guesser")[0] is None


def test_draft_and_target_need_not_share_a_tokenizer():
    target, draft = reading(made.read_ms)
    foreign = CONDITIONS.model_copy(update={"draft": {"shared_tokens": 39237}})
    records = [target, draft.model_copy(update={"conditions": foreign}), *agreements(SMALL)]
    held, said = holds(records, "Draft and target must share")
    assert held is False
    assert f"{SMALL.name} has another, and drafts among 39,237 tokens" in said
    assert holds([target, draft, *agreements(SMALL)], "Draft and target must share")[0] is None


def test_a_whole_set_judges_every_claim_once_and_what_was_not_measured_is_not_judged():
    whole = [
        made.nesting(),
        *reading(made.read_ms),
        *sweep(SATURATES),
        *timed(4, workload="code"),
        *timed(5, workload="repetition"),
        *agreements(SMALL),
    ]
    statements = [claim.statement for claim in claims(whole, SMALL.name)]
    assert len(statements) == len(set(statements)) == 17
    assert [claim.holds for claim in claims([], SMALL.name)] == [None]
    assert len(claims(whole, "another")) == 2  # nesting and identity are no drafter's


def test_the_plan_is_that_of_the_essay():
    planned = plan()
    assert [prompt.workload for prompt in planned.prompts] == list(WORKLOADS)
    assert (planned.sweep, planned.ks, planned.workload_ks) == (("prose",), SWEEP, (5,))
    assert planned.repeats == 3
