"""What a run leaves: every answer with the conditions, in one JSON file that a later run can go on with."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from draftwise.core.errors import OptionError

Key = tuple[str, str, str]
"""Peer, precision, setting."""

_MAY_DIFFER = ("date", "repeats", "limit")
"""Conditions that say how much is measured, and not how."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer.

    turn: answers of one turn were given one after the other, and may be compared. drafted, accepted,
    rounds: where the peer tells. predicted: speed-up by the formula, at the rounds' own k; ours alone.
    """

    turn: int
    peer: str
    precision: str
    setting: str
    workload: str
    index: int
    repeat: int
    ids: list[int]
    seconds: float
    first_token_seconds: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    predicted: float | None = None

    @property
    def key(self) -> Key:
        """Whose it is."""
        return self.peer, self.precision, self.setting


@dataclass(slots=True)
class Outcome:
    """What comes of a run. missing: peer, precision, setting, and why it was not measured."""

    conditions: dict[str, Any]
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    missing: list[tuple[str, str, str, str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Outcome":
        """From JSON. OptionError if it is none of this benchmark's."""
        try:
            found = json.loads(path.read_text())
            return cls(
                conditions=dict(found["conditions"]),
                versions=dict(found["versions"]),
                timings=[Timing(**timing) for timing in found["timings"]],
                missing=[(peer, at, setting, why) for peer, at, setting, why in found["missing"]],
            )
        except OSError as error:
            raise OptionError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise OptionError(f"{path} holds no results of this benchmark: name another") from error

    @classmethod
    def begin(cls, path: Path, conditions: dict[str, Any]) -> "Outcome":
        """What the file has so far; OptionError if that was measured under other conditions."""
        conditions = json.loads(json.dumps(conditions))
        if not path.exists():
            return cls(conditions)
        earlier = cls.read(path)
        for name in sorted(earlier.conditions.keys() | conditions.keys()):
            if name not in _MAY_DIFFER:
                before, now = earlier.conditions.get(name), conditions.get(name)
                _same(path, name, before, now)
        return cls(conditions, earlier.versions, earlier.timings)  # what was missing is tried again

    def note_versions(self, path: Path, peer: str, versions: dict[str, str]) -> None:
        """Keep a worker's versions; OptionError if others are among the results."""
        if any(timing.peer == peer for timing in self.timings):
            _same(path, f"{peer}'s versions", self.versions.get(peer), versions)
        self.versions[peer] = versions

    def write(self, path: Path, extra: dict[str, Any]) -> None:
        """As JSON, in one step: an interrupted run leaves what it had."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self) | extra))
        partial.replace(path)

    def measured(self) -> "Outcome":
        """Without settings that are to draft and never did: those count as missing."""
        answers = by_key(self.timings)
        idle = [
            key
            for key, timings in answers.items()
            if key[2] != "plain" and all(timing.drafted == 0 for timing in timings)
        ]
        return Outcome(
            self.conditions,
            self.versions,
            [timing for timing in self.timings if timing.key not in idle],
            [*self.missing, *((*key, "drafted nothing") for key in idle)],
        )


def speed(timing: Timing) -> float:
    """Tokens a second, prefill included."""
    return len(timing.ids) / timing.seconds


def later_speed(timing: Timing) -> float | None:
    """Tokens a second from the first on; None where the peer does not tell when that came."""
    if timing.first_token_seconds is None or len(timing.ids) < 2:
        return None
    return (len(timing.ids) - 1) / (timing.seconds - timing.first_token_seconds)


def by_key(timings: Iterable[Timing]) -> dict[Key, list[Timing]]:
    """Answers of each setting."""
    found: dict[Key, list[Timing]] = defaultdict(list)
    for timing in timings:
        found[timing.key].append(timing)
    return found


def _same(path: Path, name: str, before: object, now: object) -> None:
    if before != now:
        raise OptionError(
            f"{path} was measured with {name} {before}, not {now}: name another file with --out"
        )
