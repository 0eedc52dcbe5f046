"""Many rows in one cache: of any lengths, in any order, alone or together, each as if alone."""

import itertools

import pytest
import torch

from draftwise.models.eager import EagerRunner
from draftwise.models.runner import Read
from draftwise.testing.toys import CONFIGS, WINDOW, toy
from tests.models.rig import Mirror, alone, assert_near, buffers, one_thread, read, text  # noqa: F401

kinds = pytest.mark.parametrize("kind", CONFIGS)
exact_dtypes = pytest.mark.parametrize("dtype", (torch.float64, torch.float32), ids=str)


@kinds
@exact_dtypes
def test_rows_of_any_lengths_read_any_numbers_of_tokens_in_one_pass(
    kind: str, dtype: torch.dtype
) -> None:
    rows = Mirror(toy(kind, dtype=dtype))
    one, two, three = rows.add(text(3)), rows.add(text(3 * WINDOW)), rows.add()
    for counts in ((1, 1, 1), (5, 1, 9), (1, 2, 30), (2, 2, 2), (12, 3, 1)):
        seeds = itertools.count(sum(counts))
        news = zip((one, two, three), counts, strict=True)
        rows.read({row: text(count, next(seeds)) for row, count in news})
    rows.check()


@kinds
def test_rows_crop_each_for_itself_between_passes(kind: str) -> None:
    rows = Mirror(toy(kind))
    one, two = rows.add(text(20)), rows.add(text(17, seed=1))
    for length, other in ((19, 15), (6, 16), (0, 3), (5, 5)):
        rows.crop(one, length)
        rows.crop(two, other)
        rows.read({two: text(4, seed=length), one: text(7, seed=other)})
    rows.check()


@kinds
def test_some_of_the_rows_are_read_in_any_order(kind: str) -> None:
    rows = Mirror(toy(kind))
    for seed in range(5):
        rows.add(text(3 + 5 * seed, seed))
    for order in ((3, 0), (1,), (4, 2, 1), (4, 3, 2, 1, 0), (0, 2, 4), (2, 3), (3, 2)):
        rows.read({row: text(1 + row, seed=sum(order)) for row in order})
    rows.check()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_rows_of_one_length_are_read_in_any_order(order: tuple[int, ...]) -> None:
    rows = Mirror(toy())
    for seed in range(3):
        rows.add(text(6, seed))
    rows.read({row: text(4, seed=7 + row) for row in order})
    rows.read({row: [row + 2] for row in order})
    rows.check()


def test_only_the_logits_asked_for_come_back_from_a_ragged_pass() -> None:
    rows = Mirror(toy())
    one, two, three = rows.add(text(5)), rows.add(), rows.add(text(2))
    rows.read({one: text(4), two: text(9), three: text(1)}, nums={one: 0, two: 3, three: 1})
    rows.check()


def test_empty_rows_begin_together_with_texts_of_different_lengths() -> None:
    rows = Mirror(toy())
    one, two, three = rows.add(), rows.add(), rows.add()
    rows.read({two: text(9), one: text(4, seed=1), three: text(1, seed=2)})
    rows.read({one: [5], two: [5], three: [5]})
    rows.check()


@kinds
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16), ids=str)
def test_stale_tails_leave_a_ragged_pass_the_same_to_the_bit(kind: str, dtype: torch.dtype) -> None:
    model = toy(kind, dtype=dtype)
    clean, used = EagerRunner(model), EagerRunner(model)
    for runner in (clean, used):
        for length in (4, 15):
            read(runner, runner.add_row(), text(length))
    read(used, 0, text(30, seed=1))
    read(used, 1, text(2, seed=2))
    used.crop(0, 4)
    used.crop(1, 15)
    reads = [Read(0, text(6, seed=3), 6), Read(1, text(2, seed=4), 2)]
    for got, expected in zip(used.read(reads), clean.read(reads), strict=True):
        assert torch.equal(got.logits, expected.logits)


def test_a_removed_rows_place_is_given_out_again_and_forgets_its_text() -> None:
    rows = Mirror(toy())
    for seed in range(4):
        rows.add(text(30, seed))
    shapes = buffers(rows.runner)
    rows.remove(1)
    rows.remove(2)
    assert (rows.add(), rows.add()) == (1, 2)
    assert (rows.runner.length(1), rows.runner.length(2)) == (0, 0)
    rows.read({2: text(5, seed=9), 0: [1], 1: text(2, seed=8)})
    rows.check()
    assert buffers(rows.runner) == shapes


def test_places_grow_while_rows_hold_their_texts() -> None:
    rows, places = Mirror(toy("mistral")), set()
    for seed in range(12):
        rows.add(text(12, seed))
        rows.check()
        (slots,) = {shape[0] for shape in buffers(rows.runner)}
        assert seed < slots <= 2 * (seed + 1)
        places.add(slots)
    assert len(places) < 10  # a copy is not made for every row
    rows.read({row: text(1 + row) for row in range(12)})
    rows.check()


def test_a_row_that_outgrows_the_buffers_takes_the_others_along() -> None:
    rows = Mirror(toy())
    one, two, three = rows.add(text(250)), rows.add(text(10, seed=1)), rows.add()
    rows.read({two: text(5), one: text(5), three: text(1)})
    assert {shape[2] for shape in buffers(rows.runner)} == {256}
    rows.read({three: text(2), one: text(2), two: text(30)})
    assert {shape[2] for shape in buffers(rows.runner)} == {512}
    rows.check()


def test_a_long_prompt_beside_a_row_at_the_end_of_the_context_stays_within_it() -> None:
    """GPT-2 has 512 position vectors: what fills up the shorter row must ask for no 513th."""
    model, ids = toy("gpt2"), text(512)
    runner = EagerRunner(model)
    full, fresh = runner.add_row(), runner.add_row()
    read(runner, full, ids[:511], 0)
    last, prompt = runner.read([Read(full, ids[511:], 1), Read(fresh, text(100, seed=1), 1)])
    assert_near(last.logits, alone(model, ids, 1))
    assert_near(prompt.logits, alone(model, text(100, seed=1), 1))
    assert {shape[2] for shape in buffers(runner)} == {512}


def test_reading_beside_others_changes_no_other_row() -> None:
    model = toy("qwen3")
    runner = EagerRunner(model)
    rows = [runner.add_row() for _ in range(3)]
    for row in rows:
        read(runner, row, text(9, seed=row), 0)
    before = [layer.key_buffer.clone() for layer in runner._cache.layers]
    runner.read([Read(rows[0], text(4)), Read(rows[2], text(1))])
    for layer, keys in zip(runner._cache.layers, before, strict=True):
        assert torch.equal(layer.key_buffer[rows[1]], keys[rows[1]])
        for row in rows:
            assert torch.equal(layer.key_buffer[row, :, :9], keys[row, :, :9])
