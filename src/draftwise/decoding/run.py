"""A run: one generation with its rounds kept, and two runs side by side."""

from collections.abc import Iterator, Sequence

from draftwise.core.clock import Clock, PhaseTimer, Times
from draftwise.core.counters import Counters
from draftwise.decoding.autoregressive import autoregressive
from draftwise.decoding.evidence import Leading
from draftwise.decoding.generation import Generation, Request
from draftwise.decoding.round import FinishReason, Round
from draftwise.decoding.speculative import speculative
from draftwise.drafters.drafter import DraftSession
from draftwise.models.row import Row


class Run:
    """Iterates over the rounds of one generation and keeps them. Close it to stop early.

    drafter: None for plain decoding.
    """

    def __init__(
        self, request: Request, target: Row, drafter: DraftSession | None, clock: Clock
    ) -> None:
        self.request = request
        self.rounds: list[Round] = []
        self._generation = Generation(request)
        self._target, self._drafter = target, drafter
        self._before = self._after = target.passes, target.tokens_read
        self._timer = PhaseTimer(clock, self._synchronize)
        if drafter is None:
            self._loop = autoregressive(self._generation, target, self._timer)
        else:
            self._loop = speculative(self._generation, target, drafter, self._timer)

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        round_ = next(self._loop)
        self.rounds.append(round_)
        self._after = self._target.passes, self._target.tokens_read  # the row goes on to other runs
        return round_

    def close(self) -> None:
        """Stop. What was emitted stays, and the rows are good for the next request."""
        self._loop.close()

    def finish(self) -> "Run":
        """Run to the end."""
        for _ in self:
            pass
        return self

    @property
    def token_ids(self) -> list[int]:
        """Emitted tokens."""
        return [token for round_ in self.rounds for token in round_.tokens]

    @property
    def text(self) -> str:
        """Delivered text."""
        return "".join(round_.text for round_ in self.rounds)

    @property
    def leading(self) -> list[Leading]:
        """Leading scores of every emitted token, where they are kept."""
        return [scores for round_ in self.rounds for scores in round_.leading]

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it has not."""
        return self.rounds[-1].finish_reason if self.rounds else None

    @property
    def times(self) -> Times:
        """Seconds by phase."""
        return self._timer.times()

    @property
    def counters(self) -> Counters:
        """Raw counts. What the target read beside its rounds was prefill."""
        (passes_before, read_before), (passes, read) = self._before, self._after
        counts = [round_.count for round_ in self.rounds]
        return Counters.from_rounds(
            counts,
            prompt_tokens=len(self.request.prompt),
            prefill_tokens=read - read_before - sum(c.drafted + 1 for c in counts),
            prefill_passes=passes - passes_before - len(counts),
        )

    def _synchronize(self) -> None:
        self._target.runner.synchronize()
        if self._drafter is not None:
            self._drafter.synchronize()


def keep_pace(runs: Sequence[Run]) -> Iterator[tuple[Run, Round]]:
    """Finish several runs in turns, token for token: next is always the one that has written least.

    So a machine that slows down or speeds up does it to all of them. Runs need rows and sessions of
    their own.
    """
    written = dict.fromkeys(range(len(runs)), 0)
    while written:
        behind = min(written, key=written.__getitem__)
        round_ = next(runs[behind])
        written[behind] += len(round_.tokens)
        if round_.finish_reason is not None:
            del written[behind]
        yield runs[behind], round_


def interleave(speculative_run: Run, plain_run: Run) -> Iterator[Round]:
    """Yield the rounds of one run while the other keeps pace with it."""
    for run, round_ in keep_pace([speculative_run, plain_run]):
        if run is speculative_run:
            yield round_
