"""Who takes part: each peer at each precision, its settings, and how its worker is started."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.peers import models
from benchmarks.peers.environments import ENVIRONMENTS, ROOT

_WORKERS = Path(__file__).parent / "workers"

DRAFTED = ("draft", "mixed", "assisted")
"""Settings that take a draft model."""

OURS = "draftwise"
"""What the others are compared with: it takes part in every crew."""

CLASSES = {"bfloat16": "equal precision (bfloat16)", "4-bit": "what a user would run (4-bit)"}


@dataclass(frozen=True, slots=True)
class Peer:
    """One process: settings that share a model, or the one setting that the engine is opened with.

    environment: None is draftwise's own. files: from a model's name and precision to what is loaded.
    model_options: of draftwise's `ModelOptions`.
    """

    name: str
    precision: str
    settings: tuple[str, ...]
    script: str
    environment: str | None
    files: Callable[[str, str], Path | str]
    model_options: tuple[tuple[str, str], ...] = ()

    def key(self, setting: str) -> tuple[str, str, str]:
        """What a setting's answers are kept under."""
        return self.name, self.precision, setting

    @property
    def weights(self) -> float:
        """Bytes of memory for each weight, what is kept beside the weights included."""
        return {"bfloat16": 2.25, "4-bit": 1.0}[self.precision]


def _folder(name: str, precision: str) -> Path:
    return models.transformers_folder(name)


def _ours(precision: str, *settings: str, **options: str) -> Peer:
    return Peer(
        OURS, precision, settings, "ours.py", None, lambda name, _: name, (*options.items(),)
    )


def _genai(precision: str, setting: str) -> Peer:
    return Peer(
        "OpenVINO GenAI", precision, (setting,), "genai.py", "openvino", models.openvino_folder
    )


def _llama(precision: str, setting: str) -> Peer:
    return Peer(
        "llama.cpp", precision, (setting,), "llama_server.py", "llama.cpp", models.gguf_file
    )


def _vllm(setting: str) -> Peer:
    return Peer("vLLM", "bfloat16", (setting,), "vllm_cpu.py", "vllm", _folder)


_OURS = ("plain", "suffix", "mixed")
_ALONE = ("plain", "lookup")

PEERS = (
    # Drafts stand last: engines that refuse a draft of another vocabulary hold no memory after that.
    _ours("bfloat16", *_OURS, dtype="bfloat16"),
    *(_genai("bfloat16", setting) for setting in _ALONE),
    *(_llama("bfloat16", setting) for setting in _ALONE),
    *(_vllm(setting) for setting in _ALONE),
    Peer(
        "transformers",
        "bfloat16",
        ("plain", "lookup", "assisted"),
        "hf.py",
        "transformers",
        _folder,
    ),
    Peer("FlashSpec", "bfloat16", ("lookup", "draft"), "flash.py", "flashspec", _folder),
    _vllm("draft"),
    _genai("bfloat16", "draft"),
    _llama("bfloat16", "draft"),
    _ours("4-bit", *_OURS, dtype="bfloat16", weights="int4"),
    *(_genai("4-bit", setting) for setting in _ALONE),
    *(_llama("4-bit", setting) for setting in _ALONE),
    _genai("4-bit", "draft"),
    _llama("4-bit", "draft"),
)


class WorkerError(Exception):
    """A worker ended, or could not do what it was asked; in one line."""


def _python(environment: str) -> Path:
    """The interpreter of an environment; WorkerError if it was not built."""
    found = ENVIRONMENTS[environment]
    if found.failure.exists():
        reason = found.failure.read_text().strip()
        raise WorkerError(f"its environment could not be built: {reason}")
    if not found.python.exists():
        raise WorkerError("its environment is not here: run the build first")
    return found.python


class Worker:
    """A peer's process. failures: settings that it could not open, and why. versions: of its packages."""

    def __init__(self, peer: Peer, settings: Sequence[str], options: Mapping[str, Any]) -> None:
        self.peer = peer
        python = _python(peer.environment) if peer.environment else sys.executable
        files = {
            which: str(peer.files(options[which], peer.precision)) for which in ("target", "draft")
        }
        given = dict(options) | files
        given |= {"settings": list(settings), "model_options": dict(peer.model_options)}
        self._process = subprocess.Popen(
            [python, _WORKERS / peer.script, json.dumps(given)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group: a worker may have processes of its own
        )
        self._log = deque[str](maxlen=200)
        self._reader = Thread(target=self._read_log, daemon=True)
        self._reader.start()
        try:
            ready = self._read()
        except BaseException:  # an interruption too: a worker that is still loading would go on
            self.close()
            raise
        self.failures: dict[str, str] = ready["failures"]
        self.versions: dict[str, str] = ready["versions"]

    def ask(self, setting: str, ids: Sequence[int], tokens: int) -> dict[str, Any]:
        """New ids, seconds, and first_token_seconds or None."""
        request = json.dumps({"setting": setting, "ids": list(ids), "tokens": tokens})
        assert self._process.stdin
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `_read` tells what became of it
        answer = self._read()
        if "failure" in answer:
            raise WorkerError(answer["failure"])
        return answer

    def close(self) -> None:
        """Let it end, which it does at the end of its input; wait until its memory is free."""
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it ended by itself
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._reader.join(timeout=5)
            told = [entry for entry in self._log if "error" in entry.lower()] or [*self._log, ""]
            raise WorkerError(f"its process ended with {code}: {told[-1][:300]}")
        return json.loads(line)

    def _read_log(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            if line.strip():
                self._log.append(line.strip())
