"""How a result looks in a terminal: the proof in a sentence, the bill as a table."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from draftwise.decoding.proof import Identity
from draftwise.decoding.round import Origin
from draftwise.engine.result import Measured, Result
from draftwise.engine.settings import in_words

STYLES = {
    Origin.ACCEPTED: "green",
    Origin.CORRECTION: "bold magenta",
    Origin.BONUS: "bold cyan",
    Origin.PLAIN: "",
}


def legend() -> Text:
    """Which colour means what."""
    parts = [(f"{origin.value} ", STYLES[origin]) for origin in Origin if STYLES[origin]]
    return Text.assemble(*parts)


def proof(result: Result) -> Text:
    """Say what was proved, and no more."""
    identity = result.identity
    if result.baseline is None or (identity is None and _promises_text(result)):
        return Text("not compared: no plain run was made to its end", style="yellow")
    if identity is None:
        rule = result.settings["rule"]
        return Text(
            f"not compared: rule {rule} keeps the law of the text, not the text itself",
            style="yellow",
        )
    if identity.identical:
        return Text(
            f"identical: all {identity.tokens} tokens are those of plain decoding", style="green"
        )
    return _partings(identity)


def _promises_text(result: Result) -> bool:
    """Whether the rule promises the very text, so that only an interrupt leaves it unproved."""
    return result.settings["rule"] == "match" or not result.settings["temperature"]


def bill(result: Result) -> RenderableType:
    """The bill: both runs side by side, then what follows from them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column()
    table.add_column("plain", justify="right")
    table.add_column("speculative", justify="right")
    plain, run = result.baseline, result.run
    for name, value in _RUN_ROWS:
        table.add_row(name, value(plain) if plain else "-", value(run))
    return Group(table, Text(), _rates(result), *_footer(result))


def _rates(result: Result) -> Table:
    rates, speedup, counters = result.rates, result.speedup, result.counters
    interval = ""
    if rates.alpha is not None:
        interval = f"  ({rates.alpha_low:.3f} to {rates.alpha_high:.3f})"
    rows = [
        ("drafted", str(counters.drafted)),
        ("accepted", str(counters.accepted)),
        ("discarded", str(counters.discarded)),
        ("alpha, of the examined", _number(rates.alpha, 3) + interval),
        ("draft utilisation", _number(rates.draft_utilisation, 3)),
        ("tokens a round", _number(rates.tokens_per_round, 2)),
        ("c, draft pass / plain pass", _number(rates.cost_ratio, 3)),
        ("v, verify pass / plain pass", _number(rates.verify_overhead, 3)),
        ("speed-up predicted", _times(speedup.predicted if speedup else None)),
        ("speed-up measured", _times(speedup.measured if speedup else None)),
    ]
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows:
        table.add_row(name, value, style="bold" if name == "speed-up measured" else None)
    return table


_RUN_ROWS = [
    ("tokens", lambda run: str(run.counters.emitted)),
    ("tokens/s", lambda run: _number(run.tokens_per_second, 2)),
    ("rounds", lambda run: str(run.counters.rounds)),
    ("target passes", lambda run: str(run.counters.target_passes)),
    ("draft passes", lambda run: str(run.counters.draft_passes)),
    ("ms a target pass", lambda run: _number(run.pass_ms.verify, 2)),
    ("ms a draft pass", lambda run: _number(run.pass_ms.draft, 2)),
    ("ms a round outside of passes", lambda run: _number(_outside(run), 2)),
    ("prefill ms (not in tokens/s)", lambda run: _number(1000 * run.times.prefill, 0)),
]


def _outside(run: Measured) -> float | None:
    """What is not a pass: sampling, rules, text, and proposing where no model drafts."""
    seconds = run.times.rest + (0.0 if run.counters.draft_passes else run.times.draft)
    return 1000 * seconds / run.counters.rounds if run.counters.rounds else None


def _footer(result: Result) -> list[Text]:
    settings, versions = result.settings, result.versions
    where = in_words(settings, settings["threads"], settings["machine"])
    return [
        Text(),
        *(Text(f"note: {note}", style="yellow") for note in result.notes),
        Text(
            f"{settings['target']} with {settings['draft']}, k = {settings['k']}; {where}; "
            + ", ".join(f"{name} {number}" for name, number in versions.items()),
            style="dim",
        ),
    ]


def _partings(identity: Identity) -> Text:
    lines = [str(parting) for parting in identity.partings]
    if identity.fault:
        return Text("\n".join(["NOT IDENTICAL", *lines]), style="bold red")
    first = (
        f"equal up to {len(lines)} near-tie{'s' * (len(lines) > 1)}, where rounding decides between two "
        "tokens; plain decoding from there on gives the same text"
    )
    return Text("\n".join([first, *lines]), style="yellow")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
