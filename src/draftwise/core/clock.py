"""Where the time of a run goes: prefill, draft, verify, and the rest.

Invariants: the device is synchronised before every reading of the clock, since queued work would
be billed to whoever waits for it next; each stretch of time between two readings belongs to exactly
one name, so the phases and the rest add up to the time that the loop itself used. Time in which the
loop is suspended, because its consumer is slow, belongs to nobody.

    def rounds(timer: PhaseTimer):
        while True:
            with timer.running():
                with timer.phase("draft"):
                    ...
            yield ...  # not counted
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Phase = Literal["prefill", "draft", "verify"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class Clock(Protocol):
    """Reads a time that never goes back."""

    def now(self) -> float:
        """Seconds since a moment that stays the same for the life of the clock."""
        ...


class SystemClock:
    """The machine's monotonic clock, at its highest resolution."""

    def now(self) -> float:
        """Seconds, as `time.perf_counter` gives them."""
        return time.perf_counter()


class FakeClock:
    """A clock for tests: time passes when it is told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds: the start and all advances since."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError for a negative time."""
        if not seconds >= 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that a run used, by phase; `rest` is what the loop did outside of its phases."""

    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    rest: float = 0.0

    @property
    def total(self) -> float:
        """Wall time of the loop, suspended time excluded."""
        return self.prefill + self.draft + self.verify + self.rest

    def __sub__(self, earlier: "Times") -> "Times":
        """What was used since an earlier reading of the same timer."""
        return Times(
            self.prefill - earlier.prefill,
            self.draft - earlier.draft,
            self.verify - earlier.verify,
            self.rest - earlier.rest,
        )

    def as_dict(self) -> dict[str, float]:
        """Seconds by phase, and their total, under the names of `generate --json`."""
        return {
            "prefill": self.prefill,
            "draft": self.draft,
            "verify": self.verify,
            "rest": self.rest,
            "total": self.total,
        }


class PhaseTimer:
    """Bills each stretch of a run to one phase. One timer a run; not for use by several threads.

    synchronize: waits until the devices of the run have done what was queued.
    """

    def __init__(self, clock: Clock, synchronize: Callable[[], None]) -> None:
        self._clock = clock
        self._synchronize = synchronize
        self._seconds: dict[str, float] = dict.fromkeys((*PHASES, "rest"), 0.0)
        self._counts: dict[str, int] = dict.fromkeys(PHASES, 0)
        self._current: str | None = None  # None while the loop is suspended
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count time while the block runs, as `rest` unless a phase claims it. Does not nest.

        Raises RuntimeError if the timer is running already.
        """
        if self._current is not None:
            raise RuntimeError("the timer is running already")
        self._switch("rest")
        try:
            yield
        finally:
            self._switch(None)

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Bill the block to `name`, whether it ends well or in an exception. Phases do not nest.

        Raises ValueError for an unknown name; RuntimeError within a phase, or outside of `running`.
        """
        if name not in PHASES:
            raise ValueError(f"no phase {name!r}: use one of {', '.join(PHASES)}")
        if self._current is None:
            raise RuntimeError(f"phase {name!r} was opened outside of running()")
        if self._current != "rest":
            raise RuntimeError(f"phase {name!r} was opened within phase {self._current!r}")
        self._switch(name)
        self._counts[name] += 1
        try:
            yield
        finally:
            self._switch("rest")

    def count(self, name: Phase) -> int:
        """How often the phase was opened."""
        return self._counts[name]

    def times(self) -> Times:
        """Seconds up to now, an open phase included; synchronises only while the loop runs."""
        if self._current is not None:
            self._switch(self._current)
        return Times(**self._seconds)

    def _switch(self, name: str | None) -> None:
        try:
            self._synchronize()
        finally:  # a device that fails must not leave a phase open
            now = self._clock.now()
            if self._current is not None:
                self._seconds[self._current] += now - self._since
            self._current, self._since = name, now
