"""What to measure on: built-in workloads, or the user's own prompts.

Acceptance depends on the text more than on anything else, so there are several kinds of it, with
several prompts each: a result on one prompt says little.
"""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from draftwise.core.errors import OptionError, PromptError
from draftwise.text.tokenizer import Message
from draftwise.text.utf8 import decoded

STDIN = "standard input"


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of text, one line about it, and prompts that ask for it."""

    name: str
    about: str
    prompts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """A prompt, or a conversation, and its place in its workload."""

    workload: str
    index: int
    prompt: str | tuple[Message, ...]


def builtin_workloads() -> dict[str, Workload]:
    """All built-in workloads by name."""
    text = files("draftwise.measure").joinpath("workloads.toml").read_text(encoding="utf-8")
    return {
        name: Workload(name, table["about"], tuple(map(str.strip, table["prompts"])))
        for name, table in tomllib.loads(text).items()
    }


def choose(names: Sequence[str] = (), limit: int | None = None) -> list[BenchPrompt]:
    """Prompts of the built-in workloads of these names, by default of all; limit: most of each."""
    known = builtin_workloads()
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise OptionError(f"there is no workload {name}: {hint}")
    chosen = dict.fromkeys(names or known)
    return _limited(
        [
            BenchPrompt(name, index, prompt)
            for name in chosen
            for index, prompt in enumerate(known[name].prompts)
        ],
        limit,
    )


def read_prompts(path: str, limit: int | None = None) -> list[BenchPrompt]:
    """The user's own prompts: of a .jsonl file one a line, else the whole text; "-" is standard input.

    A line is an object with `prompt` (text) or `messages` (a list of objects with role and content),
    and with `workload` if it has one: otherwise that is the file's name without its ending. limit:
    most prompts of each workload.
    """
    text = _text(path)
    if not path.endswith(".jsonl"):
        return _limited([BenchPrompt("stdin" if path == "-" else Path(path).stem, 0, text)], limit)
    prompts, places = [], Counter[str]()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            workload, prompt = _parsed(line, Path(path).stem)
        except ValueError as error:
            raise PromptError(f"{path}, line {number}: {error}") from error
        prompts.append(BenchPrompt(workload, places[workload], prompt))
        places[workload] += 1
    return _limited(prompts, limit)


def _limited(prompts: list[BenchPrompt], limit: int | None) -> list[BenchPrompt]:
    if limit is not None and limit < 1:
        raise OptionError(f"limit is {limit}: give 1 or more")
    return [prompt for prompt in prompts if limit is None or prompt.index < limit]


def _text(path: str) -> str:
    """The text of a file: UTF-8 whatever the locale, without a byte order mark."""
    name = STDIN if path == "-" else path
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).expanduser().read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name of nobody
        reason = getattr(error, "strerror", None) or error
        raise PromptError(f"cannot read {name}: {reason}") from error
    text = decoded(data, name)
    if not text.strip():
        raise PromptError(f"{name} is empty: give at least one prompt")
    return text.removesuffix("\n").removesuffix("\r")


def _parsed(line: str, default: str) -> tuple[str, str | tuple[Message, ...]]:
    """Workload and prompt of a line of JSON. ValueError says what is wrong with it."""
    try:
        given = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at column {error.colno}: {error.msg}") from error
    if not isinstance(given, dict):
        raise ValueError('not an object, such as {"prompt": "Name three rivers."}')
    if unknown := sorted(given.keys() - {"prompt", "messages", "workload"}):
        raise ValueError(f"{unknown[0]} is not known: there are prompt, messages and workload")
    if ("prompt" in given) == ("messages" in given):
        raise ValueError("give either prompt or messages")
    workload = _filled(given.get("workload", default), "workload")
    if "prompt" in given:
        return workload, _filled(given["prompt"], "prompt")
    return workload, _conversation(given["messages"])


def _conversation(given: Any) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise ValueError("messages is no list of messages")
    for message in given:
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise ValueError("a message is an object with role and content")
    return tuple(
        Message(_filled(m["role"], "role"), _string(m["content"], "content")) for m in given
    )


def _filled(value: Any, name: str) -> str:
    if not _string(value, name):
        raise ValueError(f"{name} is empty")
    return value


def _string(value: Any, name: str) -> str:
    """A value if it is text, whole: JSON can spell half a character, which is not UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not UTF-8 at character {error.start}") from error
    return value
