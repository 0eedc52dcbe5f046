"""The essay's set: what to measure, and each of its claims beside what was measured here.

The essay ("LLM Inference: Speculative Decoding") ran Qwen2.5-7B-Instruct in fp16 on an M4 Pro, drafted
for by the 0.5B of its family, 64 tokens a text, greedy, medians of three. A claim is compared in kind,
not in number: other models on other hardware give other figures, and whether the *statement* holds is
what can be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwise.core.theory import ceiling
from draftwise.measure.bench import BenchPlan
from draftwise.measure.explanations import compared
from draftwise.measure.recording import of_kind
from draftwise.measure.records import AnyRecord, NestingRecord, PassesRecord
from draftwise.measure.summary import Timed, best_over_all, costs, counted, timed
from draftwise.measure.workloads import choose

TEXT = "The capital of France is Paris and it"
WORKLOADS = ("prose", "code", "repetition", "structured", "qa")
SWEEP, K, TOKENS, REPEATS = (1, 3, 5, 8, 12, 16), 5, 64, 3


def plan(repeats: int = REPEATS) -> BenchPlan:
    """One prompt a workload, as in the essay; a k sweep on prose, the others at k = 5."""
    return BenchPlan(
        prompts=tuple(choose(WORKLOADS, limit=1)),
        sweep=WORKLOADS[:1],
        ks=SWEEP,
        workload_ks=(K,),
        repeats=repeats,
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the essay, its figures, those measured here, and whether it holds here too.

    holds: None where it was not measured.
    """

    statement: str
    essay: str
    here: str
    holds: bool | None


def claims(records: Sequence[AnyRecord], drafter: str) -> list[Claim]:
    """Every claim, with `drafter` in the place of the essay's 0.5B."""
    rows = [row for row in timed(records) if row.drafter == drafter]
    sweep = {row.k: row for row in rows if row.workload == WORKLOADS[0] and row.k != "auto"}
    others = {row.workload: row for row in rows if row.k == K}
    return [
        *_nesting(records),
        *_checking(records, drafter),
        _identity(timed(records)),
        *(_at_five(sweep[K]) if K in sweep else ()),
        *(_further(sweep) if K in sweep and len(sweep) > 2 else ()),
        *(_texts(others) if len(others) > 2 else ()),
        *_drafts(records, drafter),
    ]


def _nesting(records: Sequence[AnyRecord]) -> list[Claim]:
    found = of_kind(list(records), NestingRecord)
    if not found:
        return []
    same = all(p.same for p in found[-1].predictions)
    return [
        Claim(
            "One pass over a text answers every prefix of it",
            "all predictions the same, largest difference 0.0000",
            f"{'all predictions the same' if same else 'a prediction differs'}, largest difference "
            f"{found[-1].largest_difference:.4f}",
            same,
        )
    ]


def _checking(records: Sequence[AnyRecord], drafter: str) -> list[Claim]:
    passes = next((r for r in of_kind(list(records), PassesRecord) if r.drafter is None), None)
    price = costs(records, passes.conditions.target, drafter) if passes else None
    if price is None:
        return []
    v = {n: price.v(n) for n in (8, 12, 16)}
    return [
        Claim(
            "Checking eight tokens costs little more than checking one",
            "1.15x",
            f"{v[8]:.2f}x",
            v[8] < 1.3,
        ),
        Claim(
            "Past eight tokens checking stops being nearly free",
            "12 tokens 1.71x, 16 tokens 2.00x",
            f"12 tokens {v[12]:.2f}x, 16 tokens {v[16]:.2f}x",
            v[16] > 1.3 * v[8],
        ),
    ]


def _identity(rows: Sequence[Timed]) -> Claim:
    runs, identical = sum(row.runs for row in rows), sum(row.identical for row in rows)
    ties = sum(row.near_ties for row in rows)
    return Claim(
        "The text is token for token that of the target alone",
        "every run",
        f"{identical} of {runs} runs"
        + (f"; {ties} part where rounding decides a near-tie of the target" if ties else ""),
        identical == runs or (None if identical + ties == runs else False) if runs else None,
    )


