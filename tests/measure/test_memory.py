"""Does it fit? Counted against toys whose every tensor is known."""

from types import SimpleNamespace

import psutil
import pytest
import torch

from draftwise.measure.memory import MemoryFit, memory_fit
from draftwise.models.eager import EagerRunner
from draftwise.models.runner import Read
from draftwise.testing.toys import CONFIGS, toy
from tests.models.rig import one_thread  # noqa: F401

LLAMA_CACHE = 3 * 2 * 2 * 8  # layers, keys and values, heads, head size


@pytest.fixture(autouse=True)
def a_gigabyte(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))


def runner(kind="llama", dtype=torch.float32, **kwargs):
    return EagerRunner(toy(kind, dtype=dtype, **kwargs))


def test_the_bytes_of_weights_and_cache_follow_the_dtype():
    wide, narrow = (
        memory_fit(runner(), None, 100),
        memory_fit(runner(dtype=torch.bfloat16), None, 100),
    )
    assert wide.cache_per_token == LLAMA_CACHE * 4
    assert wide.target_weights == 2 * narrow.target_weights
    assert wide.needed == 2 * narrow.needed == wide.target_weights + 100 * wide.cache_per_token


def test_tied_weights_are_counted_once():
    model = toy("gpt2", dtype=torch.float32)
    assert model.lm_head.weight is model.transformer.wte.weight
    stored = {w.data_ptr(): w.nbytes for w in model.parameters()}
    assert memory_fit(EagerRunner(model), None, 1).target_weights == sum(stored.values())


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_token_is_as_large_as_what_the_cache_really_holds(kind):
    reader = runner(kind)
    measured = memory_fit(reader, None, 1).cache_per_token
    reader.read([Read(reader.add_row(), [1, 2, 3])])
    layers = reader._cache.layers
    held = sum(layer.key_buffer.nbytes + layer.value_buffer.nbytes for layer in layers)
    slots, _, capacity, _ = layers[0].key_buffer.shape
    assert measured == held / (slots * capacity)


def test_measuring_leaves_the_rows_of_a_runner_alone():
    reader = runner()
    row = reader.add_row()
    memory_fit(reader, None, 1)
    assert reader.length(row) == 0
    assert reader.add_row() == row + 1


def test_a_draft_adds_its_weights_and_its_cache():
    target, draft = runner(), runner("gpt2")
    alone, both = memory_fit(target, None, 10), memory_fit(target, draft, 10)
    assert both.draft_weights == draft.info.weight_bytes
    assert both.cache_per_token == alone.cache_per_token + draft.cache_bytes_per_token


def test_a_target_that_drafts_for_itself_has_its_weights_once_and_two_rows():
    target = runner()
    fit = memory_fit(target, target, 10)
    assert fit.draft_weights == 0
    assert fit.cache_per_token == 2 * target.cache_bytes_per_token
    assert fit.available == 10**9 + target.info.weight_bytes


def test_a_draft_on_another_device_takes_nothing_here():
    elsewhere = SimpleNamespace(info=SimpleNamespace(device=torch.device("cuda", 0)))
    target = runner()
    assert memory_fit(target, elsewhere, 10) == memory_fit(target, None, 10)


def test_what_is_loaded_already_is_part_of_what_is_there():
    target, draft = runner(), runner("gpt2")
    weights = target.info.weight_bytes + draft.info.weight_bytes
    assert memory_fit(target, draft, 10).available == 10**9 + weights


def test_on_a_gpu_what_is_free_and_what_this_process_holds_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 40)
    info = SimpleNamespace(device=torch.device("cuda", 0), weight_bytes=30)
    fit = memory_fit(SimpleNamespace(info=info, cache_bytes_per_token=2), None, 5)
    assert (fit.available, fit.device, fit.needed) == (740, "cuda:0", 40)


def test_it_fits_up_to_the_last_byte():
    def fits(available):
        return MemoryFit(60, 30, 2, 5, available, "cpu").fits

    assert fits(100)
    assert not fits(99)


def test_it_says_in_one_sentence_what_is_needed_and_what_is_there():
    fit = MemoryFit(3_090_000_000, 270_000_000, 50_000, 4096, 6_000_000_000, "cuda:0")
    assert str(fit) == (
        "fits: 3.56 GB needed (target 3.09, draft 0.27, cache 0.20 for 4,096 tokens), "
        "6.00 GB available on cuda:0"
    )
    tight = MemoryFit(3_090_000_000, 0, 50_000, 4096, 3_000_000_000, "cpu")
    assert str(tight).startswith("does not fit: 3.29 GB needed (target 3.09, cache 0.20 for")
