"""A converted model reads as the model itself does, from whatever its rows have been through."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("openvino")

from draftwise.decoding.passes import time_reads
from draftwise.models import openvino
from draftwise.models.converting import Description, content_key, convert, is_converted
from draftwise.models.openvino import OpenVinoRunner, has_gpu
from draftwise.models.row import Row
from draftwise.models.runner import Read
from draftwise.testing.toys import CONFIGS, toy
from tests.models.rig import Made, Mirror, alone, assert_near, one_thread, read, text  # noqa: F401

KINDS = sorted(CONFIGS)


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens wide each pass is, as they come."""
    seen = list[int]()

    def watch(method):
        def watched(request, inputs, **options):
            seen.append(inputs["input_ids"].shape[1])
            return method(request, inputs, **options)

        return watched

    for name in ("infer", "start_async"):
        method = getattr(openvino.ov.InferRequest, name)
        monkeypatch.setattr(openvino.ov.InferRequest, name, watch(method))
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_reads_what_the_model_reads_after_crops_and_a_take_over(
    kind: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino, "_MOST_WASTE", 6)
    rows = Mirror(*made(kind)[:1], near=2e-3, runner=made(kind)[1])
    one = rows.add(text(20))
    for step in range(8):
        rows.read({one: text(5, seed=step + 1)})
        rows.crop(one, len(rows.held[one]) - 1 - step % 4)
    assert rows.runner._rows[one].waste <= 6 + 5
    rows.check()


def test_a_long_read_behind_a_short_prefix_begins_anew_and_the_row_is_none_the_wiser(
    made: Made, widths: list[int]
) -> None:
    """And where the old text is long, or the new one short, what is held is not read again."""
    rows = Mirror(*made("llama")[:1], near=2e-3, runner=made("llama")[1])
    one = rows.add(text(20))
    rows.crop(one, 3)
    rows.read({one: text(60, seed=1)})
    rows.read({one: text(6, seed=2)})
    rows.crop(one, 65)
    rows.read({one: text(20, seed=3)})
    assert widths == [20, 63, 6, 20]
    rows.crop(one, 0)
    rows.read({one: text(5, seed=4)})
    assert rows.runner._rows[one].waste == 0
    rows.check()


def test_a_prompt_is_read_in_one_pass(made: Made, widths: list[int]) -> None:
    """A second pass of prefill would be slow. Not beyond what memory allows."""
    _, runner = made("llama")
    with Row(runner) as row:
        row.prefill(text(400))
        assert widths == [400]
        runner._info = replace(runner.info, longest_read=300)
        row.prefill(text(400, seed=1))
    assert widths == [400, 300, 100]


def test_random_reads_and_crops_of_several_rows_never_differ_from_the_model(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino, "_MOST_WASTE", 4)
    dice, (model, runner) = random.Random(0), made("llama")
    rows = Mirror(model, 2e-3, runner)
    names = [rows.add(), rows.add(text(3))]
    for step in range(40):
        chosen = dice.sample(names, dice.choice((1, 2)))
        rows.read({row: text(dice.randint(1, 6), seed=100 + step) for row in chosen})
        row = dice.choice(names)
        rows.crop(row, dice.randint(0, len(rows.held[row])))
    rows.check()
    rows.remove(names[0])
    assert rows.add(text(9)) == names[0]
    rows.check()


def test_a_token_behind_two_is_read_two_wide_for_a_while_and_never_beyond_the_context(
    made: Made, widths: list[int]
) -> None:
    model, runner = made("llama")
    runner._width = openvino._Width(3, 30)
    rows = Mirror(model, 2e-3, runner)
    one = rows.add(text(20))
    for step, count in enumerate((1, 2, 1, 1, 1, 1, 2, 1)):
        rows.read({one: text(count, seed=step)})
    assert widths == [20, 1, 2, 2, 2, 2, 1, 2, 1], "the last one would have ended at 31"
    rows.check()


def test_a_length_that_is_timed_is_read_as_wide_as_it_is(made: Made, widths: list[int]) -> None:
    _, runner = made("llama")
    time_reads(runner, text(30), 8, (1, 2, 3, 4), repeats=3)
    assert Counter(widths) == {8: 1} | dict.fromkeys((1, 2, 3, 4), 8)


