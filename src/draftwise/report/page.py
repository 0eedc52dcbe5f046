"""A report as one HTML page: no script, no request, plots within it, colours that follow the reader's."""

import io
import re
import warnings

import matplotlib
from jinja2 import Environment, PackageLoader, StrictUndefined

from draftwise.report import charts
from draftwise.report.parts import Chart, Report

_ROLES = {charts.INK: "ink", charts.SOFT: "soft", charts.RULE: "rule"} | {
    color: f"series-{place}" for place, color in enumerate(charts.SERIES, start=1)
}


def html(report: Report) -> str:
    """The page. Text from records is escaped, whatever it holds."""
    environment = Environment(
        loader=PackageLoader("draftwise.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kept"] = _kept
    return environment.get_template("page.html.j2").render(report=report, svg=_svg)


def _kept(text: str) -> str:
    """Keep "k = 5" on one line."""
    return text.replace("k = ", "k\u00a0=\u00a0")


def _svg(chart: Chart, name: str) -> str:
    """A plot as an element. name: makes its ids differ from those of other plots."""
    drawn = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        # The letters are the reader's fonts', not those that matplotlib measures with.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        chart.figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    svg = drawn.getvalue()
    head, body = svg[svg.index("<svg") :].split(">", 1)
    view = " ".join(re.findall(r'viewBox="[^"]+"', head))
    used = set(re.findall(r"#([\w-]+)", body))  # of the other ids, every plot has the same
    body = re.sub(r' id="([^"]+)"', lambda id_: id_[0] if id_[1] in used else "", body)
    for color, role in _ROLES.items():
        body = body.replace(color, f"var(--{role})")
    return f'<svg {view} aria-hidden="true">{body}'
