"""Why a better guesser can be the slower draft, and which draft waits for something else than memory."""

import pytest

from draftwise.measure.explanations import compared, explain, overheads
from draftwise.measure.summary import best_over_all, counted
from tests.report import made
from tests.report.made import ALPHAS, CONDITIONS, Drafter

SMALL, LARGE = Drafter("small", ms=45), Drafter("large", ms=110, better=0.04)


def agreements(*drafters):
    return [made.agreement(d, workload, i) for d in drafters for workload in ALPHAS for i in (0, 1)]


def rows(*drafters):
    """Each drafter at its best k, by recorded agreement and what its passes cost."""
    passes = [made.passes(), *map(made.passes, drafters)]
    return best_over_all(counted([*passes, *agreements(*drafters)], range(1, 17)))


def test_a_better_guesser_that_is_slower_is_explained_by_what_a_guess_costs():
    small, large = rows(SMALL, LARGE)
    assert large.rates.alpha > small.rates.alpha
    assert large.speedup < small.speedup
    for given in ([small, large], [large, small]):
        (line,) = compared(given)
        assert line.startswith("large guesses better than small (alpha ")
        assert f"is slower ({large.speedup:.2f}x against {small.speedup:.2f}x)" in line
        assert "costs 0.440 of a target pass, not 0.180" in line
        assert f"pays {large.k * 0.44:.2f} target passes for guessing" in line


def test_a_better_guesser_that_is_faster_needs_no_explanation():
    assert compared(rows(SMALL, Drafter("large", ms=46, better=0.1))) == []
    assert compared(rows(SMALL)) == []


def passes(weight_bytes, drafter=None):
    record = made.passes(drafter)
    conditions = CONDITIONS.model_copy(
        update={
            "settings": CONDITIONS.settings | {"weight_bytes": 1000},
            "draft": {"draft_weight_bytes": weight_bytes},
        }
    )
    return record.model_copy(update={"conditions": conditions})


def test_a_draft_whose_time_lags_behind_its_bytes_is_said_to_wait_for_overhead():
    (line,) = overheads([passes(1000), passes(30, SMALL)])
    assert "small has 0.030 of the target's bytes and takes 0.180 of its time (6.0 times" in line
    assert "something else than reading weights" in line


@pytest.mark.parametrize("drafter", [SMALL, LARGE])
def test_a_draft_whose_time_is_that_of_its_bytes_is_not_named(drafter):
    share = drafter.ms / made.read_ms(1)
    assert overheads([passes(1000), passes(int(1000 * share), drafter)]) == []
    assert overheads([passes(1000), passes(int(1000 * share / 1.4), drafter)]) == []
    assert len(overheads([passes(1000), passes(int(1000 * share / 1.6), drafter)])) == 1


def test_a_drafter_without_weights_has_no_overhead_to_name():
    assert overheads([passes(1000), made.passes(made.LOOKUP)]) == []
    assert overheads([passes(30, SMALL)]) == []  # and without its target nothing is known


def test_everything_is_explained_together():
    records = [passes(1000), passes(30, SMALL), passes(440, LARGE)]
    lines = explain(records, rows(SMALL, LARGE))
    assert [line.split()[0] for line in lines] == ["large", "small"]
