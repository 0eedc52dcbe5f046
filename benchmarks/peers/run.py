"""The run: every prompt with every setting of every peer, in turns, several times.

As many workers live at once as memory allows: a crew. draftwise is a member of every crew, since the speed
of memory changes from minute to minute: what is compared are answers of one turn, in which each setting of
the crew answers the same prompt once, one after the other, there in one turn and back in the next. Idle
workers sleep. Before each timed answer the same worker reads one token of another text, untimed: no cache
holds the prompt then, and its threads are awake. A turn that was written down whole is not taken again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil

import draftwise
from benchmarks.peers.bars import bars
from benchmarks.peers.peers import CLASSES, DRAFTED, OURS, Peer, Worker, WorkerError
from benchmarks.peers.results import Outcome, Timing
from draftwise.core.errors import DraftwiseError
from draftwise.measure.workloads import BenchPrompt
from draftwise.models.devices import describe_machine

_SPARE = 2e9
"""Bytes of memory left to everything else."""

_WORKSPACE = 0.8e9
"""Bytes that a worker takes beside its weights: libraries and the cache."""

_WARM_UP_TOKENS = 8

Prompts = Sequence[tuple[BenchPrompt, list[int]]]
"""Each with its token ids."""


def run(
    peers: Sequence[Peer], prompts: Prompts, options: Mapping[str, Any], weights: int, path: Path
) -> None:
    """Measure what the file does not hold yet, and write after every turn.

    weights: how many the target has. options: as workers take them.
    """
    made = {"date": time.strftime("%Y-%m-%d %H:%M"), "machine": describe_machine()}
    outcome = Outcome.begin(path, {**options, **made, "draftwise": _source()})
    crew = _Crew(options, prompts[0][1], outcome, path)
    if options["target"] == options["draft"]:
        for peer in peers:
            for setting in set(peer.settings) & set(DRAFTED):
                crew.fail(peer, setting, "the target is the draft model itself")
    try:
        for members in crews(peers, weights, psutil.virtual_memory().available - _SPARE):
            _measure(crew, members, prompts, options)
    finally:
        crew.call(())
        outcome.write(path, _bars(outcome))


def crews(peers: Sequence[Peer], weights: int, memory: float) -> Iterator[list[Peer]]:
    """Peers of one precision that fit into memory together, draftwise always among them."""
    for precision in CLASSES:
        alike = [peer for peer in peers if peer.precision == precision]
        always = [peer for peer in alike if peer.name == OURS]
        crew = always
        for peer in [peer for peer in alike if peer.name != OURS]:
            if crew != always and _size([*crew, peer], weights) > memory:
                yield crew
                crew = always
            crew = [*crew, peer]
        if crew:
            yield crew


def _size(crew: Sequence[Peer], weights: int) -> float:
    return sum(peer.weights * weights + _WORKSPACE for peer in crew)


class _Crew:
    """The workers that live now, warmed up. A setting that failed is not tried again."""

    def __init__(
        self, options: Mapping[str, Any], prompt: list[int], outcome: Outcome, path: Path
    ) -> None:
        self._options, self._prompt = options, prompt
        self._workers: dict[Peer, Worker] = {}
        self._failed: set[tuple[Peer, str]] = set()
        self.outcome, self.path = outcome, path

    @property
    def seats(self) -> list[tuple[Worker, str]]:
        """Workers and their settings that work."""
        return [
            (worker, setting)
            for peer, worker in self._workers.items()
            for setting in self.settings(peer)
        ]

    def settings(self, peer: Peer) -> list[str]:
        """Those that did not fail."""
        return [setting for setting in peer.settings if (peer, setting) not in self._failed]

    def call(self, members: Sequence[Peer]) -> None:
        """Let these live, and the others end."""
        for peer in [peer for peer in self._workers if peer not in members]:
            self._workers.pop(peer).close()
        for peer in members:
            if peer not in self._workers and self.settings(peer):
                self._open(peer)
            if peer in self._workers and not self.settings(peer):
                self._workers.pop(peer).close()

    def fail(self, peer: Peer, setting: str, why: str) -> None:
        """Note why a setting is not measured, once."""
        if (peer, setting) not in self._failed:
            self._failed.add((peer, setting))
            self.outcome.missing.append((*peer.key(setting), why))
            print(f"  {peer.name}, {peer.precision}, {setting}: not measured: {why}", flush=True)

    def _open(self, peer: Peer) -> None:
        start = time.monotonic()
        try:
            worker = Worker(peer, self.settings(peer), self._options)
        except (WorkerError, DraftwiseError, RuntimeError, OSError) as error:
            for setting in peer.settings:
                self.fail(peer, setting, str(error))
            return
        self._workers[peer] = worker
        self.outcome.note_versions(self.path, peer.name, worker.versions)
        for setting in self.settings(peer):
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
    crew: _Crew, members: Sequence[Peer], prompts: Prompts, options: Mapping[str, Any]
) -> None:
    """Take the turns of one crew that are not in the file yet."""
    done = {(timing.key, _place(timing)) for timing in crew.outcome.timings}
    others = [peer for peer in members if peer.name != OURS] or members
    for repeat in range(options["repeats"]):
        for number, (prompt, ids) in enumerate(prompts):
            place = prompt.workload, prompt.index, repeat
            asked = {
                peer: [
                    setting
                    for setting in crew.settings(peer)
                    if peer not in others or (peer.key(setting), place) not in done
                ]
                for peer in members
            }
            if not any(asked[peer] for peer in others):
                continue
            crew.call(members)
            seats = [seat for seat in crew.seats if seat[1] in asked[seat[0].peer]]
            if all(worker.peer not in others for worker, _ in seats):
                continue  # they failed when they were opened
            if (repeat + number) % 2:
                seats.reverse()
            start = time.monotonic()
            _turn(crew, seats, place, ids, options["tokens"])
            crew.outcome.write(crew.path, _bars(crew.outcome))
            took = time.monotonic() - start
            print(
                f"  repeat {repeat + 1}, {prompt.workload} {prompt.index}: {took:.0f} s", flush=True
            )


def _turn(
    crew: _Crew,
    seats: Sequence[tuple[Worker, str]],
    place: tuple[str, int, int],
    ids: list[int],
    tokens: int,
) -> None:
    number = 1 + max((timing.turn for timing in crew.outcome.timings), default=0)
    timings = list[Timing]()
    for worker, setting in seats:
        try:
            worker.ask(setting, ids[-1:], 1)
            answer = worker.ask(setting, ids, tokens)
        except WorkerError as error:
            crew.fail(worker.peer, setting, f"on {place[0]}: {error}")
            continue
        timings.append(Timing(number, *worker.peer.key(setting), *place, **answer))
    # Only now: what half a turn leaves would have nothing of ours beside it.
    crew.outcome.timings += timings


def _place(timing: Timing) -> tuple[str, int, int]:
    return timing.workload, timing.index, timing.repeat


def _bars(outcome: Outcome) -> dict[str, Any]:
    found = bars(outcome.measured().timings)
    return {"bars": [asdict(bar) | {"reached": bar.reached} for bar in found]}


def _source() -> str:
    """draftwise as it is: its version does not say what is being worked on."""
    folder = Path(draftwise.__file__).parent
    files = sorted(folder.rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
