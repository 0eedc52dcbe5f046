"""Why one draft is faster than another, in words, from the numbers alone."""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from draftwise.measure.recording import of_kind
from draftwise.measure.records import AnyRecord, PassesRecord
from draftwise.measure.summary import Counted

LAGS = 1.5
"""A draft pass whose time exceeds what its bytes explain by this much does something else than read."""


def explain(records: Sequence[AnyRecord], rows: Sequence[Counted]) -> list[str]:
    """Everything that can be said of these drafters; see `compared` and `overheads`."""
    return [*compared(rows), *overheads(records)]


def compared(rows: Sequence[Counted]) -> list[str]:
    """Explain each pair of draft models in which the better guesser costs more, and is slower.

    rows: one for each drafter, at its best k on the same texts. Drafters that copy are left out: they do
    not guess at every position, so their alpha is of another kind.
    """
    models = [row for row in rows if row.counters.draft_passes]
    lines = []
    for one, other in combinations(models, 2):
        better, worse = (one, other) if _alpha(one) >= _alpha(other) else (other, one)
        if _c(better) > _c(worse) and (better.speedup or 0) < (worse.speedup or 0):
            lines.append(_better_is_slower(better, worse))
    return lines


def overheads(records: Sequence[AnyRecord]) -> list[str]:
    """Name every draft model whose time lags behind its bytes: it waits for something else.

    A pass of one token reads all weights once. Where a draft has a tenth of the target's bytes and takes
    a third of its time, the rest is spent on starting its many small operations: launch overhead.
    """
    passes = of_kind(list(records), PassesRecord)
    target = next((r for r in passes if r.drafter is None), None)
    if target is None:
        return []
    found = (_overhead(target, record) for record in passes if record.drafter is not None)
    return [line for line in found if line]


def _better_is_slower(better: Counted, worse: Counted) -> str:
    return (
        f"{better.drafter} guesses better than {worse.drafter} (alpha {_alpha(better):.2f} against "
        f"{_alpha(worse):.2f}) and is slower ({better.speedup:.2f}x against {worse.speedup:.2f}x): a "
        f"guess of its costs {_c(better):.3f} of a target pass, not {_c(worse):.3f}. At k = {better.k} a "
        f"round pays {better.k * _c(better):.2f} target passes for guessing and makes "
        f"{_tau(better):.2f} tokens; {worse.drafter} at k = {worse.k} pays {worse.k * _c(worse):.2f} for "
        f"{_tau(worse):.2f}"
    )


def _overhead(target: PassesRecord, draft: PassesRecord) -> str | None:
    bytes_of_draft = draft.conditions.draft.get("draft_weight_bytes")
    bytes_of_target = target.conditions.settings.get("weight_bytes")
    if not isinstance(bytes_of_draft, int) or not isinstance(bytes_of_target, int):
        return None
    by_bytes = bytes_of_draft / bytes_of_target
    lengths = sorted(draft.samples_ms)
    n = lengths[-1]
    by_time = median(draft.samples_ms[n]) / n / median(target.samples_ms[1])
    if by_time < LAGS * by_bytes:
        return None
    return (
        f"{draft.drafter} has {by_bytes:.3f} of the target's bytes and takes {by_time:.3f} of its time "
        f"({by_time / by_bytes:.1f} times as much): the rest is spent on something else than reading "
        "weights, such as starting many small operations, which a smaller draft would not reduce"
    )


def _alpha(row: Counted) -> float:
    return row.rates.alpha or 0.0


def _c(row: Counted) -> float:
    return row.rates.cost_ratio or 0.0


def _tau(row: Counted) -> float:
    return row.rates.tokens_per_round or 0.0