def test_what_is_read_again_after_a_loss_is_read_in_passes_too(
    made: Made, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino, "_LONGEST_READ", 30)
    monkeypatch.setattr(openvino, "_BEHIND", 16)
    rows = Mirror(*made("llama")[:1], near=2e-3, runner=made("llama")[1])
    one = rows.add(text(20))
    rows.read({one: text(15, seed=1)})
    rows.runner._rows[one].empty()
    del widths[:]
    rows.read({one: text(40, seed=2)})
    assert widths == [30, 5, 40], "all forty are asked for logits"
    rows.runner._rows[one].empty()
    del widths[:]
    rows.runner.read([Read(one, [7], 1)])
    assert widths == [30, 16, 16, 14]
    rows.runner.crop(one, 2)
    del widths[:]
    rows.runner.read([Read(one, text(40, seed=3), 1)])
    assert widths == [30, 12], "what it holds of it is read again with as much as a pass may take"


def test_only_the_logits_that_are_wanted_come_back(made: Made) -> None:
    model, runner = made("llama")
    row, ids = runner.add_row(), text(12)
    assert read(runner, row, ids[:8], 0).shape == (0, 96)
    assert_near(read(runner, row, ids[8:], 2), alone(model, ids, 2), 2e-3)


def test_hidden_states_are_the_models_own(made: Made) -> None:
    model, runner = made("llama", hidden=(0, 2))
    ids = text(10)
    reading = runner.read([Read(runner.add_row(), ids, 3)], hidden_layers=(0, 2))[0]
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    for layer in (0, 2):
        assert_near(reading.hidden[layer], states[layer][0, -3:], 2e-3)
    with pytest.raises(ValueError, match="without the hidden states of"):
        runner.read([Read(runner.add_row(), ids, 1)], hidden_layers=(1,))


def test_bfloat16_rounds_and_does_not_err(made: Made) -> None:
    model, runner = made("llama", dtype=torch.bfloat16)
    rows = Mirror(model, 0.3, runner)
    one = rows.add(text(20))
    rows.crop(one, 13)
    rows.read({one: text(6, seed=1)})


def test_a_row_refuses_what_it_cannot_do(made: Made) -> None:
    _, runner = made("llama")
    row = runner.add_row()
    with pytest.raises(ValueError, match="holds 0 tokens, not 1"):
        runner.crop(row, 1)
    with pytest.raises(ValueError, match="read once in a pass"):
        runner.read([Read(row, [1]), Read(row, [2])])


def test_what_is_converted_is_named_by_weights_settings_and_precision(tmp_path: Path) -> None:
    one, other = toy(dtype=torch.float32), toy(seed=1, dtype=torch.float32)
    keys = {content_key(one, "float32"), content_key(other, "float32"), content_key(one, "int8")}
    assert len(keys) == 3
    assert content_key(toy(dtype=torch.float32), "float32") in keys
    assert not is_converted(tmp_path)
    convert(one, tmp_path, "float32", 512)
    assert is_converted(tmp_path)
    assert content_key(one, "float32") in keys, "the model is as it was"


@pytest.mark.parametrize(("weights", "near", "group"), [("int8", 0.5, 128), ("int4", 3.0, 32)])
def test_weights_in_fewer_bits_take_fewer_bytes_and_stay_near(
    tmp_path: Path, weights: str, near: float, group: int, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nncf")
    model = toy(dtype=torch.float32)
    convert(model, tmp_path, weights, 512)
    assert capfd.readouterr() == ("", ""), "text goes there, and the proof"
    runner = OpenVinoRunner(tmp_path, threads=1)
    assert Description.read(tmp_path).group == group, "a pass multiplies by groups as long"
    assert runner.info.weights == weights
    assert runner.info.weight_bytes < 0.6 * sum(weight.nbytes for weight in model.parameters())
    assert_near(read(runner, runner.add_row(), text(9)), alone(model, text(9)), near)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="OpenVINO finds no GPU of Intel")
def test_an_intel_gpu_reads_what_the_model_reads(tmp_path: Path) -> None:
    model = toy(dtype=torch.float32)
    convert(model, tmp_path, "float32", 512)
    rows = Mirror(model, 5e-3, OpenVinoRunner(tmp_path, threads=1, device="GPU"))
    one = rows.add(text(20))
    rows.crop(one, 13)
    rows.read({one: text(6, seed=1)})
    rows.check()
    assert rows.runner.info.name == "openvino-gpu"
