"""A request in progress: iterate for its rounds, then ask for its result."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from draftwise.core.closing import Closing
from draftwise.core.errors import FaultError
from draftwise.decoding.proof import Identity
from draftwise.decoding.round import Round
from draftwise.decoding.run import Run, interleave
from draftwise.engine.result import Result, measure, rates_of, speedup
from draftwise.engine.settings import versions
from draftwise.engine.turn import Turn

Open = Callable[[], AbstractContextManager[tuple[Run, Run | None]]]
"""Takes the engine; gives the speculative run and, if asked for, the plain one beside it."""

Prove = Callable[[Run, Run], Identity | None]


@dataclass(slots=True)
class Progress:
    """What there is of a request so far. Apart from the stream, so that dropping one frees the engine."""

    run: Run | None = None
    plain: Run | None = None
    identity: Identity | None = None
    holds_turn: bool = False


class Stream(Closing):
    """Rounds as they are written. Leave it early by `close`, a `with` block, or by dropping it.

    The engine is taken with the first round and free again at the end, or when the stream is closed.
    A stream with a baseline proves itself at its end: if the output differs by more than arithmetic
    explains, the iteration ends in a FaultError, and `result` shows what there was.
    """

    def __init__(
        self, open_runs: Open, prove: Prove, turn: Turn, settings: Mapping[str, object]
    ) -> None:
        self._turn = turn
        self._settings = settings
        self._progress = Progress()
        self._rounds = _write(open_runs, prove, self._progress)

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        if self._progress.holds_turn:
            self._turn.hand_to_this_thread()
        return next(self._rounds)

    def close(self) -> None:
        """Stop writing, and free the engine for the next request."""
        self._rounds.close()

    @property
    def begun(self) -> bool:
        """Whether writing has begun, so that there is a result."""
        return self._progress.run is not None

    @property
    def result(self) -> Result:
        """What was written so far: the whole result once the stream has ended.

        Baseline, proof and speed-up are there once both runs have ended.
        """
        run, plain = self._progress.run, self._progress.plain
        if run is None:
            raise RuntimeError("the stream has not begun: take a round from it first")
        ended = (
            run.finish_reason is not None and plain is not None and plain.finish_reason is not None
        )
        baseline = measure(plain) if plain and ended else None
        rates = rates_of(run, baseline)
        return Result(
            text=run.text,
            run=measure(run),
            rates=rates,
            settings=self._settings,
            versions=versions(),
            notes=tuple(sorted({round_.note for round_ in run.rounds if round_.note})),
            baseline=baseline,
            identity=self._progress.identity,
            speedup=speedup(run, baseline, rates) if baseline else None,
        )


def _write(open_runs: Open, prove: Prove, progress: Progress) -> Generator[Round, None, None]:
    with open_runs() as (progress.run, progress.plain):
        progress.holds_turn = True
        try:
            if progress.plain is None:
                yield from progress.run
                return
            yield from interleave(progress.run, progress.plain)
            progress.identity = prove(progress.plain, progress.run)
        finally:
            progress.holds_turn = False
    if progress.identity is not None and progress.identity.fault:
        raise FaultError(f"the output changed: {progress.identity.partings[-1]}")
