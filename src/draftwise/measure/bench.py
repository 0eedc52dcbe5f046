"""The bench: a k sweep and a workload sweep, counted for every k and timed for a few.

In order: the passes of the target and of each drafter; then each prompt's text, and what each drafter
proposes at every position of it, from which the rounds of every k are counted (`measure.replay`); then
runs by the clock, plain and speculative side by side, each proved against the plain one. Whatever the
recording has already, under the same conditions, is not done again.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Literal

from draftwise.core.errors import OptionError
from draftwise.core.noise import KeyedNoise
from draftwise.decoding.passes import time_proposals, time_reads
from draftwise.decoding.proof import Identity
from draftwise.decoding.run import Run
from draftwise.engine.calibration import shared_context
from draftwise.measure.agreement import foresee
from draftwise.measure.recording import Recording, of_kind
from draftwise.measure.records import (
    PLAIN,
    AgreementRecord,
    AnyRecord,
    Conditions,
    Identical,
    K,
    PassesRecord,
    PromptRef,
    RoundRecord,
    RunRecord,
)
from draftwise.measure.subject import Subject, Variant
from draftwise.measure.summary import best, costs, counted
from draftwise.measure.workloads import BenchPrompt

LONGEST = 16
"""Proposals are looked at up to this length, the essay's longest."""
READ_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17)
PROPOSAL_LENGTHS = (1, 2, 4, 8, 16)
_REPEATS = 8
_SPARE = (_REPEATS + 1) * len(PROPOSAL_LENGTHS) + max(READ_LENGTHS)
"""Tokens that timing needs beyond its context: each proposal goes on one token further."""

_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure.

    ks: timed on the workloads of `sweep`. workload_ks: timed on all others; "best" is the k that the
    counts say is best there, "auto" lets a lookahead choose. repeats: timed runs of each prompt and
    variant.
    """

    prompts: tuple[BenchPrompt, ...]
    sweep: tuple[str, ...] = ()
    ks: tuple[int, ...] = (1, 3, 5, 8, 16)
    workload_ks: tuple[K | Literal["best"], ...] = ("auto",)
    repeats: int = 1

    def __post_init__(self) -> None:
        if not self.prompts:
            raise OptionError("there are no prompts to measure")
        for k in (*self.ks, *self.workload_ks):
            if isinstance(k, int) and not 1 <= k <= LONGEST:
                raise OptionError(f"k is {k}: a bench takes 1 to {LONGEST}")
        for workload in self.sweep:
            if workload not in {prompt.workload for prompt in self.prompts}:
                raise OptionError(f"there is no prompt of the workload {workload} to sweep k on")
        if self.repeats < 1:
            raise OptionError(f"repeats is {self.repeats}: give 1 or more")


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of work: what it is, and roughly how many tokens the target has to write for it."""

    what: str
    weight: int
    work: Callable[[], None]


