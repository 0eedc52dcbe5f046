"""From records to a report: which questions they answer, each with its words, plots and tables."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from draftwise.core.errors import OptionError
from draftwise.measure.explanations import explain
from draftwise.measure.recording import of_kind
from draftwise.measure.records import (
    AdviceRecord,
    AgreementRecord,
    AnyRecord,
    NestingRecord,
    PassesRecord,
    RunRecord,
)
from draftwise.measure.summary import ALL, Counted, Timed, best, counted, timed
from draftwise.report import charts, tables, words
from draftwise.report.parts import Chart, Listing, Report, Section, Table
from draftwise.report.showing import Showing, showings
from draftwise.report.sweep import Sweep, sweeps


def compose(records: Sequence[AnyRecord], title: str | None = None) -> Report:
    """Make a report of the records of one target on one machine; others are refused."""
    records = list(records)
    target = _one_target(records)
    runs, counts = timed(records), counted(records)
    best_counts = list(best(counts).values())
    tried = showings(runs)
    advice = of_kind(records, AdviceRecord)[-1:]
    sections = (
        *_bill(tried),
        *map(_advice, advice),
        *_sweeps(sweeps(counts, runs)),
        *_workloads(tried, best_counts),
        *_drafts(records, tried, best_counts),
        *_verify(of_kind(records, PassesRecord)),
        *_rounds(tried),
        *_text(records, tried),
        *map(_nesting, of_kind(records, NestingRecord)),
        _conditions(records),
    )
    return Report(
        title=title or f"Speculative decoding of {target}",
        headline=_headline(records, tried, best_counts),
        standfirst=_standfirst(records, runs),
        sections=_numbered(sections),
    )


def _one_target(records: Sequence[AnyRecord]) -> str:
    """The target. Runs that may not be compared with each other would make a page that misleads."""
    for name in ("target", "machine", "threads"):
        _refuse_several(name, [getattr(record.conditions, name) for record in records])
    texts = [r.conditions for r in records if isinstance(r, RunRecord | AgreementRecord)]
    for part in ("settings", "versions"):
        for name in dict.fromkeys(chain.from_iterable(getattr(c, part) for c in texts)):
            _refuse_several(name, [getattr(c, part).get(name) for c in texts])
    return records[0].conditions.target


def _refuse_several(name: str, values: Iterable[object]) -> None:
    found = dict.fromkeys(map(str, values))
    if len(found) > 1:
        raise OptionError(
            f"the records differ in {name} ({', '.join(found)}): make a page for each"
        )


def _headline(
    records: Sequence[AnyRecord], tried: Sequence[Showing], best_counts: Sequence[Counted]
) -> str:
    """Advice speaks first, since its few runs only check it; then what was measured, or predicted."""
    for record in reversed(records):
        if isinstance(record, AdviceRecord):
            return words.advised(record)
    if tried:
        return words.measured(tried)
    if over_all := [row for row in best_counts if row.workload == ALL]:
        return words.predicted(max(over_all, key=lambda row: row.speedup or 0))
    for record in records:
        if isinstance(record, PassesRecord) and record.drafter is None:
            return words.passes(record).removesuffix(".")
    return "What was recorded"


def _standfirst(records: Sequence[AnyRecord], runs: Sequence[Timed]) -> str:
    conditions = records[0].conditions
    where = f"{conditions.machine}, {words.counted(conditions.threads, 'thread')}."
    return f"{where} {words.proof(runs)}" if runs else where


def _bill(tried: Sequence[Showing]) -> Iterable[Section]:
    if tried:
        row = tried[0].best
        yield Section(
            "bill",
            "The bill",
            (
                f"{row.target} alone and with {row.drafter} at k = {row.k} on {row.workload}: "
                f"{words.counted(row.prompts, 'prompt')}, {words.counted(row.runs, 'run')}.",
            ),
            tables=tables.bill(row),
        )


def _sweeps(found: Sequence[Sweep]) -> Iterable[Section]:
    explained = (
        "A longer guess brings more tokens, but fewer of them survive, and drafting and checking it costs "
        "more. It pays where a round brings more tokens than it costs plain passes."
    )
    for sweep in found:
        said = words.sweep(sweep)
        yield Section(
            "k",
            f"How far ahead {sweep.drafter} should guess",
            (*([explained] if sweep is found[0] else []), words.by_position(sweep)),
            charts=(Chart(charts.k_sweep(sweep), f"On {sweep.workload}. {said}", said),),
            tables=(tables.sweep(sweep),),
        )


def _workloads(tried: Sequence[Showing], best_counts: Sequence[Counted]) -> Iterable[Section]:
    title = "Which text it suits"
    paragraph = "How often a draft is right depends on how predictable the text is."
    names = list(dict.fromkeys(row.workload for showing in tried for row in showing.rows))
    if len(names) > 1:
        rows = [
            row for name in names for each in tried for row in each.rows if row.workload == name
        ]
        chart = Chart(
            charts.workloads(rows),
            "Medians over runs and their 95 % intervals, prompts and rounds resampled.",
            words.gains(rows),
        )
        yield Section(
            "workloads", title, (paragraph,), charts=(chart,), tables=(tables.workloads(rows),)
        )
    elif not tried and len({row.workload for row in best_counts}) > 2:
        yield Section(
            "workloads", title, (paragraph,), tables=(tables.predicted_workloads(best_counts),)
        )


def _drafts(
    records: Sequence[AnyRecord], tried: Sequence[Showing], best_counts: Sequence[Counted]
) -> Iterable[Section]:
    over_all = [row for row in best_counts if row.workload == ALL]
    if len(over_all) > 1:
        yield Section(
            "drafts",
            "Which draft",
            points=tuple(explain(records, over_all)),
            tables=(tables.drafts(over_all, tried),),
        )


def _verify(records: Sequence[PassesRecord]) -> Iterable[Section]:
    own = sorted((r for r in records if r.drafter is None), key=lambda record: record.context)
    if own:
        said = tuple(map(words.passes, own))
        chart = Chart(
            charts.verify_cost(own),
            "Medians; half of the passes lie within the bars.",
            " ".join(said),
        )
        yield Section(
            "verify",
            "What checking costs",
            said,
            charts=(chart,),
            tables=tuple(map(tables.passes, own)),
        )


def _rounds(tried: Sequence[Showing]) -> Iterable[Section]:
    if tried:
        workload = tried[0].best.workload
        rows = [row for showing in tried for row in showing.rows if row.workload == workload]
        chart = Chart(charts.round_times(rows), f"On {workload}.", words.times_of_rounds(rows))
        yield Section(
            "round",
            "Where the time of a round goes",
            charts=(chart,),
            tables=(tables.rounds(rows),),
        )


def _text(records: Sequence[AnyRecord], tried: Sequence[Showing]) -> Iterable[Section]:
    """A text in which something was accepted, if there is one, by the best drafter on its best workload."""
    runs = [run for run in of_kind(list(records), RunRecord) if run.pieces and run.k]
    best_row = tried[0].best if tried else None
    key = best_row and (best_row.drafter, best_row.workload, best_row.k)
    run = max(
        runs,
        key=lambda run: (
            any(origin == "accepted" for _, origin in run.pieces),
            (run.drafter, run.prompt.workload, run.k) == key,
        ),
        default=None,
    )
    if run is not None:
        yield Section(
            "text",
            "Where each token came from",
            (
                f"Written with {run.drafter} at k = {run.k}, behind a prompt of {run.prompt.workload} "
                f"that begins: {run.prompt.text}",
            ),
            pieces=run.pieces,
        )


def _nesting(record: NestingRecord) -> Section:
    return Section(
        "nesting",
        "One pass answers every prefix",
        (words.nesting(record),),
        tables=(tables.nesting(record),),
    )


def _advice(record: AdviceRecord) -> Section:
    plain = (
        f"Plain decoding writes {tables.number(record.plain_tokens_per_second)} tokens a second."
    )
    return Section(
        "advice",
        "Advice",
        (f"{words.advised(record)}. {plain}",),
        (*record.reasons, *record.notes),
        tables=(tables.choices(record),) if record.choices else (),
        listings=tuple(Listing(name, text) for name, text in record.exports.items()),
    )


def _conditions(records: Sequence[AnyRecord]) -> Section:
    """All that took effect; where it changed between records, every value."""
    values: dict[str, dict[str, None]] = {}
    for conditions in (record.conditions for record in records):
        facts = {name: getattr(conditions, name) for name in ("target", "machine", "threads")}
        for part in (facts, conditions.settings, conditions.draft, conditions.versions):
            for name, value in part.items():
                values.setdefault(name, {})[str(value)] = None
    values["runs recorded"] = {str(len(of_kind(list(records), RunRecord))): None}
    rows = tuple((name, ", ".join(found)) for name, found in values.items())
    return Section(
        "conditions",
        "Conditions",
        tables=(Table("What took effect", ("", "value"), rows, labels=2),),
    )


def _numbered(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Ids are unique, also where two texts were nested."""
    seen: dict[str, int] = {}
    numbered = []
    for section in sections:
        seen[section.id] = times = seen.get(section.id, 0) + 1
        numbered.append(section if times == 1 else replace(section, id=f"{section.id}-{times}"))
    return tuple(numbered)
