"""Files of records: JSON Lines, written as it goes, resumable.

A line is written at once and whole, and is on the disk before the next piece of work starts. If the
machine fails all the same, opening the file again drops the half line that it left. Whatever is no
record is refused with the number of its line: a report of half a file would be a wrong report.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from draftwise.core.closing import Closing
from draftwise.core.errors import OptionError
from draftwise.measure.records import AnyRecord, Record

_ADAPTER: TypeAdapter[AnyRecord] = TypeAdapter(AnyRecord)
_BEGINNING = b'{"schema_version":'
Kind = TypeVar("Kind", bound=Record)


def line_of(record: Record) -> bytes:
    """A record as a line of JSON, its newline included."""
    return record.model_dump_json().encode() + b"\n"


def read_records(path: Path) -> list[AnyRecord]:
    """All records of a file. OptionError names the line that is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from error
    return list(_parsed(path, data))


def of_kind(records: list[AnyRecord], kind: type[Kind]) -> list[Kind]:
    """The records of one kind, in order."""
    return [record for record in records if isinstance(record, kind)]


class Recording(Closing):
    """A file that is open for more records; `records` holds all that it has. A context manager.

    path: None keeps records in memory only. One program writes a file at a time; a second is refused.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.records: list[AnyRecord] = []
        self._file = None if path is None else self._open(path)

    def add(self, *records: AnyRecord) -> None:
        """Write records that belong together, at once. When this returns, they are on the disk."""
        if self._file is not None:
            self._write(self._file, b"".join(map(line_of, records)))
        self.records += records

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, path: Path) -> int:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise OptionError(f"{path} cannot be written: {error.strerror}") from error
        try:
            _lock(file, path)
            whole = _whole_lines(path.read_bytes())
            self.records = list(_parsed(path, whole))
            os.ftruncate(file, len(whole))
            if whole and not whole.endswith(b"\n"):
                self._write(file, b"\n")
        except BaseException:
            os.close(file)
            raise
        return file

    def _write(self, file: int, data: bytes) -> None:
        """All of it, or nothing and an error."""
        before = os.fstat(file).st_size
        try:
            while data:
                taken = os.write(file, data)
                if not taken:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = data[taken:]
            os.fsync(file)
        except OSError as error:
            os.ftruncate(file, before)
            raise OptionError(f"{self.path} cannot be written: {error.strerror}") from error


def _whole_lines(data: bytes) -> bytes:
    """The data without the half record that a failing machine left at its end; nothing else is cut."""
    tail = data[data.rfind(b"\n") + 1 :]
    begins = tail.startswith(_BEGINNING) or _BEGINNING.startswith(tail)
    if not tail or not begins:
        return data
    try:
        _ADAPTER.validate_json(tail)
    except ValidationError:
        return data[: -len(tail)]
    return data


def _lock(file: int, path: Path) -> None:
    """Keep a second program out. Where the system has no such locks (Windows), trust the user."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OptionError(
            f"{path} is being written by another program: wait, or name another"
        ) from None


def _parsed(path: Path, data: bytes) -> Iterator[AnyRecord]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _ADAPTER.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise OptionError(
                f"{path}, line {number} is no record: {where}: {first['msg']}"
            ) from error
