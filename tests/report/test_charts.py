"""Figures hold what was measured, and can be saved without a page."""

import pytest

from draftwise.measure.summary import counted, timed
from draftwise.report import charts
from draftwise.report.sweep import sweeps
from tests.report import made
from tests.report.made import LOOKUP, SMALL


@pytest.fixture(scope="module")
def rows():
    return timed(made.bench())


def test_a_figure_is_saved_as_it_is(tmp_path):
    for name in ("cost.png", "cost.svg", "cost.pdf"):
        charts.verify_cost([made.passes()]).savefig(tmp_path / name)

        assert (tmp_path / name).stat().st_size > 1000


def test_a_line_for_each_context_shows_passes_against_one_token():
    figure = charts.verify_cost([made.passes(), made.passes(context=1024), made.passes(SMALL)])

    lines = [container.lines[0] for container in figure.axes[0].containers]
    assert [list(line.get_ydata())[-1] for line in lines] == pytest.approx([538 / 250] * 2)
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 2


def test_a_sweep_draws_both_forces_and_the_measured_points(rows):
    [sweep] = sweeps(counted(made.bench((SMALL,)), range(1, 17)), timed(made.bench((SMALL,))))

    forces, gain = charts.k_sweep(sweep).axes

    tokens, cost = (list(line.get_ydata()) for line in forces.lines[:2])
    predicted = list(gain.lines[0].get_ydata())
    assert predicted == pytest.approx([a / b for a, b in zip(tokens, cost, strict=True)])
    assert cost == sorted(cost)
    assert list(gain.containers[0].lines[0].get_xdata()) == [1, 3, 5, 8, 16]
    assert [tick.get_text() for tick in gain.get_legend().get_texts()][-1].startswith("measured")


def test_workloads_are_marked_around_one(rows):
    shown = [row for row in rows if row.k == 5]

    axes = charts.workloads(shown).axes[0]

    assert [label.get_text() for label in axes.get_yticklabels()] == list(made.ALPHAS)
    assert [list(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "-"] == [
        [1, 1]
    ]
    first = next(row for row in shown if row.drafter == SMALL.name)
    assert axes.containers[0].lines[0].get_xdata()[0] == first.speedup.median


def test_bars_of_a_round_add_up(rows):
    shown = [row for row in rows if row.workload == "code"]

    axes = charts.round_times(shown).axes[0]

    ends = [bar.get_x() + bar.get_width() for bar in axes.containers[-1]]
    sums = [row.draft_ms + row.verify_ms + row.rest_ms for row in shown]
    assert ends == pytest.approx([shown[0].plain_ms + shown[0].plain_rest_ms, *sums])
    assert any(row.drafter == LOOKUP.name for row in shown)
