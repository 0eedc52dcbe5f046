"""The short measurements behind an advice, and the advice as a record.

What is measured is what `measure.bench` measures, less the sweeps: passes, what each drafter proposes on
the user's prompts, and one timed run of each drafter at its best k, which gives the host's time in a
round and checks the prediction by the clock.
"""

from dataclasses import dataclass
from typing import cast

from draftwise.core.errors import ModelError
from draftwise.core.timing import too_noisy
from draftwise.drafters.model import DraftModel
from draftwise.drafters.strings import StringDraft
from draftwise.measure.advice import MAX_K, Candidate, choose_k, decide
from draftwise.measure.bench import Bench
from draftwise.measure.exports import DraftKind, Setting, exports
from draftwise.measure.memory import memory_fit
from draftwise.measure.recording import of_kind
from draftwise.measure.records import (
    AdviceRecord,
    AgreementRecord,
    Choice,
    PassesRecord,
    Verdict,
)
from draftwise.measure.summary import costs, timed


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """What the user runs now: its name, and the tokens a second that it writes."""

    name: str
    tokens_per_second: float


def advise(bench: Bench, other: OtherEngine | None = None) -> AdviceRecord:
    """Decide from the records of a bench that has looked and timed."""
    candidates = [_candidate(bench, name) for name in bench.subject.drafters]
    choices = [choose_k(candidate, MAX_K) for candidate in candidates]
    read = candidates[0].read
    verdict, best, reasons = decide(choices, too_noisy(read.samples_ms))
    plain = 1000 / candidates[0].costs.plain_ms
    notes = [_memory(bench, best.drafter), *_checked(bench, choices)]
    if other is not None:
        notes.append(compared(other, plain, best, verdict))
    return AdviceRecord(
        conditions=bench.subject.conditions(),
        verdict=verdict,
        best=best,
        choices=tuple(choices),
        reasons=tuple(reasons),
        notes=tuple(notes),
        plain_tokens_per_second=plain,
        exports=exports(_setting(bench, best, verdict)),
    )


def compared(other: OtherEngine, plain: float, best: Choice, verdict: Verdict) -> str:
    """What the advice is worth beside the engine that the user has."""
    here = plain * (best.speedup if verdict == "do" else 1.0)
    how = f"with {best.drafter} at k = {best.k}" if verdict == "do" else "plainly"
    rate = f"{other.name} writes {other.tokens_per_second:.1f} tokens/s, draftwise {here:.1f} {how}"
    if other.tokens_per_second > here:
        return (
            f"{rate}: stay with {other.name}. If it reads its weights in fewer bits, plain decoding is "
            "cheap there and checking dear; try its own drafting with the settings below, and time it"
        )
    return f"{rate}: {here / other.tokens_per_second:.2f}x"


def _candidate(bench: Bench, name: str) -> Candidate:
    records = bench.records
    passes = {record.drafter: record for record in of_kind(records, PassesRecord)}
    price = costs(records, bench.subject.target.name, name)
    agreements = [r for r in of_kind(records, AgreementRecord) if r.drafter == name]
    if price is None or not agreements:
        raise ModelError(f"nothing was measured of {name}: measure before you ask for advice")
    asked = {reference.sha256 for reference in bench.references.values()}
    return Candidate(
        drafter=name,
        agreements=tuple(r for r in agreements if r.prompt.sha256 in asked),
        read=passes[None],
        propose=passes[name],
        host=price.host,
        plain_host=price.plain_host,
    )


def _checked(bench: Bench, choices: list[Choice]) -> list[str]:
    """What the clock said in the few runs that were made, beside the prediction for their counts."""
    chosen = {(choice.drafter, choice.k) for choice in choices}
    return [
        f"checked by the clock: {row.drafter} at k = {row.k} on {row.workload}: "
        f"{row.speedup.median:.2f}x in {row.runs} run{'s' * (row.runs > 1)}, "
        f"{row.predicted:.2f}x by its own counts; output {_proof(row.identical, row.runs)}"
        for row in timed(bench.records)
        if (row.drafter, row.k) in chosen and row.predicted is not None
    ]


def _proof(identical: int, runs: int) -> str:
    return "identical" if identical == runs else f"equal up to {runs - identical} near-tie(s)"


def _memory(bench: Bench, drafter: str) -> str:
    chosen = bench.subject.drafters[drafter]
    draft = chosen.runner if isinstance(chosen, DraftModel | StringDraft) else None
    context = bench.subject.runner.info.context_length or 4096
    return f"memory: {memory_fit(bench.subject.runner, draft, context)}"


def _setting(bench: Bench, best: Choice, verdict: Verdict) -> Setting:
    """What to run elsewhere: the best choice, or plain decoding where the advice is not "do"."""
    subject, pays = bench.subject, verdict == "do"
    drafter = subject.drafters[best.drafter]
    model = drafter.origin if isinstance(drafter, DraftModel | StringDraft) else None
    kind = drafter.name if drafter.name == "self" or model is None else model.source
    return Setting(
        target=subject.target.name,
        target_kind=subject.target.source,
        draft=drafter.name,
        draft_kind=cast(DraftKind, kind) if pays else "none",
        k=best.k if pays else 0,
        vocabulary=model.vocabulary if model else "same",
        dtype=str(subject.runner.info.dtype).removeprefix("torch."),
        device=str(subject.runner.info.device),
        temperature=subject.options.temperature,
    )
