"""From the name of a model to the folder or file that holds it, whole, on this disk.

A name is, in this order: a built-in model, a folder or GGUF file that exists, a name on the Hub. A
name that looks like a path and does not exist fails at once: the network is asked only for
`owner/name`.
"""

import json
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from huggingface_hub import constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from draftwise.core.errors import ModelError
from draftwise.models.builtin import BUILTIN, builtin_folder

SourceKind = Literal["built-in", "folder", "gguf", "hub", "object"]

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
)
_HUB_FILES = ["*.json", "*.model", "*.txt", "*.jinja"]
_HUB_NOT = ["*/*", "consolidated*"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model lies: a transformers folder, or for kind "gguf" a file."""

    kind: SourceKind
    path: Path


def find_source(name: str | Path, progress: bool = True) -> Source:
    """The model's place on this disk, fetched where the name is built in or on the Hub."""
    if name in BUILTIN:
        return Source("built-in", builtin_folder(str(name), progress))
    try:
        path = Path(name).expanduser()
        exists = bool(str(name).strip()) and path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, ~name of nobody, a zero byte
        raise ModelError(f"{str(name)[:60]!r} is no model's name or path: {error}") from error
    if exists:
        return _local_source(path)
    if isinstance(name, Path) or _looks_local(name):
        raise ModelError(f"There is no folder or file {path}: check the path.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return Source("hub", _hub_folder(name))
    near = get_close_matches(name, BUILTIN, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else f"built in: {', '.join(BUILTIN)}."
    raise ModelError(
        f"{name!r} is no built-in model, no folder or GGUF file here, and no Hub name, which is "
        f"written owner/name: {advice}"
    )


def _local_source(path: Path) -> Source:
    if path.is_dir():
        if complaint := _incomplete(path):
            raise ModelError(complaint)
        return Source("folder", path)
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{path} is not a GGUF file: give a GGUF file or a model's folder.")
    return Source("gguf", path)


def _looks_local(name: str) -> bool:
    """Whether it was meant as a path: ~/x, ./x, C:x, a\\b, a/b/c, x.gguf."""
    return bool(
        name.startswith((".", "~", "/", os.sep))
        or "\\" in name
        or re.match(r"[A-Za-z]:", name)
        or name.count("/") > 1
        or name.lower().endswith(".gguf")
    )


def _incomplete(folder: Path) -> str | None:
    """What the folder lacks to be a model's, in one line; None if nothing."""
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = (
            f": name the file, such as {folder / files[0]}"
            if files
            else ": is it a model's folder?"
        )
        return f"{folder} has no config.json{hint}"
    weights = _weight_files(folder)
    if not weights:
        return f"{folder} has no weights (model.safetensors): fetch them into the folder."
    if absent := [name for name in weights if not (folder / name).is_file()]:
        return (
            f"{folder} lacks {absent[0]}, one of its {len(weights)} weight files: fetch it again."
        )
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return f"{folder} has no tokenizer (tokenizer.json): fetch the tokenizer's files into it."
    return None


def _weight_files(folder: Path) -> list[str]:
    """Names of the files that hold the weights, present or not; empty if nothing names any."""
    for whole in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{whole}.index.json"
        if (folder / whole).is_file():
            return [whole]
        if index.is_file():
            try:
                return sorted(
                    set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
                )
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ModelError(f"{index} cannot be read: fetch it again.") from error
    return []


def _hub_folder(name: str) -> Path:
    """The model's files in the local Hub cache; the network is asked only for what is missing."""
    cached = try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str) and not _incomplete(Path(cached).parent):
        return Path(cached).parent
    if constants.HF_HUB_OFFLINE:
        raise ModelError(
            f"{name} is not whole in the local Hub cache, and HF_HUB_OFFLINE forbids to fetch it: "
            "unset it, or give a folder."
        )
    try:
        folder = Path(snapshot_download(name, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_NOT))
        kind = "*.bin" if (folder / "pytorch_model.bin.index.json").is_file() else "*.safetensors"
        snapshot_download(name, allow_patterns=[kind], ignore_patterns=_HUB_NOT)
    except Exception as error:
        raise ModelError(_hub_complaint(name, error)) from error
    if complaint := _incomplete(folder):
        raise ModelError(f"{name} cannot be used from the Hub: {complaint}")
    return folder


def _hub_complaint(name: str, error: Exception) -> str:
    if isinstance(error, GatedRepoError):
        return f"{name} is gated: accept its terms on its Hub page, then `hf auth login`."
    if isinstance(error, RepositoryNotFoundError):
        return f"The Hub has no model {name} that you may see: check the name, or `hf auth login`."
    if isinstance(error, LocalEntryNotFoundError):
        return (
            f"{name} is not in the local Hub cache, and the Hub cannot be reached: go online once."
        )
    return f"{name} cannot be fetched from the Hub: {str(error).splitlines()[0]}"
