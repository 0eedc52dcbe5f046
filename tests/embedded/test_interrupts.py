"""Ctrl-C while a long prompt is read: a user gets away at once, and nothing is lost."""

import _thread
import threading
import time

import pytest
import torch

from draftwise.engine.load import load_runner
from draftwise.engine.options import ModelOptions
from draftwise.models.row import Row

pytest.importorskip("openvino")

TOKENS = 2000


def test_a_long_prompt_is_left_on_the_way_and_read_again_afterwards():
    target, runner = load_runner("smollm2-135m", ModelOptions(runner="openvino"))
    with Row(runner) as row:
        ids = target.tokenizer.encode("The quick brown fox jumps over the lazy dog. " * 300)
        before, prompt = ids[:100], ids[:TOKENS]
        row.prefill(before)
        start = time.perf_counter()
        expected = row.logits(prompt)
        whole = time.perf_counter() - start
        row.prefill(before)
        timer = threading.Timer(0.3 * whole, _thread.interrupt_main)
        start = time.perf_counter()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            row.logits(prompt)
        assert time.perf_counter() - start < 0.8 * whole
        torch.testing.assert_close(row.logits(prompt), expected, rtol=0.02, atol=0.2)
        torch.testing.assert_close(row.logits(prompt[:-5]), row.logits(prompt[:-5]))
