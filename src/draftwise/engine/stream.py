"""A request in progress: iterate for its rounds, then ask for its result."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from draftwise.core.errors import FaultError
from draftwise.decoding.proof import Identity
from draftwise.decoding.round import Round
from draftwise.decoding.run import Run, interleave
from draftwise.engine.result import Result, measure, rates_of, speedup, versions

Open = Callable[[], AbstractContextManager[tuple[Run, Run | None]]]
"""Takes the engine; gives the speculative run and, if asked for, the plain one beside it."""


class Stream:
    """Rounds as they are written. Leave it early by `close`, a `with` block, or by dropping it.

    The engine is taken with the first round and free again at the end, or when the stream is closed.
    A stream with a baseline proves itself at its end: if the output differs by more than arithmetic
    explains, the iteration ends in a FaultError, and `result` shows what there was.
    """

    def __init__(
        self,
        open_runs: Open,
        prove: Callable[[Run, Run], Identity | None],
        settings: Mapping[str, object],
    ) -> None:
        self._open_runs, self._prove = open_runs, prove
        self._settings = settings
        self._run: Run | None = None
        self._plain: Run | None = None
        self._identity: Identity | None = None
        self._rounds = self._write()

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        return next(self._rounds)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop writing, and free the engine for the next request."""
        self._rounds.close()

    @property
    def begun(self) -> bool:
        """Whether writing has begun, so that there is a result."""
        return self._run is not None

    @property
    def result(self) -> Result:
        """What was written so far: the whole result once the stream has ended."""
        if self._run is None:
            raise RuntimeError("the stream has not begun: take a round from it first")
        run, finished = self._run, self._run.finish_reason is not None
        plain = measure(self._plain) if self._plain and finished else None
        rates = rates_of(run, plain)
        return Result(
            text=run.text,
            run=measure(run),
            rates=rates,
            settings=self._settings,
            versions=versions(),
            notes=tuple(sorted({round_.note for round_ in run.rounds if round_.note})),
            baseline=plain,
            identity=self._identity,
            speedup=speedup(run, plain, rates) if plain else None,
        )

    def _write(self) -> Generator[Round]:
        with self._open_runs() as (self._run, self._plain):
            if self._plain is None:
                yield from self._run
                return
            yield from interleave(self._run, self._plain)
            self._identity = self._prove(self._plain, self._run)
        if self._identity is not None and self._identity.fault:
            raise FaultError(f"the output changed: {self._identity.partings[-1]}")
