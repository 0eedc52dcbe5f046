"""What came out, in sentences: the verdict, and what each plot shows. A loss is said like a gain."""

from collections.abc import Sequence
from itertools import takewhile
from statistics import median

from draftwise.measure.records import AdviceRecord, NestingRecord, PassesRecord
from draftwise.measure.summary import Counted, Timed
from draftwise.report.showing import Showing
from draftwise.report.sweep import Sweep
from draftwise.report.tables import number, reach, times


def measured(tried: Sequence[Showing]) -> str:
    """The verdict on the fastest of the drafters that were tried."""
    rows = tried[0].rows
    target, with_it = rows[0].target, f"{rows[0].drafter} at k = {_ks(rows)}"
    faster = [row.workload for row in rows if row.interval.low > 1]
    slower = [row.workload for row in rows if row.interval.high < 1]
    unclear = [row.workload for row in rows if row.workload not in (*faster, *slower)]
    gain = _range([row.speedup.median for row in rows])
    where = f" on {rows[0].workload}" if len(rows) == 1 else ", depending on the text"
    if len(faster) == len(rows):
        return f"Speculation pays: {with_it} makes {target} {gain} as fast{where}"
    if len(slower) == len(rows):
        best_of = f", the best of {len(tried)} drafters," if len(tried) > 1 else ""
        return (
            f"Do not speculate here: with {with_it}{best_of} {target} runs at {gain} its plain speed"
            + where
        )
    if len(unclear) == len(rows):
        return f"Too close to say: with {with_it} {target} runs at {gain} its plain speed{where}"
    said = (("faster", faster), ("slower", slower), ("too close to say", unclear))
    parts = ", ".join(f"{what} on {_list(names)}" for what, names in said if names)
    return f"It depends on the text: with {with_it} {target} is {parts} ({gain})"


def advised(record: AdviceRecord) -> str:
    """The verdict of an advice."""
    best, target = record.best, record.conditions.target
    gain = (
        f"{best.drafter} at k = {best.k} is predicted to make {target} {times(best.speedup)} as fast "
        f"({best.low:.2f} to {best.high:.2f})"
    )
    verdicts = {"do": "Speculation should pay", "do not": "Do not speculate here"}
    return f"{verdicts.get(record.verdict, record.verdict.capitalize())}: {gain}"


def predicted(row: Counted) -> str:
    """The verdict on the best of what was counted."""
    gain = f"{row.drafter} at k = {row.k} is predicted to make {row.target} {times(row.speedup)} as fast"
    return (
        f"Speculation should pay: {gain}"
        if (row.speedup or 0) > 1
        else f"Do not speculate here: at best, {gain}"
    )


def by_position(found: Sweep) -> str:
    """Acceptance at each place of a proposal, at the longest k: the force that lets long guesses fail."""
    shares = found.points[-1].row.rates.acceptance_by_position
    told = ", ".join(f"{share:.2f}" for share in takewhile(lambda share: share is not None, shares))
    return f"Accepted at each position, where all before it were: {told}."


def proof(timed: Sequence[Timed]) -> str:
    """How many runs wrote the text of plain decoding."""
    runs, same = sum(row.runs for row in timed), sum(row.identical for row in timed)
    ties = sum(row.near_ties for row in timed)
    apart = f"; {ties} parted from it at a near-tie, where rounding decides between two tokens"
    return (
        f"Of {counted(runs, 'speculative run')}, {same} wrote the very text of plain decoding"
        f"{apart if ties else ''}."
    )


def counted(num: int, name: str) -> str:
    """How many of what."""
    return f"{num:,} {name}{'' if num == 1 else 's'}"


def passes(record: PassesRecord) -> str:
    """What the longest pass costs against the shortest."""
    costs = {n: median(samples) for n, samples in record.samples_ms.items()}
    first, last = min(costs), max(costs)
    return (
        f"Behind {record.context:,} tokens, a pass over {counted(last, 'token')} takes "
        f"{number(costs[last])} ms, and one over {counted(first, 'token')} {number(costs[first])} ms: "
        f"{times(costs[last] / costs[first])}."
    )


def sweep(found: Sweep) -> str:
    """Where both forces cross, in numbers."""
    first, last, best = found.points[0], found.points[-1], found.best
    return (
        f"From k = {first.row.k} to {last.row.k}, a round goes from {number(first.tokens)} tokens to "
        f"{number(last.tokens)}, and its cost from {number(first.cost)} plain passes to "
        f"{number(last.cost)}. The ratio is best at k = {best.row.k}: {times(best.predicted)} predicted"
        + (f", {times(best.timed.speedup.median)} measured." if best.timed else ".")
    )


def gains(rows: Sequence[Timed]) -> str:
    """All speed-ups of a plot."""
    each = "; ".join(
        f"{row.workload} with {row.drafter} {times(row.speedup.median)} ({reach(row)})"
        for row in rows
    )
    return f"Speed-ups with their 95 % intervals: {each}."


def times_of_rounds(rows: Sequence[Timed]) -> str:
    """Where the time goes, in numbers."""
    plain = rows[0]
    each = "; ".join(
        f"{row.drafter} at k = {row.k}: draft {number(row.draft_ms)} ms, verify "
        f"{number(row.verify_ms)} ms, rest {number(row.rest_ms)} ms"
        for row in rows
    )
    return f"A plain round takes {number(plain.plain_ms + plain.plain_rest_ms)} ms. {each}."


def nesting(record: NestingRecord) -> str:
    """The largest differences of both tables."""
    differing = sum(not p.same for p in record.predictions)
    said = f"{differing} of them differ from" if differing else "all of them the same as"
    return (
        f"{len(record.predictions)} predictions from one pass, {said} those from passes of their own; the "
        f"largest difference between logits is {record.largest_difference:.4f}. With the text cut to its "
        f"first {record.shortened} tokens it is {record.shortened_difference:.4f}."
    )


def _range(values: Sequence[float]) -> str:
    low, high = times(min(values)), times(max(values))
    return low if low == high else f"{low} to {high}"


def _ks(rows: Sequence[Timed]) -> str:
    found = {row.k for row in rows}
    numbers = sorted(k for k in found if k != "auto")
    return _list([*map(str, numbers), *(["auto"] if "auto" in found else [])])


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
