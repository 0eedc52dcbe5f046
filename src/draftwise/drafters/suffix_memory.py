"""Earlier answers, from which sessions of the suffix drafter copy: bounded, shared, kept in a file.

The file is of safetensors, which holds numbers and runs no code. All answers are one tensor of token
ids, each answer followed by END, as in memory.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, get_ident

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from draftwise.core.errors import OptionError
from draftwise.drafters.suffix_array import Match, SuffixArray

DEPTH = 16
"""Tokens compared. On the texts of `drafters.copying`, 8 and 32 made the very same rounds."""

CAPACITY = 100_000
"""Tokens of some hundred long answers: some 10 MB, searched in less than 0.1 ms."""

END = -1
"""Stands behind each answer. It is no token: no match reaches across it, and no copy beyond."""

_FORMAT = "draftwise suffix memory 1"


class SuffixMemory:
    """The latest answers, up to `capacity` tokens; the oldest leave first, whole. Threads may share it.

    tokenizer: whatever tells tokenizers apart, such as the target's name. Token ids mean nothing
    without theirs, so a file that was written for another is refused.
    """

    def __init__(self, tokenizer: str, capacity: int = CAPACITY) -> None:
        self.tokenizer, self.capacity = tokenizer, capacity
        self._array = SuffixArray(DEPTH)
        self._lock = Lock()

    def __len__(self) -> int:
        """Tokens held, the ends of answers included."""
        return len(self._array.tokens)

    def add(self, answer: Sequence[int]) -> None:
        """Keep an answer, or a prompt if you like; not one that is longer than the capacity."""
        answer = [*answer, END]
        if not 1 < len(answer) <= self.capacity:
            return
        with self._lock:
            tokens, start = self._array.tokens, 0
            while len(tokens) - start + len(answer) > self.capacity:
                start = tokens.index(END, start) + 1
            self._array.cut(start, len(tokens))
            self._array.extend(answer)

    def nearest(self, context: Sequence[int], num: int, ahead: int) -> list[Match]:
        """The places most like a context, as of a suffix array; END follows where an answer ends."""
        with self._lock:
            return self._array.nearest(context, num, ahead)

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        with self._lock:
            tokens = torch.tensor(self._array.tokens, dtype=torch.int32)
        data = save({"tokens": tokens}, {"format": _FORMAT, "tokenizer": self.tokenizer})
        part = Path(f"{path}.{os.getpid()}.{get_ident()}.part")
        try:
            part.write_bytes(data)
            os.replace(part, path)
        except OSError as error:
            raise OptionError(f"cannot write {path}: {error.strerror or error}") from error
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, tokenizer: str, capacity: int = CAPACITY) -> "SuffixMemory":
        """Read a file: its latest answers, as many as there is room for."""
        memory = cls(tokenizer, capacity)
        tokens = _read(path, tokenizer)
        start = 0
        while len(tokens) - start > capacity:
            start = tokens.index(END, start) + 1
        memory._array.extend(tokens[start:])
        return memory


def _read(path: str | Path, tokenizer: str) -> list[int]:
    """The answers of a file, END behind each."""
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            tensor = file.get_tensor("tokens") if about.get("format") == _FORMAT else None
    except (SafetensorError, OSError) as error:
        raise OptionError(f"cannot read {path}: {error}") from error
    if tensor is None or tensor.dtype != torch.int32 or tensor.dim() != 1:
        raise OptionError(f"{path} is no suffix memory that this version can read")
    if (theirs := about.get("tokenizer")) != tokenizer:
        raise OptionError(
            f"{path} is a suffix memory for {theirs}, not for {tokenizer}: name another file"
        )
    tokens = tensor.tolist()
    if tokens and (min(tokens) < END or tokens[-1] != END):
        raise OptionError(f"{path} is damaged: it holds what is no answer")
    return tokens
