"""The plots: matplotlib figures for a page, or to be saved as they are.

No pyplot, hence no state. Series differ by marker and dash as well as by colour (Okabe and Ito's palette,
2008). Every colour stands for one role, so that a page can put its own in their place.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from draftwise.core.estimates import spread
from draftwise.measure.records import PassesRecord
from draftwise.measure.summary import Timed
from draftwise.report.sweep import Sweep

INK, SOFT, RULE = "#1a1a1b", "#5f6369", "#d4d4d5"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
BLUE, RED, GREEN, *_ = SERIES
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_WIDTH, _FONT = 420, 12.5  # points, which are the pixels of an SVG


def verify_cost(records: Sequence[PassesRecord]) -> Figure:
    """What a target pass over n tokens costs against one over a single token, a line for each context."""
    figure, (axes,) = _figure(300)
    own = [record for record in records if record.drafter is None]
    for place, record in enumerate(own):
        lengths = sorted(record.samples_ms)
        one = median(record.samples_ms[lengths[0]])
        spreads = [spread(record.samples_ms[n]) for n in lengths]
        ratios = [s.median / one for s in spreads]
        axes.errorbar(
            lengths,
            ratios,
            yerr=[
                [(s.median - s.low) / one for s in spreads],
                [(s.high - s.median) / one for s in spreads],
            ],
            label=f"behind {record.context:,} tokens",
            elinewidth=1,
            **_style(place),
        )
    _at_one(axes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens in the pass")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(_TIMES)
    _head(axes, "time of a pass, against one token")
    return figure


def k_sweep(sweep: Sweep) -> Figure:
    """Both forces above, in plain passes: what a round brings and what it costs. Below, their ratio."""
    figure, (forces, gain) = _figure(500, rows=2)
    ks = [point.row.k for point in sweep.points]
    tokens = [point.tokens for point in sweep.points]
    costs = [point.cost for point in sweep.points]
    drafting = [point.drafting for point in sweep.points]
    forces.plot(ks, tokens, label="tokens", **_style(0))
    forces.plot(ks, costs, label="cost", **_style(1))
    forces.fill_between(ks, drafting, color=RED, alpha=0.22, lw=0, label="of it drafting")
    forces.set_ylim(bottom=0)
    _head(forces, "what a round brings and costs, in plain passes")

    gain.plot(ks, [point.predicted for point in sweep.points], color=GREEN, lw=2, label="predicted")
    if measured := [point.timed for point in sweep.points if point.timed]:
        gains = [row.speedup.median for row in measured]
        gain.errorbar(
            [row.k for row in measured],
            gains,
            yerr=_around(gains, measured),
            fmt="o",
            color=INK,
            label="measured, with its 95 % interval",
        )
    _at_one(gain)
    gain.margins(y=0.15)
    gain.set_xlabel("k, tokens drafted a round")
    gain.xaxis.set_major_locator(MaxNLocator(integer=True))
    gain.yaxis.set_major_formatter(_TIMES)
    _head(gain, "speed-up")
    return figure


def workloads(rows: Sequence[Timed]) -> Figure:
    """The speed-up on each workload: a mark for each drafter, with its interval, and a line at 1."""
    names = list(dict.fromkeys(row.workload for row in rows))
    drafters = list(dict.fromkeys(row.drafter for row in rows))
    figure, (axes,) = _figure(90 + len(names) * (22 + 16 * len(drafters)))
    for place, drafter in enumerate(drafters):
        own = [row for row in rows if row.drafter == drafter]
        offset = (place - (len(drafters) - 1) / 2) * 0.6 / len(drafters)
        heights = [names.index(row.workload) + offset for row in own]
        gains = [row.speedup.median for row in own]
        axes.errorbar(
            gains,
            heights,
            xerr=_around(gains, own),
            label=_literal(drafter),
            **_style(place, line=False),
        )
    axes.set_yticks(range(len(names)), list(map(_literal, names)))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.axvline(1, color=SOFT, lw=1.5)
    axes.grid(axis="x", color=RULE)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=INK)
    axes.xaxis.set_major_formatter(_TIMES)
    axes.set_xlabel("speed-up: left of 1x is slower")
    figure.legend(loc="outside upper left", **_keys(axes))
    return figure


def round_times(rows: Sequence[Timed]) -> Figure:
    """Where the time of a round goes, as stacked bars: a plain round first, which brings one token."""
    plain = rows[0]
    bars = [("plain, k = 0\n1 token", 0.0, plain.plain_ms, plain.plain_rest_ms)]
    bars += [
        (
            f"{_literal(row.drafter)}, k = {row.k}\n{row.rates.tokens_per_round or 0:.1f} tokens",
            row.draft_ms,
            row.verify_ms,
            row.rest_ms,
        )
        for row in rows
    ]
    figure, (axes,) = _figure(80 + 52 * len(bars))
    labels, *phases = zip(*bars, strict=True)
    left = [0.0] * len(bars)
    for name, color, widths in zip(
        ("draft", "verify", "rest"), (RED, BLUE, SERIES[4]), phases, strict=True
    ):
        axes.barh(range(len(bars)), widths, 0.5, left, color=color, label=name)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for height, total in enumerate(left):
        axes.annotate(
            f"{total:.0f} ms" if total >= 10 else f"{total:.1f} ms",
            (total, height),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=_FONT,
        )
    axes.set_yticks(range(len(bars)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.grid(axis="x", color=RULE)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xlabel("ms a round, medians")
    figure.legend(loc="outside upper left", **_keys(axes))
    return figure


_TIMES = FuncFormatter(lambda value, _: f"{value:g}x")


def _figure(height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure((_WIDTH / 72, height / 72), dpi=144, layout="constrained")
    axes = figure.subplots(rows, sharex=True, squeeze=False)[:, 0]
    for each in axes:
        each.patch.set_visible(False)
        each.spines[["top", "right", "left"]].set_visible(False)
        each.spines["bottom"].set_color(SOFT)
        each.grid(axis="y", color=RULE)
        each.set_axisbelow(True)
        each.tick_params(length=0, labelsize=_FONT, labelcolor=SOFT)
        each.xaxis.label.set(color=SOFT, fontsize=_FONT)
    return figure, list(axes)


def _literal(name: str) -> str:
    """A name as it reads: between dollars matplotlib would look for formulas."""
    return name.replace("$", r"\$")


def _style(place: int, *, line: bool = True) -> dict[str, Any]:
    return {
        "color": SERIES[place % len(SERIES)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "linestyle": _DASHES[place % len(_DASHES)] if line else "none",
        "linewidth": 2,
        "markersize": 5,
    }


def _head(axes: Axes, title: str) -> None:
    """Name the vertical axis above the plot, where it can be read, and what is drawn below the name."""
    legend = axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), **_keys(axes))
    lines = -(-len(legend.get_texts()) // _columns(axes))
    pad = 8 + 18 * lines
    axes.set_title(title, loc="left", fontsize=_FONT, color=INK, fontweight="bold", pad=pad)


def _keys(axes: Axes) -> dict[str, Any]:
    """How a legend looks: one row if there is room."""
    return {
        "ncols": _columns(axes),
        "borderaxespad": 0.1,
        "borderpad": 0.2,
        "frameon": False,
        "fontsize": _FONT,
        "labelcolor": INK,
        "handlelength": 2,
        "handletextpad": 0.5,
        "columnspacing": 1.2,
    }


def _columns(axes: Axes) -> int:
    labels = axes.get_legend_handles_labels()[1]
    return len(labels) if sum(map(len, labels)) + 6 * len(labels) < 56 else 1


def _at_one(axes: Axes) -> None:
    axes.axhline(1, color=SOFT, lw=1.5, zorder=1)


def _around(gains: Sequence[float], rows: Sequence[Timed]) -> list[list[float]]:
    """Error bars: how far the intervals reach below and above the speed-ups."""
    pairs = list(zip(gains, rows, strict=True))
    return [
        [max(gain - row.interval.low, 0) for gain, row in pairs],
        [max(row.interval.high - gain, 0) for gain, row in pairs],
    ]
