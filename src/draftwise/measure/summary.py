"""What records amount to: the rows that terminal tables and the report are both made from.

Runs that were timed are compared with the plain runs beside them; runs that were only counted are
replayed from recorded agreement, and priced where passes were timed. Nothing is rendered here.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import TypeVar

from draftwise.core.costs import Costs, Curve
from draftwise.core.counters import Counters, Rates, RoundCount, rates
from draftwise.core.estimates import Interval, Spread, bootstrap, spread
from draftwise.core.theory import speedup_from_tokens
from draftwise.measure.recording import of_kind
from draftwise.measure.records import (
    PLAIN,
    AgreementRecord,
    AnyRecord,
    K,
    PassesRecord,
    RoundRecord,
    RunRecord,
)
from draftwise.measure.replay import replay

_RESAMPLES = 400
ALL = "all"
"""The workload of a row that holds every workload."""

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Timed:
    """Runs of one drafter at one k on one workload, against the plain runs beside them.

    counters, plain: added up over the runs. rates: over all rounds, from the medians of passes.
    speedup: of each run, plain seconds a token over speculative ones. interval: 95 % of its median, with
    prompts and the rounds within them resampled. predicted: the same from counts and medians of
    passes; None where nothing was drafted. draft_ms, verify_ms, rest_ms: medians of a round. plain_ms,
    plain_rest_ms: of a plain one, its pass and what is outside of it. identical, near_ties: how many
    runs were so.
    """

    target: str
    workload: str
    drafter: str
    k: K
    prompts: int
    runs: int
    counters: Counters
    plain: Counters
    rates: Rates
    speedup: Spread
    interval: Interval
    predicted: float | None
    tokens_per_second: Spread
    plain_tokens_per_second: Spread
    draft_ms: float
    verify_ms: float
    rest_ms: float
    plain_ms: float
    plain_rest_ms: float
    identical: int
    near_ties: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What one drafter would do at one k on one workload, counted from recorded agreement.

    speedup: predicted; None where the passes of target or drafter were not timed.
    """

    target: str
    workload: str
    drafter: str
    k: int
    prompts: int
    counters: Counters
    rates: Rates
    speedup: float | None


def timed(records: Sequence[AnyRecord]) -> list[Timed]:
    """Compare each run with the plain run of the same conditions, prompt and repeat.

    Runs without one are left out. Rows come in the order in which they first appear; conditions that are
    not alike have rows of their own.
    """
    runs = [run for run in of_kind(list(records), RunRecord) if run.seconds > 0]
    plain = {_beside(run): run for run in runs if run.drafter == PLAIN}
    pairs = [(run, plain[_beside(run)]) for run in runs if run.k and _beside(run) in plain]
    groups = _grouped(pairs, lambda pair: _row(pair[0]))
    return [_timed(group) for group in groups.values()]


def counted(records: Sequence[AnyRecord], ks: Sequence[int] | None = None) -> list[Counted]:
    """Count every drafter on every workload, and on all of them together, at each k that was recorded.

    ks: every k, if not named.
    """
    agreements = of_kind(list(records), AgreementRecord)
    if ks is None:
        ks = range(1, max((r.longest for r in agreements), default=0) + 1)
    rows = []
    for (_, drafter), own in _grouped(
        agreements, lambda record: (record.conditions.model_dump_json(), record.drafter)
    ).items():
        price = costs(records, own[0].conditions.target, drafter)
        workloads = _grouped(own, lambda record: record.prompt.workload) | {ALL: own}
        rows += [
            _counted(workload, group, k, price)
            for workload, group in workloads.items()
            for k in ks
            if k <= min(record.longest for record in group)
        ]
    return rows


def costs(records: Sequence[AnyRecord], target: str, drafter: str) -> Costs | None:
    """What the passes of a pair cost, behind the same context if it was timed; None if they were not."""
    own = [record for record in records if record.conditions.target == target]
    passes, runs = of_kind(own, PassesRecord), of_kind(own, RunRecord)
    # The last ones: another draft dtype, or another machine, may have come before under the same name.
    proposals = [record for record in passes if record.drafter == drafter][-1:]
    reads = [record for record in passes if record.drafter is None]
    if not proposals or not reads:
        return None
    propose = proposals[0]
    read = min(reads, key=lambda record: abs(record.context - propose.context))
    return Costs(
        Curve.of(read.samples_ms),
        Curve.of(propose.samples_ms),
        host=_rest_ms(run for run in runs if run.drafter == drafter),
        plain_host=_rest_ms(run for run in runs if run.drafter == PLAIN),
        change=read.change_ms or 0.0,
    )


def best(rows: Sequence[Counted]) -> dict[tuple[str, str], Counted]:
    """The row with the greatest predicted speed-up for each workload and drafter, the first on ties."""
    found: dict[tuple[str, str], Counted] = {}
    for row in rows:
        known = found.get((row.workload, row.drafter))
        if row.speedup is not None and (known is None or row.speedup > (known.speedup or 0)):
            found[row.workload, row.drafter] = row
    return found


def best_over_all(rows: Sequence[Counted]) -> list[Counted]:
    """Each drafter at the one k that promises most over all workloads."""
    return [row for (workload, _), row in best(rows).items() if workload == ALL]


def _beside(run: RunRecord) -> tuple[str, str, int, str]:
    return run.conditions.alike, run.prompt.sha256, run.repeat, run.group


