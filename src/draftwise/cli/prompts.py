"""Where a prompt comes from: the argument, a file, or standard input. Always UTF-8."""

import sys
from pathlib import Path

from draftwise.core.errors import PromptError

_BOM = "\ufeff"


def read_prompt(text: str | None, file: str | None) -> str:
    """Return the prompt of a command. A final newline of a file or of standard input is dropped."""
    if text is not None and file is not None:
        raise PromptError("give the prompt as an argument or as a file, not both")
    if text is not None:
        return _checked(text)
    if file is not None and file != "-":
        path = Path(file).expanduser()
        try:
            return decoded(path.read_bytes(), file)
        except OSError as error:
            raise PromptError(f"cannot read {file}: {error.strerror or error}") from error
    if file is None and sys.stdin.isatty():
        raise PromptError(
            "there is no prompt: give it as an argument, with --prompt-file, or pipe it in"
        )
    return decoded(sys.stdin.buffer.read(), "standard input")


def decoded(data: bytes, name: str) -> str:
    """Decode UTF-8, dropping a byte order mark; anything else is refused with its byte offset."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 at byte {error.start}: convert it first") from error
    text = text.removeprefix(_BOM)
    for newline in ("\r\n", "\n"):
        if text.endswith(newline):
            text = text.removesuffix(newline)
            break
    if not text:
        raise PromptError(f"{name} is empty: give at least one token of text")
    return text


def _checked(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(f"the prompt is not UTF-8 at character {error.start}") from error
    if not text:
        raise PromptError("the prompt is empty: give at least one token of text")
    return text
