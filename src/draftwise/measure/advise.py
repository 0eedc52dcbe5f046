"""The short measurements behind an advice, and the advice as a record.

What is measured is what `measure.bench` measures, less the sweeps: passes, what each drafter proposes on
the user's prompts, and one timed run of each drafter at its best k, which gives the host's time in a
round and checks the prediction by the clock.
"""

from dataclasses import dataclass, fields
from typing import cast

from draftwise.core.errors import OptionError
from draftwise.core.timing import too_noisy
from draftwise.drafters.model import DraftModel
from draftwise.drafters.strings import StringDraft
from draftwise.engine.options import GenerateOptions
from draftwise.measure.advice import Candidate, choose_k, decide
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
from draftwise.measure.subject import Subject
from draftwise.measure.summary import costs, counted, timed

_DEAR = 0.01
"""Of a target pass: what costs less decides nothing."""


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """What the user runs now: its name, and the tokens a second that it writes."""

    name: str
    tokens_per_second: float


def require_foreseeable(subject: Subject) -> None:
    """Refuse drafters whose proposals cannot be known from the text alone, before any work starts."""
    for name in subject.drafters:
        if not subject.foreseeable(name):
            raise OptionError(
                f"{name} cannot be foreseen, since it chooses by what it learns as it goes: ask about its "
                "parts, and time it with draftwise bench"
            )


def advise(bench: Bench, other: OtherEngine | None = None) -> AdviceRecord:
    """Decide from the records of a bench that has looked and timed."""
    candidates = [_candidate(bench, name) for name in bench.subject.drafters]
    choices = [choose_k(candidate) for candidate in candidates]
    read = candidates[0].read
    # A proposal that takes next to no time may be as noisy as it likes.
    dear = [c.propose for c in candidates if c.costs.c(1) > _DEAR]
    noisy = [too_noisy(record.samples_ms) for record in (read, *dear)]
    verdict, best, reasons = decide(choices, next(filter(None, noisy), None))
    plain = 1000 / candidates[0].costs.plain_ms
    notes = [_memory(bench, best.drafter), *_checked(bench, choices)]
    if verdict == "do" and best.drafter != "self" and bench.subject.passes_per_token(best.drafter):
        notes.append(
            f"not predicted, and as a rule no slower: --draft mixed:{best.drafter} -k auto, which takes the "
            "model or a copy round by round, and as many tokens as promise to pay"
        )
    if left_out := _not_exported(bench.subject.options):
        notes.append(
            f"the settings below leave out {', '.join(left_out)}: set them there as you set them here"
        )
    if other is not None and verdict != "too noisy to say":
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


def foretell(bench: Bench) -> dict[str, Choice]:
    """What each drafter promises at its best k, before anything is run by the clock."""
    return {name: choose_k(_candidate(bench, name)) for name in bench.subject.drafters}


def compared(other: OtherEngine, plain: float, best: Choice, verdict: Verdict) -> str:
    """What the advice is worth beside the engine that the user has."""
    here = plain * (best.speedup if verdict == "do" else 1.0)
    how = f"with {best.drafter} at k = {best.k}" if verdict == "do" else "plainly"
    rate = f"{other.name} writes {other.tokens_per_second:.1f} tokens/s, draftwise {here:.1f} {how}"
    if other.tokens_per_second > here:
        tried = (
            "; try its own drafting with the settings below, and time it" if verdict == "do" else ""
        )
        return (
            f"{rate}: stay with {other.name}. If it reads its weights in fewer bits, plain decoding is "
            f"cheap there and checking dear{tried}"
        )
    return f"{rate}: {here / other.tokens_per_second:.2f}x"


def _candidate(bench: Bench, name: str) -> Candidate:
    records = bench.records
    passes = {record.drafter: record for record in of_kind(records, PassesRecord)}
    price = costs(records, bench.subject.target.name, name)
    agreements = [r for r in of_kind(records, AgreementRecord) if r.drafter == name]
    if price is None or not agreements:
        raise ValueError(f"nothing was measured of {name}")
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
    """What the clock said of a text or two, beside what their counts foretold."""
    counts = {(c.workload, c.drafter, c.k): c.speedup for c in counted(bench.records)}
    chosen = {(choice.drafter, choice.k) for choice in choices}
    return [
        f"checked by the clock: {row.drafter} at k = {row.k} on {row.workload}: "
        f"{row.speedup.median:.2f}x ({row.interval.low:.2f} to {row.interval.high:.2f}) in {row.runs} "
        f"run{'s' * (row.runs > 1)}, foretold {told:.2f}x for that workload; "
        f"output {_proof(row.identical, row.runs)}"
        for row in timed(bench.records)
        if (row.drafter, row.k) in chosen
        and row.k != "auto"
        and (told := counts.get((row.workload, row.drafter, row.k))) is not None
    ]


def _proof(identical: int, runs: int) -> str:
    ties = runs - identical
    return f"equal up to {ties} near-tie{'s' * (ties > 1)}" if ties else "identical"


def _memory(bench: Bench, drafter: str) -> str:
    chosen = bench.subject.drafters[drafter]
    draft = chosen.runner if isinstance(chosen, DraftModel | StringDraft) else None
    context = bench.subject.runner.info.context_length or 4096
    return f"memory: {memory_fit(bench.subject.runner, draft, context)}"


def _not_exported(options: GenerateOptions) -> list[str]:
    """Options that change the text, are not the default, and are in no engine's settings."""
    exported = ("k", "rule", "tokens", "temperature", "seed")
    return [
        f.name
        for f in fields(options)
        if f.name not in exported and getattr(options, f.name) != f.default
    ]


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
