"""The cache folder, and things in it that are made once: whole or absent, by one process at a time."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from draftwise.core.errors import ModelError
from draftwise.models.progress import progress_bar


def cache_folder() -> Path:
    """Where models are kept: DRAFTWISE_CACHE, else the user's cache folder (by XDG on Linux)."""
    override = os.environ.get("DRAFTWISE_CACHE")
    return Path(override).expanduser() if override else user_cache_path("draftwise")


def made_once(
    ready: Path, is_ready: Callable[[Path], bool], make: Callable[[Path], None], doing: str | None
) -> Path:
    """`ready`, made by `make` where it is not there yet; a disk that refuses is one ModelError.

    make: puts `ready` in its place in one rename. doing: told on stderr while another process makes
    it; None: in silence.
    """
    with _disk_errors(ready):
        if not is_ready(ready):
            with _locked(ready, doing):
                if not is_ready(ready):  # another process may have made it meanwhile
                    make(ready)
    return ready


def keep(path: Path, found: Any) -> None:
    """Keep a small finding as JSON, in one rename; a cache that cannot be written is no reason to fail."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(json.dumps(found), encoding="utf-8")
        own.replace(path)


def kept(path: Path) -> Any:
    """What `keep` has kept there; None where that is nothing, or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def _locked(ready: Path, doing: str | None) -> Iterator[None]:
    """Make `ready` alone; the lock falls when the process ends, however it ends."""
    ready.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(ready.with_name(f"{ready.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with progress_bar(f"Waiting for another process to {doing}", None, doing is not None):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _disk_errors(ready: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"{ready} cannot be written ({error.strerror or error}): make room or give access, or "
            "set DRAFTWISE_CACHE to a folder elsewhere."
        ) from error