def _row(run: RunRecord) -> tuple[str, str, str, K]:
    return run.conditions.model_dump_json(), run.prompt.workload, run.drafter, run.k


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _timed(pairs: list[tuple[RunRecord, RunRecord]]) -> Timed:
    runs, plain_runs = zip(*pairs, strict=True)
    first = runs[0]
    rounds, plain_rounds = _rounds(runs), _rounds(plain_runs)
    plain_ms = _median_ms([r.verify for r in plain_rounds])
    plain_rest_ms = _median_ms([r.rest for r in plain_rounds])
    verified = [r.verify for r in rounds if r.drafted]
    draft_pass = [r.draft / r.draft_passes for r in rounds if r.draft_passes]
    counters = _counters(runs)
    of_rounds = rates(
        counters,
        [r.count for r in rounds],
        target_ms=plain_ms,
        draft_ms=_median_ms(draft_pass) if draft_pass else None,
        verify_ms=_median_ms(verified) if verified else None,
    )
    by_prompt = _grouped(pairs, lambda pair: pair[0].prompt.sha256)
    return Timed(
        target=first.conditions.target,
        workload=first.prompt.workload,
        drafter=first.drafter,
        k=first.k,
        prompts=len(by_prompt),
        runs=len(runs),
        counters=counters,
        plain=_counters(plain_runs),
        rates=of_rounds,
        speedup=spread([_rate(run) / _rate(plain) for run, plain in pairs]),
        interval=_interval(list(by_prompt.values())),
        predicted=_predicted(rounds, of_rounds, plain_ms, plain_rest_ms),
        tokens_per_second=spread([_rate(run) for run in runs]),
        plain_tokens_per_second=spread([_rate(run) for run in plain_runs]),
        draft_ms=_median_ms([r.draft for r in rounds]),
        verify_ms=_median_ms([r.verify for r in rounds]),
        rest_ms=_median_ms([r.rest for r in rounds]),
        plain_ms=plain_ms,
        plain_rest_ms=plain_rest_ms,
        identical=sum(run.identical == "identical" for run in runs),
        near_ties=sum(run.identical == "near-tie" for run in runs),
    )


def _interval(prompts: Sequence[Sequence[tuple[RunRecord, RunRecord]]]) -> Interval:
    """95 % of the median speed-up: prompts drawn anew, and the rounds within each of their runs.

    Rounds too, since there are few prompts as a rule, and how well a text went is chance as well.
    """
    spent = [
        [tuple([(r.emitted, r.seconds) for r in run.rounds] for run in pair) for pair in own]
        for own in prompts
    ]

    def once(random: Random) -> float:
        return median(
            _drawn_rate(run, random) / _drawn_rate(plain, random)
            for own in random.choices(spent, k=len(spent))
            for run, plain in own
        )

    return bootstrap(once, seed=0, resamples=_RESAMPLES)


def _drawn_rate(rounds: list[tuple[int, float]], random: Random) -> float:
    drawn = random.choices(rounds, k=len(rounds))
    return sum(emitted for emitted, _ in drawn) / sum(seconds for _, seconds in drawn)


def _predicted(
    rounds: Sequence[RoundRecord], of_rounds: Rates, plain_ms: float, plain_rest_ms: float
) -> float | None:
    """Tokens a round over k c + v + o, times what a plain round is in plain passes.

    A round that drafted nothing verifies in a plain pass.
    """
    num, drafted = len(rounds), sum(r.drafted for r in rounds)
    if not drafted or not of_rounds.verify_overhead or not of_rounds.tokens_per_round:
        return None
    passes = sum(r.draft_passes for r in rounds)
    verified = sum(r.drafted > 0 for r in rounds)
    outside = sum(r.rest + (0.0 if r.draft_passes else r.draft) for r in rounds)
    over_passes = speedup_from_tokens(
        of_rounds.tokens_per_round,
        k=drafted / num,
        c=(of_rounds.cost_ratio or 0.0) * passes / drafted,
        v=(verified * of_rounds.verify_overhead + num - verified) / num,
        o=1000 * outside / num / plain_ms,
    )
    return over_passes * (1 + plain_rest_ms / plain_ms)


def _counted(
    workload: str, agreements: list[AgreementRecord], k: int, price: Costs | None
) -> Counted:
    first = agreements[0]
    rounds: list[RoundCount] = []
    for record in agreements:
        rounds += replay(record, k)
    counters = Counters.from_rounds(
        rounds, prompt_tokens=sum(record.prompt.tokens for record in agreements)
    )
    return Counted(
        target=first.conditions.target,
        workload=workload,
        drafter=first.drafter,
        k=k,
        prompts=len({record.prompt.sha256 for record in agreements}),
        counters=counters,
        rates=rates(
            counters,
            rounds,
            target_ms=price and price.read(1),
            draft_ms=price.propose(k) / k if price and k else None,
            verify_ms=price and price.read(k + 1),
        ),
        speedup=price.speedup(rounds) if price and rounds else None,
    )


def _rounds(runs: Iterable[RunRecord]) -> list[RoundRecord]:
    return [round_ for run in runs for round_ in run.rounds]


def _counters(runs: Sequence[RunRecord]) -> Counters:
    return Counters.from_rounds(
        [round_.count for round_ in _rounds(runs)],
        prompt_tokens=sum(run.prompt.tokens for run in runs),
    )


def _rate(run: RunRecord) -> float:
    """Tokens a second, prefill apart."""
    return len(run.token_ids) / run.seconds


def _rest_ms(runs: Iterable[RunRecord]) -> float:
    rounds = _rounds(runs)
    return _median_ms([r.rest for r in rounds]) if rounds else 0.0


def _median_ms(seconds: Sequence[float]) -> float:
    return 1000 * median(seconds)
