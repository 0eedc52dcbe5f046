"""A target with a drafter, ready to write: generate and stream as often as you like.

    with draftwise.load("smollm2-135m", draft="lookup") as engine:
        print(engine.generate("Name three rivers.", tokens=64).text)

Thread safety: an engine serves one request at a time. Calls from other threads wait for their turn; a
call from the thread that still holds an open stream could wait forever, and raises BusyError instead.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any

from draftwise.core.clock import Clock, SystemClock
from draftwise.core.closing import Closing
from draftwise.core.costs import Costs
from draftwise.core.lookahead import CostRule
from draftwise.core.processors import Processor
from draftwise.core.stopping import StopConditions
from draftwise.decoding.generation import Request
from draftwise.decoding.proof import Identity, prove
from draftwise.decoding.run import Run
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.mixed import Mixed
from draftwise.engine.calibration import calibrate
from draftwise.engine.options import AUTO, GenerateOptions, make
from draftwise.engine.pairing import vocabulary_of
from draftwise.engine.request import Prompt, RequestMaker
from draftwise.engine.result import Result
from draftwise.engine.stream import Stream
from draftwise.engine.turn import Turn
from draftwise.models.loading import LoadedModel
from draftwise.models.row import Row
from draftwise.models.runner import Runner

_WARM_UP_PROMPT, _WARM_UP_K = 32, 4


class Engine(Closing):
    """A target with a drafter. `load` makes one.

    settings: what took effect when the models were loaded; part of every result.
    """

    def __init__(
        self,
        target: LoadedModel,
        runner: Runner,
        drafter: Drafter,
        settings: dict[str, object],
        clock: Clock | None = None,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self._runner = runner
        self._settings = settings
        self._clock = clock or SystemClock()
        self._requests = RequestMaker(
            target, vocabulary_of(target, runner).size, runner.info.context_length
        )
        self._row = Row(runner)
        self._session = drafter.open()
        self._costs: Costs | None = None
        self._turn = Turn()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()

    def close(self) -> None:
        """Give back the rows, after the requests of other threads; a stream of this one is closed."""
        if self._turn.held_here:
            for stream in list(self._streams):
                stream.close()
        if self._turn.closed:
            return
        with self._turn.taken():
            self._turn.closed = True
            self._session.close()
            self._row.close()

    @property
    def costs(self) -> Costs:
        """What passes cost here; measured when it is first asked for, for a quarter of a minute."""
        if self._costs is not None:
            return self._costs
        with nullcontext() if self._turn.held_here else self._turn.taken():
            own = self.drafter.costs if isinstance(self.drafter, Mixed) else None
            self._costs = own or calibrate(self.target, self._runner, self.drafter)
        return self._costs

    def generate(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        *,
        baseline: bool = False,
        processors: Sequence[Processor] = (),
        **named: Any,
    ) -> Result:
        """Write an answer. Options are given as GenerateOptions, or its fields by name.

        baseline: also decode plainly, in turns with speculation, and prove the output unchanged.
        Raises OptionError or PromptError before any work starts, FaultError if the proof fails.
        """
        stream = self.stream(prompt, options, baseline=baseline, processors=processors, **named)
        with stream:
            for _ in stream:
                pass
        return stream.result

    def stream(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        *,
        baseline: bool = False,
        processors: Sequence[Processor] = (),
        **named: Any,
    ) -> Stream:
        """Write an answer round by round; otherwise like `generate`."""
        chosen = make(GenerateOptions, named, options)
        request = self._requests.make(
            prompt,
            chosen,
            usual_k=self.drafter.usual_k,
            adapts=self.drafter.adapts,
            lookahead=lambda prompt: CostRule(self.costs, prompt=prompt),
            processors=processors,
            keep_evidence=baseline,
        )
        effective = {
            "k": AUTO if request.lookahead else request.k,
            "seed": request.seed,
            "warmed_up": baseline,
        }
        settings = self._settings | asdict(chosen) | effective
        stream = Stream(lambda: self._runs(request, baseline), self._prove, self._turn, settings)
        self._streams.add(stream)
        return stream

    @contextmanager
    def _runs(self, request: Request, baseline: bool) -> Iterator[tuple[Run, Run | None]]:
        """Take the engine and begin to write: after a warm-up, where time will be compared."""
        with self._turn.taken(), ExitStack() as rows:
            plain = None
            if baseline:
                self._warm_up(request)
                row = rows.enter_context(Row(self._runner))
                plain = Run(request, row, None, self._clock)
            yield Run(request, self._row, self._session, self._clock), plain

    def _warm_up(self, request: Request) -> None:
        """Let the passes of both runs happen once, on rows of their own, before a clock is read."""
        tokens = min(request.k, request.stop.max_tokens - 1, _WARM_UP_K) + 2
        short = replace(
            request,
            prompt=request.prompt[:_WARM_UP_PROMPT],
            stop=StopConditions(max_tokens=tokens, min_tokens=tokens),
        )
        with Row(self._runner) as row:
            Run(short, row, None, self._clock).finish()
        session = self.drafter.open()
        try:
            with Row(self._runner) as row:
                Run(short, row, session, self._clock).finish()
        finally:
            session.close()

    def _prove(self, plain: Run, run: Run) -> Identity | None:
        """Compare token for token, where the rule promises the very text."""
        sampled = run.request.sampler.options.temperature > 0
        return None if sampled and run.request.rule != "match" else prove(plain, run, self._runner)