class Bench:
    """Carries out a plan on a subject. `steps` says what is left to do, and is made anew as it goes."""

    def __init__(self, subject: Subject, plan: BenchPlan, recording: Recording) -> None:
        self.subject, self.plan, self.recording = subject, plan, recording
        self._conditions = {name: subject.conditions(name) for name in (PLAIN, *subject.drafters)}
        self._alike = self._conditions[PLAIN].alike
        self.references = {prompt: subject.reference(prompt) for prompt in plan.prompts}
        self._warm: set[Variant] = set()
        self._current: list[AnyRecord] = []
        self._looked_at = 0

    def look(self) -> Iterator[Step]:
        """What counts: passes, texts, and what is proposed at every position of them."""
        if not self._is_timed(None):
            yield Step("timing passes of the target", 100, self._time_target)
        for name in self._foreseen:
            if not self._is_timed(name):
                yield Step(f"timing {name}", 30, partial(self._time_drafter, name))
        for prompt in self.plan.prompts:
            missing = [n for n in self._foreseen if not self._is_counted(prompt, n)]
            if missing:
                tokens = 0 if self._written(prompt) else self.subject.options.tokens
                yield Step(
                    f"counting {prompt.workload} {prompt.index + 1}",
                    tokens + 10 * len(missing),
                    partial(self._count, prompt, missing),
                )

    def time(self) -> Iterator[Step]:
        """What is done by the clock. Which k is timed may follow from what was counted: look first."""
        for repeat in range(self.plan.repeats):
            for prompt in self.plan.prompts:
                variants = [
                    v for v in self._variants(prompt) if self._num_runs(prompt, v) <= repeat
                ]
                if variants:
                    yield Step(
                        f"timing {prompt.workload} {prompt.index + 1}",
                        self.subject.options.tokens * (1 + len(variants)),
                        partial(self._time, prompt, variants),
                    )

    def _time_target(self) -> None:
        context, subject = self._context(), self.subject
        samples = time_reads(
            subject.runner,
            self._text(),
            context,
            READ_LENGTHS,
            repeats=_REPEATS,
            clock=subject.clock,
        )
        self.recording.add(
            PassesRecord(conditions=self._conditions[PLAIN], context=context, samples_ms=samples)
        )

    def _time_drafter(self, name: str) -> None:
        context, subject = self._context(), self.subject
        request = subject.request(self.plan.prompts[0])
        samples = time_proposals(
            subject.drafters[name],
            self._text(),
            context,
            PROPOSAL_LENGTHS,
            sampling=request.sampler.start(request.prompt),
            randomness=KeyedNoise(request.seed),
            repeats=_REPEATS,
            clock=subject.clock,
            context_length=shared_context(subject.runner, subject.drafters[name]),
        )
        self.recording.add(
            PassesRecord(
                conditions=self._conditions[name],
                drafter=name,
                context=context,
                samples_ms=samples,
            )
        )

    def _count(self, prompt: BenchPrompt, drafters: Sequence[str]) -> None:
        """Have the text written, unless it is known, and ask each drafter about it."""
        written = self._written(prompt)
        if written is None:
            written = tuple(self.subject.write(prompt).token_ids)
        request = self.subject.request(prompt)
        for name in drafters:
            foresight = foresee(self.subject.session(name), request, written, LONGEST)
            self.recording.add(
                AgreementRecord(
                    conditions=self._conditions[name],
                    drafter=name,
                    prompt=self.references[prompt],
                    seed=request.seed,
                    token_ids=written,
                    max_tokens=request.token_limit,
                    foresight=foresight,
                    longest=LONGEST,
                    passes_per_token=self.subject.passes_per_token(name),
                )
            )

    def _time(self, prompt: BenchPrompt, variants: Sequence[Variant]) -> None:
        """Time variants beside plain decoding, as the next repeat of this prompt."""
        for name in self._foreseen:
            if known := costs(self.records, self.subject.target.name, name):
                self.subject.known_costs[name] = known
        cold = [variant for variant in variants if variant not in self._warm]
        if cold:
            self.subject.side_by_side(prompt, cold, tokens=_WARM_UP_TOKENS)
            self._warm |= set(cold)
        used = [run.repeat for run in self._runs(prompt)]
        repeat = max(used, default=-1) + 1
        results = self.subject.side_by_side(prompt, variants)
        group = _name_of(results[PLAIN, 0][0])
        self.recording.add(
            *(
                run_record(
                    run,
                    identity,
                    conditions=self._conditions[name],
                    drafter=name,
                    k=k,
                    prompt=self.references[prompt],
                    repeat=repeat,
                    group=group,
                )
                for (name, k), (run, identity) in results.items()
            )
        )

    def check(self, variants: Sequence[Variant]) -> Iterator[Step]:
        """One run of each variant on the first prompt, beside a plain one."""
        prompt = self.plan.prompts[0]
        missing = [variant for variant in variants if not self._num_runs(prompt, variant)]
        if missing:
            yield Step(
                f"checking on {prompt.workload}",
                self.subject.options.tokens * (1 + len(missing)),
                partial(self._time, prompt, missing),
            )

    def _variants(self, prompt: BenchPrompt) -> list[Variant]:
        """What is timed on a prompt beside plain decoding."""
        sweep = prompt.workload in self.plan.sweep
        ks = (*self.plan.ks, *self.plan.workload_ks) if sweep else self.plan.workload_ks
        chosen = best(counted(self.records, range(1, LONGEST + 1))) if "best" in ks else {}

        def settled(asked: K | Literal["best"], name: str) -> K:
            """What was not counted has no best k, and chooses for itself."""
            if asked != "best":
                return asked
            row = chosen.get((prompt.workload, name))
            return row.k if row else "auto"

        return list(dict.fromkeys((n, settled(k, n)) for k in ks for n in self.subject.drafters))

    @property
    def _foreseen(self) -> list[str]:
        """The drafters whose rounds can be counted from their proposals."""
        return [name for name in self.subject.drafters if self.subject.foreseeable(name)]

    @property
    def records(self) -> list[AnyRecord]:
        """The records that were made under these conditions."""
        for record in self.recording.records[self._looked_at :]:
            if self._is_current(record):
                self._current.append(record)
        self._looked_at = len(self.recording.records)
        return self._current

    def _is_current(self, record: AnyRecord) -> bool:
        """Whether a record was made under these conditions, the drafter's own included."""
        own = self._conditions.get(getattr(record, "drafter", None) or PLAIN)
        return record.conditions.alike == self._alike and own in (None, record.conditions)

    def _is_timed(self, drafter: str | None) -> bool:
        passes, context = of_kind(self.records, PassesRecord), self._context()
        return any(r.drafter == drafter and context / 2 <= r.context <= 2 * context for r in passes)

    def _is_counted(self, prompt: BenchPrompt, drafter: str) -> bool:
        return any(r.drafter == drafter for r in self._agreements(prompt))

    def _written(self, prompt: BenchPrompt) -> tuple[int, ...] | None:
        """The target's answer, if it is known."""
        return next((r.token_ids for r in self._agreements(prompt)), None)

    def _agreements(self, prompt: BenchPrompt) -> list[AgreementRecord]:
        found = of_kind(self.records, AgreementRecord)
        return [r for r in found if r.prompt.sha256 == self.references[prompt].sha256]

    def _runs(self, prompt: BenchPrompt) -> list[RunRecord]:
        found = of_kind(self.records, RunRecord)
        return [r for r in found if r.prompt.sha256 == self.references[prompt].sha256]

    def _num_runs(self, prompt: BenchPrompt, variant: Variant) -> int:
        """Runs of a variant that have their plain run beside them."""
        runs = self._runs(prompt)
        plain = {r.repeat for r in runs if r.drafter == PLAIN}
        return sum((r.drafter, r.k) == variant and r.repeat in plain for r in runs)

    def _text(self) -> list[int]:
        """Real text to time passes on: the prompts themselves."""
        return [
            token for prompt in self.plan.prompts for token in self.subject.request(prompt).prompt
        ]

    def _context(self) -> int:
        """About the middle of a usual text, as far as target and drafters can hold it."""
        usual = median(reference.tokens for reference in self.references.values())
        middle = int(usual) + self.subject.options.tokens // 2
        drafters = self.subject.drafters.values()
        limits = [shared_context(self.subject.runner, drafter) for drafter in drafters]
        room = min((limit for limit in limits if limit is not None), default=middle + _SPARE)
        return max(1, min(middle, room - _SPARE))


