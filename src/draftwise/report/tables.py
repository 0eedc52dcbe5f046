"""Rows of a summary as tables of text. What is not known is a dash."""

from collections.abc import Sequence

from draftwise.core.estimates import spread
from draftwise.measure.records import AdviceRecord, Choice, NestingRecord, PassesRecord
from draftwise.measure.summary import Counted, Timed
from draftwise.report.parts import Table
from draftwise.report.showing import Showing
from draftwise.report.sweep import Point, Sweep

_Cells = tuple[str, int | str, float, float, float, float]


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many decimals."""
    return "-" if value is None else f"{round(value, digits) + 0.0:,.{digits}f}"  # never -0.00


def times(value: float | None) -> str:
    """A speed-up or another factor."""
    return "-" if value is None else f"{value:.2f}x"


def reach(row: Timed) -> str:
    """The interval of the speed-up."""
    return f"{row.interval.low:.2f} to {row.interval.high:.2f}"


def bill(row: Timed) -> tuple[Table, Table]:
    """Both runs side by side, and what follows from them."""
    plain, count, rates = row.plain, row.counters, row.rates
    draft_pass = None if rates.cost_ratio is None else rates.cost_ratio * row.plain_ms
    both = (
        ("tokens", f"{plain.emitted:,}", f"{count.emitted:,}"),
        (
            "tokens a second, median",
            number(row.plain_tokens_per_second.median),
            number(row.tokens_per_second.median),
        ),
        ("target passes", f"{plain.target_passes:,}", f"{count.target_passes:,}"),
        ("draft passes", "-", f"{count.draft_passes:,}"),
        ("ms a target pass", number(row.plain_ms), number(row.verify_ms)),
        ("ms a draft pass", "-", number(draft_pass)),
        ("ms a round outside of passes", number(row.plain_rest_ms), number(_outside(row))),
    )
    follows = (
        ("drafted", f"{count.drafted:,}"),
        ("accepted", f"{count.accepted:,}"),
        ("discarded", f"{count.discarded:,}"),
        ("alpha, of the examined", _alpha(row)),
        ("draft utilisation", number(rates.draft_utilisation, 3)),
        ("tokens a round", number(rates.tokens_per_round)),
        ("c, draft pass / plain pass", number(rates.cost_ratio, 3)),
        ("v, verify pass / plain pass", number(rates.verify_overhead, 3)),
        ("speed-up predicted", times(row.predicted)),
        ("speed-up measured", times(row.speedup.median)),
        ("its 95 % interval", reach(row)),
        ("identical to plain decoding", identical(row)),
    )
    return (
        Table("Both runs side by side", ("", "plain", "speculative"), both),
        Table("What follows", ("", "speculative"), follows),
    )


def identical(row: Timed) -> str:
    """How many runs gave the text of plain decoding."""
    ties = f", {row.near_ties} up to a near-tie" if row.near_ties else ""
    return f"{row.identical} of {row.runs} runs{ties}"


def sweep(found: Sweep) -> Table:
    """Every k of a sweep."""
    head = (
        *("k", "alpha", "tokens a round", "target passes", "draft passes", "discarded"),
        *("of drafted", "v(k+1)", "drafting", "round"),
        *("predicted", "measured", "95 % interval"),
    )
    caption = f"{found.drafter} on {found.workload}; drafting and round in plain passes"
    return Table(caption, head, tuple(map(_point, found.notable)), labels=0)


def workloads(rows: Sequence[Timed]) -> Table:
    """What was measured on each workload."""
    head = (
        *("workload", "drafter", "k", "alpha", "discarded", "of drafted", "plain tokens/s"),
        *("speculative tokens/s", "predicted", "measured", "95 % interval", "runs"),
    )
    return Table("Medians over runs", head, tuple(map(_workload, rows)), labels=2)


def predicted_workloads(rows: Sequence[Counted]) -> Table:
    """What was counted on each workload, each drafter at its best k."""
    head = ("workload", "drafter", "best k", "alpha", "tokens a round", "predicted")
    cells = tuple(
        (
            *(row.workload, row.drafter, str(row.k), number(row.rates.alpha, 3)),
            *(number(row.rates.tokens_per_round), times(row.speedup)),
        )
        for row in rows
    )
    return Table("Each drafter at its best k, counted from recorded agreement", head, cells, 2)


def drafts(best: Sequence[Counted], tried: Sequence[Showing]) -> Table:
    """Each drafter at the k that suits it over all workloads, and what was measured of it."""
    head = (
        *("drafter", "best k", "alpha", "c", "discarded", "of drafted", "tokens a round"),
        *("predicted", "measured", "over workloads"),
    )
    shown = {showing.drafter: showing for showing in tried}
    rows = tuple(_draft(row, shown.get(row.drafter)) for row in best)
    return Table("Over all workloads", head, rows)


def rounds(rows: Sequence[Timed]) -> Table:
    """Where the time of a round goes, and what that makes of a token."""
    head = ("", "k", "draft", "verify", "rest", "round", "tokens", "a token")
    plain = rows[0]
    cells: list[_Cells] = [("plain", 0, 0.0, plain.plain_ms, plain.plain_rest_ms, 1.0)]
    cells += [
        (r.drafter, r.k, r.draft_ms, r.verify_ms, r.rest_ms, r.rates.tokens_per_round or 0.0)
        for r in rows
    ]
    return Table("ms, medians over rounds", head, tuple(map(_round, cells)))


def passes(record: PassesRecord) -> Table:
    """What a pass over n tokens costs behind one context."""
    lengths = sorted(record.samples_ms)
    spreads = {n: spread(record.samples_ms[n]) for n in lengths}
    first = spreads[lengths[0]].median
    rows, before = [], None
    for n in lengths:
        now = spreads[n]
        marginal = (now.median - spreads[before].median) / (n - before) if before else None
        rows.append(
            (
                *(str(n), number(now.median), f"{now.low:,.2f} to {now.high:,.2f}"),
                *(times(now.median / first), number(marginal), str(now.runs)),
            )
        )
        before = n
    head = ("tokens", "ms a pass", "half of the passes", "against one", "ms a token more", "passes")
    return Table(f"Behind {record.context:,} tokens", head, tuple(rows), labels=0)


def nesting(record: NestingRecord) -> Table:
    """What one pass says behind every prefix, and what a pass of its own says."""
    return Table(
        "One pass over the whole text, and a pass of its own for each prefix",
        ("after", "one pass", "own pass", "they are", "difference"),
        tuple(
            (
                p.prefix,
                repr(p.token),
                repr(p.alone),
                "same" if p.same else "differs",
                f"{p.difference:.4f}",
            )
            for p in record.predictions
        ),
        labels=4,
    )


def choices(record: AdviceRecord) -> Table:
    """The best k of each drafter, the greatest speed-up first."""
    head = (
        *("drafter", "best k", "predicted", "95 % interval", "tokens a round", "alpha"),
        *("pays above alpha", "c", "v", "o"),
    )
    ordered = sorted(record.choices, key=lambda choice: -choice.speedup)
    return Table("What was weighed", head, tuple(map(_choice, ordered)))


def _choice(choice: Choice) -> tuple[str, ...]:
    never, alpha = choice.break_even_alpha is None, number(choice.break_even_alpha, 3)
    return (
        *(choice.drafter, str(choice.k), times(choice.speedup)),
        *(f"{choice.low:.2f} to {choice.high:.2f}", number(choice.tokens_per_round)),
        *(number(choice.alpha, 3), "never" if never else alpha),
        *(number(choice.c, 3), number(choice.v, 3), number(choice.o, 3)),
    )


def _outside(row: Timed) -> float:
    """What is not a pass, proposing included where no model drafts."""
    return row.rest_ms + (0.0 if row.counters.draft_passes else row.draft_ms)


def _alpha(row: Timed) -> str:
    rates = row.rates
    if rates.alpha is None:
        return number(None)
    return f"{rates.alpha:.3f} ({rates.alpha_low:.3f} to {rates.alpha_high:.3f})"


def _waste(row: Counted | Timed) -> tuple[str, str]:
    count = row.counters
    share = f"{count.discarded / count.drafted:.0%}" if count.drafted else number(None)
    return f"{count.discarded:,}", share


def _measured(row: Timed | None) -> tuple[str, str]:
    return (times(row.speedup.median), reach(row)) if row else (number(None), number(None))


def _point(point: Point) -> tuple[str, ...]:
    return (
        *(str(point.row.k), number(point.row.rates.alpha, 3), number(point.tokens)),
        f"{point.row.counters.target_passes:,}",
        f"{point.row.counters.draft_passes:,}",
        *_waste(point.row),
        number(point.row.rates.verify_overhead),
        *(number(point.drafting), number(point.cost), times(point.predicted)),
        *_measured(point.timed),
    )


def _workload(row: Timed) -> tuple[str, ...]:
    return (
        *(row.workload, row.drafter, str(row.k), number(row.rates.alpha, 3)),
        *_waste(row),
        *(number(row.plain_tokens_per_second.median), number(row.tokens_per_second.median)),
        *(times(row.predicted), *_measured(row), str(row.runs)),
    )


def _draft(row: Counted, shown: Showing | None) -> tuple[str, ...]:
    gains = [each.speedup.median for each in shown.rows] if shown else []
    return (
        *(row.drafter, str(row.k), number(row.rates.alpha, 3), number(row.rates.cost_ratio, 3)),
        *_waste(row),
        *(number(row.rates.tokens_per_round), times(row.speedup)),
        times(shown.speedup if shown else None),
        f"{min(gains):.2f} to {max(gains):.2f}" if gains else number(None),
    )


def _round(cells: _Cells) -> tuple[str, ...]:
    name, k, draft, verify, rest, tokens = cells
    total = draft + verify + rest
    return (
        *(name, str(k), number(draft), number(verify), number(rest), number(total)),
        *(number(tokens), number(total / tokens if tokens else None)),
    )
