"""One row of the eager runner: whatever was read and taken back, it is as if it had never been."""

import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from draftwise.models.eager import EagerRunner
from draftwise.models.runner import Read
from draftwise.testing.toys import CONFIGS, VOCAB_SIZE, WINDOW, toy
from tests.models.rig import NEAR, alone, assert_near, buffers, difference, one_thread, read, text  # noqa: F401

EXACT = (torch.float64, torch.float32)
WINDOWED = ("mistral", "gemma2", "gemma3")

kinds = pytest.mark.parametrize("kind", CONFIGS)
exact_dtypes = pytest.mark.parametrize("dtype", EXACT, ids=str)
all_dtypes = pytest.mark.parametrize("dtype", NEAR, ids=str)


@kinds
@all_dtypes
def test_a_text_read_at_once_is_the_model_alone_to_the_bit(kind: str, dtype: torch.dtype) -> None:
    model, ids = toy(kind, dtype=dtype), text(3 * WINDOW)
    runner = EagerRunner(model)
    assert torch.equal(read(runner, runner.add_row(), ids), alone(model, ids))


@kinds
@all_dtypes
def test_a_row_rolled_back_is_to_the_bit_as_if_nothing_had_been(
    kind: str, dtype: torch.dtype
) -> None:
    model, ids = toy(kind, dtype=dtype), text(30)
    fresh, used = EagerRunner(model), EagerRunner(model)
    clean, row = fresh.add_row(), used.add_row()
    for begin, end in ((0, 12), (12, 17), (17, 18), (18, 30)):
        expected = read(fresh, clean, ids[begin:end])
        read(used, row, text(9, seed=end))
        used.crop(row, begin)
        assert torch.equal(read(used, row, ids[begin:end]), expected)


@kinds
@exact_dtypes
def test_a_row_is_cropped_anywhere_and_reads_on(kind: str, dtype: torch.dtype) -> None:
    model, ids = toy(kind, dtype=dtype), text(4 * WINDOW)
    runner = EagerRunner(model)
    row = runner.add_row()
    for length in range(len(ids)):
        runner.crop(row, 0)
        read(runner, row, ids, 0)
        runner.crop(row, length)
        assert runner.length(row) == length
        other = text(3, seed=length)
        assert_near(read(runner, row, other), alone(model, ids[:length] + other, len(other)))


@kinds
@exact_dtypes
@pytest.mark.parametrize(
    "chunks", [[1] * 40, [13, 13, 14], [1, 39], [7, 1, 1, 20, 2, 9], [39, 1]], ids=str
)
def test_a_text_is_read_in_any_pieces(kind: str, dtype: torch.dtype, chunks: list[int]) -> None:
    model, ids = toy(kind, dtype=dtype), text(40)
    runner = EagerRunner(model)
    row, pieces = runner.add_row(), []
    for count in chunks:
        begin = runner.length(row)
        pieces.append(read(runner, row, ids[begin : begin + count]))
    assert_near(torch.cat(pieces), alone(model, ids))


@pytest.mark.parametrize("kind", WINDOWED)
@exact_dtypes
def test_a_crop_finds_the_keys_that_a_window_of_states_would_have_lost(
    kind: str, dtype: torch.dtype
) -> None:
    model, ids = toy(kind, dtype=dtype), text(5 * WINDOW)
    runner = EagerRunner(model)
    row = runner.add_row()
    read(runner, row, ids)
    for length in (2 * WINDOW + 1, 2 * WINDOW, WINDOW + 1, WINDOW, WINDOW - 1):
        runner.crop(row, length)
        assert_near(read(runner, row, ids[length:]), alone(model, ids)[length:])


@exact_dtypes
def test_the_buffers_double_when_a_text_outgrows_them(dtype: torch.dtype) -> None:
    model, ids = toy(dtype=dtype), text(300)
    runner = EagerRunner(model)
    row = runner.add_row()
    read(runner, row, ids[:255], 0)
    one = runner.add_row()
    read(runner, one, ids[5:15], 0)
    assert {shape[2] for shape in buffers(runner)} == {256}
    for begin, end in ((255, 256), (256, 257), (257, 300)):
        assert_near(read(runner, row, ids[begin:end]), alone(model, ids[:end], end - begin))
    assert {shape[2] for shape in buffers(runner)} == {512}
    assert_near(read(runner, one, ids[15:20]), alone(model, ids[5:20], 5))
    runner.crop(row, 250)
    assert_near(read(runner, row, ids[250:260]), alone(model, ids[:260], 10))


@kinds
def test_logits_come_for_the_last_positions_asked_for_and_no_others(kind: str) -> None:
    model, ids = toy(kind), text(12)
    runner = EagerRunner(model)
    row = runner.add_row()
    for num in (0, 1, 5, 12):
        runner.crop(row, 0)
        logits = read(runner, row, ids, num)
        assert logits.shape == (num, runner.info.logit_width) == (num, VOCAB_SIZE)
        assert logits.dtype == runner.info.dtype == torch.float64
        if num:
            assert_near(logits, alone(model, ids, num))


