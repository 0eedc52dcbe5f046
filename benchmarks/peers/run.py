"""The run: every prompt with every setting of every peer, in turns, several times.

As many workers live at once as memory allows: a crew. Within a crew the turns go prompt by prompt, setting
by setting, in an order that moves on with each repeat; each repeat visits all crews, so that a slow minute
of the machine falls on all peers alike. Idle workers sleep. Before each timed answer the same worker reads
one token of another text, untimed: no cache holds the prompt then, and its threads are awake.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.peers import DRAFTED, Peer, Worker, WorkerError
from draftwise.core.errors import DraftwiseError
from draftwise.measure.workloads import BenchPrompt
from draftwise.models.devices import describe_machine

_SPARE = 2e9
"""Bytes of memory left to everything else."""

_WORKSPACE = 0.8e9
"""Bytes that a worker takes beside its weights: libraries and the cache."""

_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer."""

    peer: str
    precision: str
    setting: str
    workload: str
    index: int
    repeat: int
    ids: list[int]
    seconds: float
    first_token_seconds: float | None


@dataclass(slots=True)
class Outcome:
    """What comes of a run. missing: peer, precision, setting, and why it was not measured."""

    conditions: dict[str, Any]
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    missing: list[tuple[str, str, str, str]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As JSON, in one step: an interrupted run leaves what it had."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(path)


def run(
    peers: Sequence[Peer],
    prompts: Sequence[tuple[BenchPrompt, list[int]]],
    options: Mapping[str, Any],
    weights: int,
    path: Path,
) -> Outcome:
    """Measure, and write after every crew.

    weights: how many the target has. options: as workers take them.
    """
    conditions = {"machine": describe_machine(), "date": time.strftime("%Y-%m-%d %H:%M")}
    outcome = Outcome(conditions | dict(options))
    crews = [*_crews(peers, weights, psutil.virtual_memory().available - _SPARE)]
    crew = _Crew(options, prompts[0][1], outcome)
    if options["target"] == options["draft"]:
        for peer in peers:
            for setting in set(peer.settings) & set(DRAFTED):
                crew.fail(peer, setting, "the target is the draft model itself")
    try:
        for repeat in range(options["repeats"]):
            for members in crews:
                crew.call(members)
                _measure(crew, prompts, repeat, options["tokens"], outcome)
                outcome.write(path)
    finally:
        crew.call(())
    return outcome


def _crews(peers: Sequence[Peer], weights: int, memory: float) -> Iterator[list[Peer]]:
    crew, used = list[Peer](), 0.0
    for peer in peers:
        size = peer.weights * weights + _WORKSPACE
        if crew and used + size > memory:
            yield crew
            crew, used = [], 0.0
        crew.append(peer)
        used += size
    yield crew


class _Crew:
    """The workers that live now, warmed up. A setting that failed is not tried again."""

    def __init__(self, options: Mapping[str, Any], prompt: list[int], outcome: Outcome) -> None:
        self._options, self._prompt, self._outcome = options, prompt, outcome
        self._workers: dict[Peer, Worker] = {}
        self._failed: set[tuple[Peer, str]] = set()

    @property
    def seats(self) -> list[tuple[Worker, str]]:
        """Workers and their settings that work."""
        return [
            (worker, setting)
            for peer, worker in self._workers.items()
            for setting in peer.settings
            if (peer, setting) not in self._failed
        ]

    def call(self, members: Sequence[Peer]) -> None:
        """Let these live, and the others end."""
        for peer in [peer for peer in self._workers if peer not in members]:
            self._workers.pop(peer).close()
        for peer in members:
            if peer not in self._workers and any(
                (peer, s) not in self._failed for s in peer.settings
            ):
                self._open(peer)

    def fail(self, peer: Peer, setting: str, why: str) -> None:
        """Note why a setting is not measured, once."""
        if (peer, setting) not in self._failed:
            self._failed.add((peer, setting))
            self._outcome.missing.append((peer.name, peer.precision, setting, why))
            print(f"  {peer.name}, {peer.precision}, {setting}: not measured: {why}", flush=True)

    def _open(self, peer: Peer) -> None:
        start = time.monotonic()
        try:
            worker = Worker(
                peer, [s for s in peer.settings if (peer, s) not in self._failed], self._options
            )
        except (WorkerError, DraftwiseError, RuntimeError) as error:
            for setting in peer.settings:
                self.fail(peer, setting, str(error))
            return
        self._workers[peer] = worker
        self._outcome.versions[peer.name] = worker.versions
        for setting in peer.settings:
            if (peer, setting) in self._failed:
                continue
            if setting in worker.failures:
                self.fail(peer, setting, worker.failures[setting])
                continue
            try:
                worker.ask(setting, self._prompt, _WARM_UP_TOKENS)
            except WorkerError as error:
                self.fail(peer, setting, str(error))
        print(
            f"  {peer.name}, {peer.precision}: up in {time.monotonic() - start:.0f} s", flush=True
        )


def _measure(
    crew: _Crew,
    prompts: Sequence[tuple[BenchPrompt, list[int]]],
    repeat: int,
    tokens: int,
    outcome: Outcome,
) -> None:
    for prompt, ids in prompts:
        seats = crew.seats
        first = repeat % len(seats) if seats else 0
        for worker, setting in seats[first:] + seats[:first]:
            try:
                worker.ask(setting, ids[-1:], 1)
                answer = worker.ask(setting, ids, tokens)
            except WorkerError as error:
                crew.fail(worker.peer, setting, f"on {prompt.workload}: {error}")
                continue
            peer, place = worker.peer, (prompt.workload, prompt.index, repeat)
            outcome.timings.append(Timing(peer.name, peer.precision, setting, *place, **answer))
        print(f"  repeat {repeat + 1}, {prompt.workload} {prompt.index}", flush=True)
