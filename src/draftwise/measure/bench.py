"""The bench: a k sweep and a workload sweep, counted for every k and timed for a few.

In order: the passes of the target and of each drafter; then each prompt's text, and what each drafter
proposes at every position of it, from which the rounds of every k are counted (`measure.replay`); then
runs by the clock, plain and speculative side by side, each proved against the plain one. Whatever the
recording has already, under the same conditions, is not done again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from draftwise.core.errors import OptionError
from draftwise.core.lookahead import LONGEST
from draftwise.core.noise import KeyedNoise
from draftwise.decoding.passes import time_change, time_proposals, time_reads
from draftwise.engine.calibration import shared_context
from draftwise.measure.agreement import foresee
from draftwise.measure.finished import group_name, run_record
from draftwise.measure.known import Known
from draftwise.measure.recording import Recording
from draftwise.measure.records import PLAIN, AgreementRecord, AnyRecord, K, PassesRecord
from draftwise.measure.subject import Subject, Variant
from draftwise.measure.summary import Counted, best, costs, counted
from draftwise.measure.workloads import BenchPrompt

READ_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17)
PROPOSAL_LENGTHS = (1, 2, 4, 8, 16)
CHANGED_LENGTHS = (1, 6)
_REPEATS = 8
_SPARE = (_REPEATS + 1) * len(PROPOSAL_LENGTHS) + max(READ_LENGTHS)
"""Tokens that timing needs beyond its context: each proposal goes on one token further."""

_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure.

    ks: timed on the workloads of `sweep`. workload_ks: timed on all; "best" is the k that the
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
    """Carries out a plan on a subject, in steps: `look`, then `time`. What is recorded is no step."""

    def __init__(self, subject: Subject, plan: BenchPlan, recording: Recording) -> None:
        self.subject, self.plan, self.recording = subject, plan, recording
        self._conditions = {name: subject.conditions(name) for name in (PLAIN, *subject.drafters)}
        self.references = {prompt: subject.reference(prompt) for prompt in plan.prompts}
        self._warm: set[Variant] = set()
        self._known = Known(recording, self._conditions)

    def look(self) -> Iterator[Step]:
        """What counts: passes, texts, and what is proposed at every position of them."""
        if not self._known.timed(None, self._context()):
            yield Step("timing passes of the target", 100, self._time_target)
        for name in self._foreseen:
            if not self._known.timed(name, self._context()):
                yield Step(f"timing {name}", 30, partial(self._time_drafter, name))
        for prompt in self.plan.prompts:
            missing = [
                n for n in self._foreseen if not self._known.counted(self.references[prompt], n)
            ]
            if missing:
                tokens = (
                    0 if self._known.text(self.references[prompt]) else self.subject.options.tokens
                )
                yield Step(
                    f"counting {prompt.workload} {prompt.index + 1}",
                    tokens + 10 * len(missing),
                    partial(self._count, prompt, missing),
                )

    def time(self) -> Iterator[Step]:
        """What is done by the clock. Which k is timed may follow from what was counted: look first."""
        chosen = best(counted(self.records)) if "best" in self.plan.workload_ks else {}
        for repeat in range(self.plan.repeats):
            for prompt in self.plan.prompts:
                asked = self._variants(prompt, chosen)
                variants = [
                    v for v in asked if self._known.num_runs(self.references[prompt], v) <= repeat
                ]
                if variants:
                    yield Step(
                        f"timing {prompt.workload} {prompt.index + 1}",
                        self.subject.options.tokens * (1 + len(variants)),
                        partial(self._time, prompt, variants),
                    )

    def _time_target(self) -> None:
        context, text, clock = self._context(), self._text(), self.subject.clock
        runner = self.subject.runner
        samples = time_reads(runner, text, context, READ_LENGTHS, repeats=_REPEATS, clock=clock)
        change = time_change(runner, text, context, CHANGED_LENGTHS, repeats=_REPEATS, clock=clock)
        self.recording.add(
            PassesRecord(
                conditions=self._conditions[PLAIN],
                context=context,
                samples_ms=samples,
                change_ms=change,
            )
        )

    def _time_drafter(self, name: str) -> None:
        context, subject = self._context(), self.subject
        request = subject.request(self.plan.prompts[0])
        samples = time_proposals(
            subject.runner,
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
        written = self._known.text(self.references[prompt])
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
        used = [run.repeat for run in self._known.runs(self.references[prompt])]
        repeat = max(used, default=-1) + 1
        results = self.subject.side_by_side(prompt, variants)
        group = group_name(results[PLAIN, 0][0])
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
        missing = [
            variant
            for variant in variants
            if not self._known.num_runs(self.references[prompt], variant)
        ]
        if missing:
            yield Step(
                f"checking on {prompt.workload}",
                self.subject.options.tokens * (1 + len(missing)),
                partial(self._time, prompt, missing),
            )

    def _variants(
        self, prompt: BenchPrompt, chosen: Mapping[tuple[str, str], Counted]
    ) -> list[Variant]:
        """What is timed on a prompt beside plain decoding. chosen: the best k by workload and drafter."""
        sweep = prompt.workload in self.plan.sweep
        ks = (*self.plan.ks, *self.plan.workload_ks) if sweep else self.plan.workload_ks

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
        return self._known.records

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