def _at_five(row: Timed) -> list[Claim]:
    count, runs = row.counters, row.runs
    alpha, use = row.rates.alpha or 0.0, row.rates.draft_utilisation or 0.0
    few = 0 < count.draft_passes <= K * count.rounds
    return [
        Claim(
            "Prose at k = 5 is written faster",
            "1.83x",
            f"{row.speedup.median:.2f}x ({row.interval.low:.2f} to {row.interval.high:.2f})",
            row.interval.low > 1,
        ),
        Claim(
            "The target runs a fraction of the times",
            "15 passes for 64 tokens",
            f"{count.target_passes / runs:.0f} passes for {count.emitted / runs:.0f} tokens",
            count.target_passes < count.emitted / 2,
        ),
        Claim(
            "The draft runs k + 1 times a round, once to read the correction",
            "90 passes in 15 rounds",
            f"{count.draft_passes / runs:.0f} passes in {count.rounds / runs:.0f} rounds"
            + (": a correction is read along with the first guess, in one pass" if few else ""),
            None if not count.draft_passes else not few,
        ),
        Claim(
            "The share of drafted tokens that is accepted is the chance that a guess is right",
            "54 of 75, 72 %",
            f"two numbers: {use:.0%} of the drafted are accepted (draft utilisation), and {alpha:.0%} of "
            "those that the target looked at (alpha); the essay's alpha lies between .78 and .92",
            abs(alpha - use) < 0.01 if row.rates.alpha is not None else None,
        ),
    ]


def _further(sweep: dict[int, Timed]) -> list[Claim]:
    fastest = max(sweep.values(), key=lambda row: row.speedup.median)
    first, last = sweep[min(sweep)], sweep[max(sweep)]
    share = [r.counters.discarded / max(r.counters.drafted, 1) for r in (first, last)]
    use, tau = sweep[K].rates.draft_utilisation or 0.0, last.rates.tokens_per_round or 0.0
    return [
        Claim(
            "There is a best k, and beyond it waste is bought, not speed",
            "k = 5; slower on both sides",
            f"k = {fastest.k} ({fastest.speedup.median:.2f}x); k = {first.k} {first.speedup.median:.2f}x, "
            f"k = {last.k} {last.speedup.median:.2f}x",
            last.interval.high < fastest.speedup.median,
        ),
        Claim(
            "Raising k lowers the target's passes less and less and discards more and more",
            "k = 16: 11 passes, 119 discarded",
            f"k = {last.k}: {last.counters.target_passes / last.runs:.0f} passes, "
            f"{last.counters.discarded / last.runs:.0f} discarded ({share[1]:.0%} of the drafted; at "
            f"k = {first.k} {share[0]:.0%})",
            share[1] > share[0],
        ),
        Claim(
            "1 / (1 - accepted / drafted at k = 5) is a ceiling of tokens a round for every k",
            "3.6; its own runs made 64 tokens in 15 rounds, 4.3, and in 11 rounds, 5.8",
            f"{ceiling(use) if use < 1 else float('inf'):.2f}, and k = {last.k} makes {tau:.2f}",
            use == 1 or tau <= ceiling(use),
        ),
    ]


def _texts(rows: dict[str, Timed]) -> list[Claim]:
    gains = {name: row.speedup.median for name, row in rows.items()}
    slowest, fastest = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
    made = [
        Claim(
            "The text alone moves the result a long way",
            "1.36x to 2.40x",
            f"{gains[slowest]:.2f}x ({slowest}) to {gains[fastest]:.2f}x ({fastest})",
            gains[fastest] > 1.2 * gains[slowest],
        )
    ]
    for workload, figure in (("code", "98 % of guesses right"), ("repetition", "100 %")):
        if workload in rows:
            alpha, prose = rows[workload].rates.alpha or 0.0, rows["prose"].rates.alpha or 0.0
            made.append(
                Claim(
                    f"Guesses on {workload} are right more often than on prose",
                    figure,
                    f"alpha {alpha:.3f}; on prose {prose:.3f}",
                    alpha > prose,
                )
            )
    return made


def _drafts(records: Sequence[AnyRecord], drafter: str) -> list[Claim]:
    rows = best_over_all(counted(records))
    own = next((row for row in rows if row.drafter == drafter), None)
    if own is None or own.rates.cost_ratio is None or own.rates.alpha is None:
        return []
    slower = compared(rows)
    shared = _shared_tokens(records, drafter)
    return [
        Claim(
            "The draft costs a fraction of the target, and acceptance exceeds it",
            "c = 0.17, 72 % against it",
            f"c = {own.rates.cost_ratio:.3f}, alpha = {own.rates.alpha:.3f}",
            own.rates.alpha > own.rates.cost_ratio,
        ),
        Claim(
            "A better guesser can be the slower draft",
            "1.5B: 78.6 % and 1.42x; 0.5B: 72.0 % and 1.84x",
            "; ".join(slower) if slower else "no two of the draft models compared show it",
            True if slower else None,
        ),
        Claim(
            "Draft and target must share a tokenizer",
            "GPT-2 cannot draft for Qwen",
            f"it can: {drafter} has another, and drafts among {shared:,} tokens that both have, exactly"
            if shared
            else "not tried: this draft shares its target's",
            False if shared else None,
        ),
    ]


def _shared_tokens(records: Sequence[AnyRecord], drafter: str) -> int | None:
    for record in of_kind(list(records), PassesRecord):
        shared = record.conditions.draft.get("shared_tokens")
        if record.drafter == drafter and isinstance(shared, int):
            return shared
    return None
