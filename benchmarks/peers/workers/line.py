"""What every worker has in common: it opens its settings, then answers requests, in lines of JSON.

Only the standard library is used here: this runs in every peer's environment. A worker calls `serve`
with a function that opens one setting. Libraries print on standard output, so the answers take a copy
of it and everything else goes to standard error.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """New token ids, and what the peer tells of them.

    first_token_seconds: until the first of them. drafted, accepted, rounds: counts. predicted: the
    speed-up that theory makes of them.
    """

    ids: list[int]
    first_token_seconds: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    predicted: float | None = None


Decode = Callable[[list[int], int], Answer]
"""Prompt ids and the most tokens to write, to the answer."""


def serve(
    open_setting: Callable[[str, Mapping[str, Any]], Decode], packages: Sequence[str]
) -> None:
    """Open the settings that the first argument names, say how it went, and answer until the input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    options = json.loads(sys.argv[1])
    decoders, failures = {}, {}
    for setting in options["settings"]:
        try:
            decoders[setting] = open_setting(setting, options)
        except Exception as error:
            failures[setting] = _in_one_line(error)
    print(json.dumps({"failures": failures, "versions": _versions(packages)}), file=out)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            print(json.dumps(_answer(decoders[request["setting"]], request)), file=out)
        except Exception as error:
            print(json.dumps({"failure": _in_one_line(error)}), file=out)


def _answer(decode: Decode, request: Mapping[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    answer = decode(request["ids"], request["tokens"])
    return {"seconds": time.perf_counter() - start, **answer._asdict()}


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
