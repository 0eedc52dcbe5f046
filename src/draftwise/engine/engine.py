"""Load a target and a drafter once; generate and stream as often as you like.

    with draftwise.load("smollm2-135m", draft="lookup") as engine:
        print(engine.generate("Name three rivers.", tokens=64).text)

Thread safety: an engine serves one request at a time. Calls from other threads wait for their turn; a
call from the thread that still holds an open stream could wait forever, and raises BusyError instead.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from types import TracebackType
from typing import Any

from draftwise.core.clock import Clock, SystemClock
from draftwise.core.errors import BusyError, OptionError, PromptError
from draftwise.core.noise import fresh_seed
from draftwise.core.processors import Processor
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.core.stopping import StopConditions
from draftwise.decoding.generation import Request
from draftwise.decoding.proof import Identity, prove
from draftwise.decoding.run import Run
from draftwise.drafters.drafter import Drafter
from draftwise.engine.options import GenerateOptions, make
from draftwise.engine.pairing import vocabulary_of
from draftwise.engine.result import Result
from draftwise.engine.stream import Stream
from draftwise.models.loading import LoadedModel
from draftwise.models.row import Row
from draftwise.models.runner import Runner
from draftwise.text.tokenizer import Message

Prompt = str | Sequence[Message] | Sequence[int]
"""Text, the messages of a chat, or token ids."""

_WARM_UP_PROMPT = 32
_LEADING = 8
_SAMPLING = [f.name for f in fields(SamplingOptions) if f.name != "banned_words"]


class Engine:
    """A target with a drafter, ready to write. `load` makes one.

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
        self._vocab_size = vocabulary_of(target, runner).size
        self._row = Row(runner)
        self._session = drafter.open()
        self._lock = threading.Lock()
        self._holder: int | None = None

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the rows. The models stay until nobody refers to them."""
        self._session.close()
        self._row.close()

    def generate(
        self,
        prompt: Prompt,
        *,
        baseline: bool = False,
        processors: Sequence[Processor] = (),
        **options: Any,
    ) -> Result:
        """Write an answer. `options` are the fields of GenerateOptions.

        baseline: also decode plainly, in turns with speculation, and prove the output unchanged.
        Raises OptionError or PromptError before any work starts, FaultError if the proof fails.
        """
        stream = self.stream(prompt, baseline=baseline, processors=processors, **options)
        with stream:
            for _ in stream:
                pass
        return stream.result

    def stream(
        self,
        prompt: Prompt,
        *,
        baseline: bool = False,
        processors: Sequence[Processor] = (),
        **options: Any,
    ) -> Stream:
        """Write an answer round by round; otherwise like `generate`."""
        chosen = make(GenerateOptions, options)
        request = self._request(prompt, chosen, processors, keep_evidence=baseline)
        effective = {"k": request.k, "seed": request.seed, "warmed_up": baseline}
        settings = self._settings | asdict(chosen) | effective

        return Stream(lambda: self._runs(request, baseline), self._prove, settings)

    @contextmanager
    def _runs(self, request: Request, baseline: bool) -> Iterator[tuple[Run, Run | None]]:
        """Take the engine and begin to write: after a warm-up, where time will be compared."""
        with self._turn(), ExitStack() as rows:
            plain = None
            if baseline:
                self._warm_up(request)
                row = rows.enter_context(Row(self._runner))
                plain = Run(request, row, None, self._clock)
            yield Run(request, self._row, self._session, self._clock), plain

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other thread uses the engine; refuse where this thread itself does."""
        me = threading.get_ident()
        if self._holder == me:
            raise BusyError(
                "this thread has a stream open on the engine: finish or close it first, or load "
                "another engine"
            )
        with self._lock:
            self._holder = me
            try:
                yield
            finally:
                self._holder = None

    def _warm_up(self, request: Request) -> None:
        """Let every shape of pass run once, on rows of its own, before a clock is read."""
        tokens = request.k + 2
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

    def _request(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        processors: Sequence[Processor],
        keep_evidence: bool,
    ) -> Request:
        tokenizer = self.target.tokenizer
        end_ids = frozenset() if options.ignore_eos else self.target.end_ids
        sampling = SamplingOptions(
            banned_words=tuple(
                ids for word in options.banned_words for ids in self._spellings(word)
            ),
            **{name: getattr(options, name) for name in _SAMPLING},
        )
        return Request(
            prompt=tuple(self._prompt_ids(prompt, options.raw)),
            sampler=Sampler(
                sampling, vocab_size=self._vocab_size, end_ids=end_ids, processors=processors
            ),
            stop=StopConditions(
                end_ids=end_ids,
                stop_strings=tuple(options.stop),
                max_tokens=options.tokens,
                min_tokens=options.min_tokens,
            ),
            decode=tokenizer.decode,
            skipped=tokenizer.special_ids,
            seed=fresh_seed() if options.seed is None else options.seed,
            k=self.drafter.usual_k if options.k is None else options.k,
            rule=options.rule,
            context_length=self._runner.info.context_length,
            num_leading=_LEADING if keep_evidence else 0,
        )

    def _prompt_ids(self, prompt: Prompt, raw: bool) -> list[int]:
        tokenizer = self.target.tokenizer
        if isinstance(prompt, str):
            if raw or not tokenizer.has_chat_template:
                return tokenizer.encode(prompt)
            return tokenizer.chat([Message("user", prompt)])
        if all(isinstance(part, Message) for part in prompt):
            return tokenizer.chat([part for part in prompt if isinstance(part, Message)])
        ids = [part for part in prompt if isinstance(part, int)]
        if len(ids) < len(prompt) or not all(0 <= i < self._vocab_size for i in ids):
            raise PromptError(
                f"a prompt is text, messages, or token ids from 0 to {self._vocab_size - 1}"
            )
        return ids

    def _spellings(self, word: str) -> list[tuple[int, ...]]:
        """Token sequences of a banned word: on its own, and behind a space."""
        if not word:
            raise OptionError("a banned word is empty: leave it out")
        tokenizer = self.target.tokenizer
        spelled = [tokenizer.encode(text) for text in (word, f" {word}")]
        return [tuple(i for i in ids if i not in tokenizer.special_ids) for ids in spelled]