class NoPositions(LlamaForCausalLM):
    """A model of the kind that computes all logits: it knows no `logits_to_keep`."""

    def forward(
        self, input_ids, attention_mask=None, position_ids=None, cache=None, use_cache=None,
        output_hidden_states=None,
    ) -> CausalLMOutputWithPast:  # fmt: skip
        return super().forward(
            input_ids, attention_mask, position_ids, cache,
            use_cache=use_cache, output_hidden_states=output_hidden_states,
        )  # fmt: skip


def test_a_model_that_computes_all_logits_gives_the_same() -> None:
    model, ids = toy(), text(20)
    old = NoPositions(model.config).double().eval()
    old.load_state_dict(model.state_dict())
    runner = EagerRunner(old)
    row, other = runner.add_row(), runner.add_row()
    read(runner, row, ids[:9], 0)
    one, two = runner.read([Read(row, ids[9:], 2), Read(other, ids[4:10], 5)])
    assert_near(one.logits, alone(model, ids, 2))
    assert_near(two.logits, alone(model, ids[4:10], 5))


@kinds
@pytest.mark.parametrize("layers", [(0,), (3,), (2, 0, 1)], ids=str)
def test_hidden_states_are_those_that_transformers_names(
    kind: str, layers: tuple[int, ...]
) -> None:
    model, ids, short = toy(kind), text(15), text(6, seed=1)
    runner = EagerRunner(model)
    row, other = runner.add_row(), runner.add_row()
    read(runner, row, ids[:7], 0)
    readings = runner.read([Read(row, ids[7:], 3), Read(other, short, 6)], hidden_layers=layers)
    for reading, whole, num in zip(readings, (ids, short), (3, 6), strict=True):
        with torch.inference_mode():
            output = model(
                torch.tensor([whole]), use_cache=False, output_hidden_states=True
            ).hidden_states
        assert set(reading.hidden) == set(layers)
        for layer in layers:
            assert_near(reading.hidden[layer], output[layer][0, -num:])


def test_no_hidden_states_come_unasked() -> None:
    runner = EagerRunner(toy())
    assert runner.read([Read(runner.add_row(), text(3), 1)])[0].hidden == {}


@kinds
def test_the_plainest_attention_reads_as_well(kind: str) -> None:
    model, ids = toy(kind), text(3 * WINDOW)
    model.set_attn_implementation("eager")
    runner = EagerRunner(model)
    row = runner.add_row()
    read(runner, row, [*ids[:10], *text(9, seed=1)])
    runner.crop(row, 10)
    assert_near(read(runner, row, ids[10:]), alone(model, ids)[10:])


@kinds
def test_bfloat16_stays_near_the_model_alone(kind: str) -> None:
    model, ids = toy(kind, dtype=torch.bfloat16), text(40)
    runner = EagerRunner(model)
    row, pieces = runner.add_row(), []
    for count in (11, 1, 1, 5, 22):
        begin = runner.length(row)
        pieces.append(read(runner, row, ids[begin : begin + count]))
    got, expected = torch.cat(pieces).float(), alone(model, ids).float()
    assert got.isfinite().all()
    assert (got - expected).abs().mean() < 0.1 * expected.std()


def test_a_crop_is_absolute_and_may_be_repeated() -> None:
    runner = EagerRunner(toy())
    row = runner.add_row()
    read(runner, row, text(9))
    for _ in range(2):
        runner.crop(row, 4)
        assert runner.length(row) == 4
    for length in (5, -1):
        with pytest.raises(ValueError, match="holds 4 tokens"):
            runner.crop(row, length)
    assert runner.length(row) == 4


def test_what_cannot_be_read_is_refused_before_anything_happens() -> None:
    model = toy()
    runner = EagerRunner(model)
    row, gone = runner.add_row(), runner.add_row()
    runner.remove_row(gone)
    read(runner, row, text(5))
    with pytest.raises(ValueError, match="at least one token"):
        Read(row, [])
    with pytest.raises(ValueError, match="3 logits asked of 2"):
        Read(row, [1, 2], 3)
    with pytest.raises(ValueError, match="once in a pass"):
        runner.read([Read(row, [1]), Read(row, [2])])
    with pytest.raises(KeyError):
        runner.read([Read(row, [1]), Read(gone, [2])])
    assert runner.length(row) == 5
    assert_near(read(runner, row, [7]), alone(model, [*text(5), 7], 1))


def test_a_difference_is_seen_where_one_token_of_the_past_is_wrong() -> None:
    """The oracle of these tests is no flatterer."""
    model, ids = toy(), text(20)
    runner = EagerRunner(model)
    row = runner.add_row()
    read(runner, row, [*ids[:9], ids[9] - 1])
    assert difference(read(runner, row, ids[10:]), alone(model, ids)[10:]) > 0.1