def _name_of(plain: Run) -> str:
    """A name that no other group has: of what its plain run took, to the last digit."""
    spent = repr([round_.times for round_ in plain.rounds])
    return hashlib.sha256(spent.encode()).hexdigest()[:12]


def run_record(
    run: Run,
    identity: Identity | None,
    *,
    conditions: Conditions,
    drafter: str,
    k: K,
    prompt: PromptRef,
    repeat: int,
    group: str,
) -> RunRecord:
    """A finished run as a record."""
    return RunRecord(
        conditions=conditions,
        drafter=drafter,
        k=k,
        prompt=prompt,
        repeat=repeat,
        group=group,
        seed=run.request.seed,
        token_ids=tuple(run.token_ids),
        finish_reason=run.rounds[-1].finish_reason or "length",
        prefill=run.times.prefill,
        rounds=tuple(
            RoundRecord(
                **asdict(round_.count),
                draft=round_.times.draft,
                verify=round_.times.verify,
                rest=round_.times.rest,
            )
            for round_ in run.rounds
        ),
        pieces=tuple(
            (text, origin.value) for round_ in run.rounds for text, origin in round_.segments
        ),
        identical=_identical(identity),
        partings=tuple(map(str, identity.partings)) if identity else (),
    )


def _identical(identity: Identity | None) -> Identical:
    if identity is None:
        return "not compared"
    return "identical" if identity.identical else "near-tie"
