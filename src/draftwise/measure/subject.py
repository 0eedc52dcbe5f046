"""What is measured: a target, loaded once, and any number of drafters for it."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Literal

from draftwise.core.clock import Clock, SystemClock
from draftwise.core.closing import Closing
from draftwise.core.costs import Costs
from draftwise.core.errors import FaultError, OptionError
from draftwise.core.lookahead import CostRule
from draftwise.decoding.generation import Request
from draftwise.decoding.proof import Identity, Replays, prove
from draftwise.decoding.run import Run, keep_pace
from draftwise.drafters.drafter import Drafter, DraftSession
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel
from draftwise.drafters.strings import StringDraft
from draftwise.engine.calibration import calibrate
from draftwise.engine.load import load_drafter, load_runner
from draftwise.engine.options import GenerateOptions, ModelOptions
from draftwise.engine.pairing import vocabulary_of
from draftwise.engine.request import RequestMaker
from draftwise.engine.result import finite
from draftwise.engine.settings import draft_settings
from draftwise.measure.conditions import conditions
from draftwise.measure.records import PLAIN, Conditions, K, PromptRef
from draftwise.measure.workloads import BenchPrompt
from draftwise.models.loading import LoadedModel
from draftwise.models.row import Row
from draftwise.models.runner import Runner

Variant = tuple[str, K]
"""A drafter's name and its k; (PLAIN, 0) is plain decoding."""

_BEGINNING = 60


class Subject(Closing):
    """A target with its drafters, and how they are asked to write. A context manager.

    options: how to write and sample; its k and its rule are not looked at: each measurement has a k of
    its own, and only under the match rule is the text the same at every k.
    """

    def __init__(
        self,
        target: LoadedModel,
        runner: Runner,
        drafters: Sequence[Drafter],
        options: GenerateOptions,
        clock: Clock | None = None,
    ) -> None:
        names = [drafter.name for drafter in drafters]
        if len(set(names)) < len(names):
            raise OptionError(f"the same drafter is named twice among {', '.join(names)}")
        self.target, self.runner = target, runner
        self.drafters = {drafter.name: drafter for drafter in drafters}
        self.options = replace(options, rule="match", seed=options.seed or 0)
        self.clock = clock or SystemClock()
        self._requests = RequestMaker(
            target, vocabulary_of(target, runner).size, runner.info.context_length
        )
        self.known_costs: dict[str, Costs] = {}
        self._sessions = {name: drafter.open() for name, drafter in self.drafters.items()}

    def close(self) -> None:
        """Give back what the sessions hold."""
        for session in self._sessions.values():
            session.close()

    def session(self, drafter: str) -> DraftSession:
        """The drafter's session that is kept from text to text."""
        return self._sessions[drafter]

    def passes_per_token(self, drafter: str) -> Literal[0, 1]:
        """Whether a drafted token costs a pass of a model."""
        return 1 if isinstance(self.drafters[drafter], DraftModel | StringDraft) else 0

    def foreseeable(self, drafter: str) -> bool:
        """Whether its proposals follow from the text alone, and not from the rounds before them."""
        return not isinstance(self.drafters[drafter], Mixed)

    def costs(self, drafter: str) -> Costs:
        """What passes cost: as told by whoever measured, or measured in a quarter of a minute."""
        if drafter not in self.known_costs:
            chosen = self.drafters[drafter]
            mixed = chosen.costs if isinstance(chosen, Mixed) else None
            self.known_costs[drafter] = mixed or calibrate(self.target, self.runner, chosen)
        return self.known_costs[drafter]

    def request(
        self, prompt: BenchPrompt, variant: Variant = (PLAIN, 0), tokens: int | None = None
    ) -> Request:
        """What to write, and how. tokens: most of them, if not as many as the options say."""
        drafter, k = variant
        tokens = self.options.tokens if tokens is None else tokens
        options = replace(
            self.options, k=k, tokens=tokens, min_tokens=min(self.options.min_tokens, tokens)
        )
        return self._requests.make(
            prompt.prompt,
            options,
            usual_k=0 if drafter == PLAIN else self.drafters[drafter].usual_k,
            adapts=False,
            lookahead=lambda prompt: CostRule(self.costs(drafter), prompt=prompt),
            keep_evidence=True,
        )

    def reference(self, prompt: BenchPrompt) -> PromptRef:
        """The prompt as records name it."""
        ids = self.request(prompt).prompt
        text = prompt.prompt if isinstance(prompt.prompt, str) else prompt.prompt[-1].content
        return PromptRef(
            workload=prompt.workload,
            index=prompt.index,
            sha256=PromptRef.digest(ids),
            tokens=len(ids),
            text=text[:_BEGINNING],
        )

    def conditions(self, drafter: str | None = None) -> Conditions:
        """What takes effect, with a drafter or plainly."""
        sampling = {n: finite(v) for n, v in asdict(self.options).items() if n not in ("k", "rule")}
        shared = conditions(self.target, self.runner, sampling)
        if drafter is None or drafter == PLAIN:
            return shared
        own = draft_settings(self.drafters[drafter])
        return Conditions.model_validate(shared.model_dump() | {"draft": own})

    def write(self, prompt: BenchPrompt) -> Run:
        """Write one text plainly, for its own sake."""
        with Row(self.runner) as row:
            return Run(self.request(prompt), row, None, self.clock).finish()

    def side_by_side(
        self, prompt: BenchPrompt, variants: Sequence[Variant], tokens: int | None = None
    ) -> dict[Variant, tuple[Run, Identity | None]]:
        """Write one text plainly and in every variant, in turns, and prove each against the plain one.

        Raises FaultError where the output changed.
        """
        with ExitStack() as held:
            runs: dict[Variant, Run] = {}
            for name, k in [(PLAIN, 0), *variants]:
                row = held.enter_context(Row(self.runner))
                session = None
                if name != PLAIN:
                    session = self.drafters[name].open()
                    held.callback(session.close)
                runs[name, k] = Run(
                    self.request(prompt, (name, k), tokens), row, session, self.clock
                )
            for _ in keep_pace(list(runs.values())):
                pass
        plain, replays = runs.pop((PLAIN, 0)), Replays(self.runner)
        results: dict[Variant, tuple[Run, Identity | None]] = {(PLAIN, 0): (plain, None)}
        for (name, k), run in runs.items():
            identity = prove(plain, run, self.runner, replays)
            if identity.fault:
                raise FaultError(
                    f"the output changed with {name} at k = {k}: {identity.partings[-1]}"
                )
            results[name, k] = run, identity
        return results


def load_subject(models: ModelOptions, drafts: Sequence[str], options: GenerateOptions) -> Subject:
    """Load a target and the drafters of these names."""
    names = tuple(dict.fromkeys(drafts))
    if PLAIN in names:
        raise OptionError("--draft none is plain decoding, which is measured anyway: leave it out")
    target, runner = load_runner(models.target, models)
    drafters = [load_drafter(name, target, runner, models) for name in names]
    return Subject(target, runner, drafters, options)
