"""The command line as a user runs it, on toys saved to disk."""

import io
import json
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from draftwise.cli.main import main
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer, word_tokenizer
from draftwise.testing.toys import noisy, toy


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders of a target, of a draft that fits, and of one that does not."""
    root = tmp_path_factory.mktemp("models")
    target, other_tokenizer = toy("llama", vocab_size=NUM_TOKENS), byte_tokenizer()
    other_tokenizer.add_tokens(["hello"])
    saved = {
        "target": (target, byte_tokenizer()),
        "draft": (noisy(target, 0.05), byte_tokenizer()),
        "nothing": (toy("llama", seed=3, vocab_size=3), word_tokenizer()),
        "other": (toy("llama", seed=2, vocab_size=NUM_TOKENS + 1), other_tokenizer),
    }
    for name, (model, tokenizer) in saved.items():
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


@dataclass(frozen=True)
class Finished:
    """What a command printed and returned."""

    returncode: int
    stdout: bytes
    stderr: bytes


@pytest.fixture
def command(folders, monkeypatch):
    """Run draftwise within this process, as its entry point does, with streams of its own."""

    def run(*arguments, stdin=b""):
        streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8") for name in ("stdout", "stderr")}
        with monkeypatch.context() as patch:
            patch.chdir(folders)
            patch.setenv("DRAFTWISE_CACHE", str(folders / "cache"))
            patch.setattr(sys, "argv", ["draftwise", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "ascii"))
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            with pytest.raises(SystemExit) as exit_:
                main()
            for stream in streams.values():
                stream.flush()
        return Finished(
            exit_.value.code, *(stream.buffer.getvalue() for stream in streams.values())
        )

    return run


@pytest.fixture
def generate(command):
    """Generate with the toys in float32, 20 tokens."""

    def run(*arguments, **kwargs):
        given = ("--target", "./target", "--dtype", "float32", "--tokens", "20", "--threads", "1")
        return command("generate", *given, *arguments, **kwargs)

    return run


@pytest.fixture
def start(folders):
    """Start a long `draftwise generate` in a process of its own."""
    given = (
        "--target",
        "./target",
        "--dtype",
        "float32",
        "--threads",
        "1",
        "--tokens",
        "400",
        "--ignore-eos",
    )

    def run(*arguments, **kwargs):
        return subprocess.Popen(
            [sys.executable, "-m", "draftwise", "generate", *given, *arguments],
            cwd=folders,
            # In a background job of a shell SIGINT is ignored, and so it would be in its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **kwargs,
        )

    return run


def as_json(process):
    assert process.returncode == 0, process.stderr.decode()
    return json.loads(process.stdout)
