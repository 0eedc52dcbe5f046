"""The proof: identical is identical, a near-tie is called one, and a corrupted cache is a fault."""

import json

import pytest
import torch

from draftwise.decoding.proof import prove
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.toys import VOCAB_SIZE, noisy, table_model, toy

from .rig import Says, plain, request, some_prompt, speculate


def runs(runner, asked, session=None):
    """A plain and a speculative run of one request on one runner."""
    session = session or Says(lambda ids, k: [ids[-1]] * k).open()
    with Row(runner) as row:
        alone = plain(asked, row)
    with Row(runner) as row:
        return alone, speculate(asked, row, session)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_runs_of_a_sound_cache_are_identical_to_the_last_token(temperature):
    runner = EagerRunner(toy("llama"))
    draft = DraftModel(EagerRunner(noisy(toy("llama"), 0.1)), "noisy").open()
    asked = request(some_prompt(1), max_tokens=30, temperature=temperature)
    identity = prove(*runs(runner, asked, draft), runner)
    assert identity.identical
    assert not identity.fault
    assert identity.tokens == 30
    assert identity.as_json() is True


class WobblesWhenWide(EagerRunner):
    """Sound, but its arithmetic differs by `wobble` between passes of one token and wider ones."""

    wobble = 0.0
    column = 0

    @torch.inference_mode()
    def read(self, reads, hidden_layers=()):
        readings = super().read(reads, hidden_layers)
        for reading, read in zip(readings, reads, strict=True):
            if len(read.tokens) > 1 and read.num_logits:
                reading.logits[:, self.column] += self.wobble
        return readings


def tied_model(margin):
    """Writes 1 after anything, by `margin` over 0."""
    logits = torch.full((VOCAB_SIZE, VOCAB_SIZE), -5.0, dtype=torch.float64)
    logits[:, 1], logits[:, 0] = 8.0, 8.0 - margin
    return table_model(logits)


def test_a_tie_that_rounding_decides_is_a_near_tie_and_never_called_identical():
    runner = WobblesWhenWide(tied_model(1e-5).float())
    runner.wobble = 3e-5
    asked = request(some_prompt(2), max_tokens=12)
    identity = prove(*runs(runner, asked), runner)
    assert identity.partings
    assert not identity.identical
    assert not identity.fault
    report = identity.as_json()
    assert isinstance(report, dict)
    assert json.loads(json.dumps(report, allow_nan=False))["near_ties"][0]["position"] == 0


def test_the_comparison_goes_on_behind_a_near_tie():
    """After one near-tie the runs agree again, and a fault behind it is still found."""
    runner = WobblesWhenWide(tied_model(1e-5).float())
    runner.wobble = 3e-5
    asked = request(some_prompt(2), max_tokens=12)
    alone, run = runs(runner, asked)
    assert len(prove(alone, run, runner).partings) > 1
    last = run.rounds[-1]
    forged = tuple(7 for _ in last.tokens)
    run.rounds[-1] = type(last)(
        tokens=forged,
        origins=last.origins,
        segments=last.segments,
        count=last.count,
        leading=last.leading,
    )
    identity = prove(alone, run, runner)
    assert identity.fault
    assert identity.as_json() is False
    assert not identity.partings[-1].near_tie


def test_a_margin_that_rounding_cannot_bridge_is_a_fault():
    runner = WobblesWhenWide(tied_model(0.5).float())
    runner.wobble = 1.0  # a wide pass is simply wrong, and so are the replays: the cap tells
    asked = request(some_prompt(3), max_tokens=6)
    assert prove(*runs(runner, asked), runner).fault


def test_an_output_that_ends_early_is_a_fault():
    runner = EagerRunner(toy("llama"))
    asked = request(some_prompt(4), max_tokens=12)
    alone, run = runs(runner, asked)
    run.rounds.pop()
    identity = prove(alone, run, runner)
    assert identity.fault
    assert identity.partings[-1].speculative_token is None


class KeepsWhatIsRejected(EagerRunner):
    """Faulty: after a crop the next token is written one place too far, behind a stale one."""

    def crop(self, row, length):
        if length < self.length(row):
            self._cache.lengths[row] = min(length + 1, self.length(row))


class ForgetsAKey(EagerRunner):
    """Faulty: every rollback damages the keys of an early position in one layer."""

    @torch.inference_mode()
    def crop(self, row, length):
        rolled_back = length < self.length(row)
        super().crop(row, length)
        if rolled_back:
            self._cache.layers[1].key_buffer[row, :, 2] = 3.0


@pytest.mark.parametrize("faulty", [KeepsWhatIsRejected, ForgetsAKey])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_corrupted_cache_is_reported_as_a_fault(faulty, dtype, temperature):
    runner = faulty(toy("llama").to(dtype))
    reported = 0
    for seed in range(5):
        asked = request(some_prompt(seed), max_tokens=24, temperature=temperature, seed=seed)
        alone, run = runs(runner, asked)
        if alone.token_ids != run.token_ids:
            reported += 1
            assert prove(alone, run, runner).fault, f"seed {seed}"
    assert reported == 5


def test_in_bfloat16_a_sound_cache_is_never_a_fault():
    runner = EagerRunner(toy("qwen3").to(torch.bfloat16))
    for seed in range(6):
        for temperature in (0.0, 1.0):
            asked = request(
                some_prompt(seed),
                max_tokens=24,
                temperature=temperature,
                seed=seed,
                top_k=20,
                top_p=0.9,
            )
            identity = prove(*runs(runner, asked), runner)
            assert not identity.fault, str(identity.partings[-1])
