"""The cache folder, and things in it that are made once: whole or absent, by one process at a time."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
