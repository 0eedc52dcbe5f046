"""`draftwise generate` as a user meets it: prompts, outputs, errors, interrupts."""

import os
import pty
import signal
import subprocess
import time

import pytest

from .conftest import as_json


def test_only_the_text_is_on_stdout_and_proof_and_bill_are_beside_it(generate):
    told = as_json(generate("Rivers?", "--json"))
    process = generate("Rivers?")
    assert process.returncode == 0
    assert process.stdout.decode() == told["text"] + "\n"
    shown = process.stderr.decode()
    assert "identical: all 20 tokens" in shown
    for row in (
        "tokens/s", "target passes", "draft passes", "drafted", "accepted", "discarded", "alpha",
        "draft utilisation", "tokens a round", "ms a target pass", "ms a draft pass", "c, draft pass",
        "v, verify pass", "speed-up predicted", "speed-up measured", "float32", "1 threads",
    ):  # fmt: skip
        assert row in shown, row


def test_a_prompt_comes_from_the_argument_an_option_a_file_or_stdin_all_the_same(
    generate, tmp_path
):
    file = tmp_path / "prompt.txt"
    file.write_bytes("\ufeffŽluťoučký kůň 🦊\n".encode())
    text = "Žluťoučký kůň 🦊"
    ways = [
        generate(text, "--json"),
        generate("--prompt", text, "--json"),
        generate("--prompt-file", file, "--json"),
        generate("--json", stdin=file.read_bytes()),
        generate("--prompt-file", "-", "--json", stdin=file.read_bytes()),
    ]
    texts = [as_json(way)["token_ids"] for way in ways]
    assert all(ids == texts[0] for ids in texts)


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        ((), b"", "standard input is empty"),
        (("",), b"", "the prompt is empty"),
        ((), b"caf\xe9", "standard input is not UTF-8 at byte 3"),
        (("--prompt-file", "missing.txt"), b"", "cannot read missing.txt: No such file"),
        (("x", "--prompt-file", "missing.txt"), b"", "give the prompt once"),
        (("x", "--prompt", "y"), b"", "give the prompt once"),
        (("--prompt-file", "~nobody-here/x"), b"", "cannot read ~nobody-here/x"),
        (("x", "--stop", ""), b"", "a stop string is empty"),
        (("x", "--draft", "lookup", "--draft-dtype", "float32"), b"", "draft_dtype is for a draft"),
        (("x", "--temperature", "nan"), b"", "temperature"),
        (("x", "--tokens", "0"), b"", "tokens is 0"),
        (("x", "--rule", "guess"), b"", "'guess' is not one of"),
        (("x", "--temprature", "1"), b"", "--temperature"),
        (("x", "--logit-bias", "a=b"), b"", "ID=BIAS"),
        (("x", "--threads", "100000"), b"", "threads"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_2(generate, arguments, stdin, said):
    process = generate(*arguments, stdin=stdin)
    shown = process.stderr.decode()
    assert process.returncode == 2, shown
    assert said in shown
    assert "Traceback" not in shown
    assert process.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "./nowhere"), "There is no folder or file nowhere"),
        (("--target", "~/nowhere.gguf"), "nowhere.gguf"),
        (("--target", "~nobody-here/x"), "is no model's name or path"),
        (("--target", "a long prompt in the wrong place " * 20), "is no model's name or path"),
        (("--target", "smollm2-135"), "did you mean smollm2-135m"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_clear_line_and_exit_1(generate, arguments, said):
    start = time.monotonic()
    process = generate("x", *arguments)
    shown = process.stderr.decode()
    assert process.returncode == 1, shown
    assert said in shown
    assert shown.count("\n") == 1
    assert time.monotonic() - start < 60


def test_a_wrong_value_is_told_before_any_model_is_looked_for(generate):
    process = generate("x", "--target", "./nowhere", "--temperature", "nan")
    assert process.returncode == 2
    assert b"temperature" in process.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_text_is_utf8_whatever_the_locale_says(start, encoding):
    locale = {**os.environ, "PYTHONIOENCODING": encoding}
    with start(
        "Rivers?", "--raw", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=locale
    ) as process:
        out, shown = process.communicate(timeout=120)
    assert process.returncode == 0, shown.decode()
    assert out.decode("utf-8")
    assert not out.isascii()


def test_stream_on_a_pipe_is_the_plain_text(generate):
    assert generate("Rivers?", "--stream").stdout == generate("Rivers?").stdout


def test_without_a_baseline_nothing_is_claimed(generate):
    told = as_json(generate("Rivers?", "--no-baseline", "--json"))
    assert told["baseline"] is told["identical"] is told["speedup"] is None
    assert "not compared" in generate("Rivers?", "--no-baseline").stderr.decode()


def test_a_model_drafts_and_the_json_tells_the_settings_that_took_effect(generate):
    sampled = ("--temperature", "0.8", "--top-k", "40", "--seed", "7")
    stops = ("--stop", "zzzz", "--stop", "yyyy")
    told = as_json(generate("Rivers?", "--draft", "./draft", "-k", "3", *sampled, *stops, "--json"))
    settings = told["settings"]
    assert told["identical"] is True
    assert told["counters"]["draft_passes"] > 0
    assert (settings["k"], settings["seed"], settings["stop"]) == (3, 7, ["zzzz", "yyyy"])
    assert settings["draft"].endswith("draft")
    assert settings["threads"] == 1
    assert told["versions"]["transformers"]


def test_ctrl_c_keeps_the_partial_text_and_exits_130(start):
    with start("Rivers?", "--stream", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        rest, shown = process.communicate(timeout=60)
    assert process.returncode == 130, shown.decode()
    assert first + rest
    assert b"Traceback" not in shown
    assert b"tokens/s" in shown


def test_a_closed_pipe_is_no_error(start):
    with start("Rivers?", "--stream", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        shown = process.stderr.read()
    assert process.returncode == 0, shown.decode()
    assert b"Traceback" not in shown
    assert b"BrokenPipe" not in shown


def test_stream_on_a_terminal_is_coloured_and_has_a_status_line(start):
    master, slave = pty.openpty()
    terminal = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    given = ("Rivers?", "--stream", "--no-baseline")
    with start(*given, stdout=slave, stderr=subprocess.PIPE, env=terminal) as process:
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:  # how Linux reports that the other side is gone
            pass
        told = process.stderr.read()
    os.close(master)
    assert process.returncode == 0, told.decode()
    assert b"\x1b[32m" in shown  # accepted tokens in green
    assert b"rounds" in shown
    assert b"accepted" in shown
