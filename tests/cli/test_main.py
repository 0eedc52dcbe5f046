"""The command line as a whole: help, version, lazy imports, the check verb."""

import json
import subprocess
import sys
import time

import pytest

from draftwise.cli.main import VERBS
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import toy


def test_help_names_every_verb_and_imports_neither_torch_nor_transformers():
    script = (
        "import sys\nfrom draftwise.cli.main import draftwise\n"
        "try:\n    draftwise(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys(), 'heavy imports'\n"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    for verb in VERBS:
        assert verb in process.stdout


def test_the_package_itself_imports_neither_torch_nor_transformers():
    script = "import sys, draftwise\nassert not {'torch', 'transformers'} & sys.modules.keys()"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_is_quick_and_complete(command, verb):
    start = time.monotonic()
    process = command(verb, "--help")
    assert process.returncode == 0
    of_records = {"report": (b"RECORDS",), "compare": (b"OLD", b"NEW")}
    for option in of_records.get(verb, (b"--target", b"--threads")):
        assert option in process.stdout
    assert time.monotonic() - start < 20


def test_an_unknown_verb_is_told_in_a_line(command):
    process = command("generat")
    assert process.returncode == 2
    assert b"generat" in process.stderr
    assert b"Traceback" not in process.stderr


def test_check_accepts_a_pair_that_fits(command):
    process = command("check", "--target", "./target", "--draft", "./draft")
    shown = process.stdout.decode()
    assert process.returncode == 0, process.stderr.decode()
    assert "the same vocabulary of 260 tokens" in shown
    assert "They can work together." in shown
    for row in (
        "context",
        "end tokens",
        "chat template",
        "device, dtype",
        "cache",
        "full_attention",
    ):
        assert row in shown


def test_check_of_different_vocabularies_names_the_tokens_and_says_what_is_shared(command):
    process = command("check", "--target", "./target", "--draft", "./other")
    shown = " ".join(process.stdout.decode().split())
    assert process.returncode == 0
    assert "260 is unused for the target, 'hello' for the draft" in shown
    assert "256 of the draft's 257 tokens (100%) are the target's too" in shown
    assert "100% of the target's tokens end where one of the draft's does" in shown
    told = json.loads(
        command("check", "--target", "./target", "--draft", "./other", "--json").stdout
    )
    assert told["usable"] is True
    assert told["vocabulary"]["kind"] == "different"
    assert told["sharing"]["shared"] == 256


def test_check_refuses_a_pair_with_nothing_in_common(command):
    process = command("check", "--target", "./target", "--draft", "./nothing")
    assert process.returncode == 1
    assert "no token in common" in " ".join(process.stdout.decode().split())


def test_check_of_a_pair_with_nothing_in_common_lets_it_pass_text(command):
    process = command(
        "check", "--target", "./target", "--draft", "./nothing", "--foreign", "string"
    )
    shown = " ".join(process.stdout.decode().split())
    assert process.returncode == 0, process.stderr.decode()
    assert "0 of the draft's 2 tokens (0%) are the target's too" in shown
    assert "They can work together." in shown


def test_check_shows_end_tokens_as_they_read(command, folders, tmp_path):
    for name, end in (("target", "[/INST]"), ("draft", "x:smile:")):
        tokenizer = byte_tokenizer()
        tokenizer.add_special_tokens({"eos_token": end})
        toy("llama", vocab_size=NUM_TOKENS + 1).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    process = command("check", "--target", tmp_path / "target", "--draft", tmp_path / "draft")
    assert process.returncode == 0, process.stderr.decode()
    shown = process.stdout.decode()
    row = next(line for line in shown.splitlines() if line.startswith("end tokens"))
    assert "[/INST]" in row
    assert "x:smile:" in row
    assert "end tokens differ ([/INST] against x:smile:)" in " ".join(shown.split())


def test_check_of_a_drafter_without_a_model_says_that_there_is_nothing_to_check(command):
    process = command("check", "--target", "./target", "--draft", "lookup")
    assert process.returncode == 2
    assert b"works with every target" in process.stderr
