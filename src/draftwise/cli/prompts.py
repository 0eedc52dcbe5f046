"""Where a prompt comes from: the argument, a file, or standard input. Always UTF-8."""

import sys
from pathlib import Path

from draftwise.core.errors import PromptError
from draftwise.text.utf8 import decoded


def read_prompt(argument: str | None, text: str | None, file: str | None) -> str:
    """Return the prompt of a command. A final newline of a file or of standard input is dropped."""
    if sum(given is not None for given in (argument, text, file)) > 1:
        raise PromptError("give the prompt once: as an argument, with --prompt, or as a file")
    for given in (argument, text):
        if given is not None:
            return _checked(given)
    if file is not None and file != "-":
        try:
            return _prompt_of(Path(file).expanduser().read_bytes(), file)
        except (OSError, RuntimeError) as error:  # RuntimeError: ~name of nobody
            reason = getattr(error, "strerror", None) or error
            raise PromptError(f"cannot read {file}: {reason}") from error
    if file is None and sys.stdin.isatty():
        raise PromptError(
            "there is no prompt: give it as an argument, with --prompt-file, or pipe it in"
        )
    return _prompt_of(sys.stdin.buffer.read(), "standard input")


def _prompt_of(data: bytes, name: str) -> str:
    text = decoded(data, name)
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
