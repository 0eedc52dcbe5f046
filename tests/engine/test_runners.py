"""The runner that is named, or the faster one: measured once, kept, and never a guess."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from unittest.mock import Mock

import pytest

import draftwise
from draftwise.core.errors import ModelError, OptionError
from draftwise.engine import runners
from draftwise.engine.options import ModelOptions
from draftwise.engine.runners import open_runner
from draftwise.models.loading import LoadedModel, load_model
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import toy

Fresh = Callable[..., LoadedModel]


@pytest.fixture
def fresh(tmp_path, monkeypatch) -> Fresh:
    """Loads a toy from its folder, as often as asked; the cache is empty at first."""
    toy("llama", vocab_size=NUM_TOKENS).save_pretrained(tmp_path / "toy")
    byte_tokenizer().save_pretrained(tmp_path / "toy")
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    return lambda dtype="float32": load_model(str(tmp_path / "toy"), device="cpu", dtype=dtype)


def test_a_small_model_is_not_worth_a_conversion(fresh):
    assert open_runner(fresh()).info.name == "eager"


@pytest.mark.parametrize(
    ("kind", "weights", "dtype", "told"),
    [
        ("eager", "int8", "float32", "weights int8 need --runner openvino"),
        ("openvino", "file", "float32", "weights as in the file need a GGUF file"),
        ("graph", "auto", "float32", "--runner graph needs a CUDA device"),
        ("openvino", "auto", "float64", "float32 or bfloat16, not on cpu in float64"),
    ],
)
def test_what_a_runner_cannot_do_is_refused_in_one_line(fresh, kind, weights, dtype, told):
    pytest.importorskip("openvino")
    with pytest.raises(OptionError, match=told) as error:
        open_runner(fresh(dtype), kind, weights)
    assert "\n" not in str(error.value)


def test_an_intel_gpu_that_is_not_there_is_told_before_anything_is_converted(fresh, monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setattr("draftwise.models.openvino.has_gpu", lambda: False)
    monkeypatch.setattr("draftwise.models.converting.convert", Mock(side_effect=AssertionError))
    with pytest.raises(OptionError, match=r"no Intel GPU here: .* or choose --runner openvino$"):
        open_runner(fresh(), "openvino-gpu")


def test_an_object_of_the_users_is_never_taken_apart():
    pytest.importorskip("openvino")
    with pytest.raises(OptionError, match="given as an object"):
        draftwise.load(
            (toy("llama", vocab_size=NUM_TOKENS).float(), byte_tokenizer()),
            "suffix",
            runner="openvino",
        )


@pytest.mark.parametrize(("eager", "openvino"), [(3.0, 2.0), (2.0, 3.0)])
def test_the_faster_runner_is_taken_and_remembered(fresh, monkeypatch, eager, openvino):
    pytest.importorskip("openvino")
    times, asked = {"eager": eager, "openvino": openvino}, []

    def milliseconds(runner, loaded):
        asked.append(runner.info.name)
        return times[runner.info.name]

    monkeypatch.setattr(runners, "_WORTH_CONVERTING", 0)
    monkeypatch.setattr(runners, "_milliseconds", milliseconds)
    names = [open_runner(fresh()).info.name for _ in range(2)]
    assert names == [min(times, key=times.__getitem__)] * 2
    assert asked == ["eager", "openvino"]


@pytest.mark.parametrize(
    ("weights", "kept_in"),
    [(None, "int8"), ("auto", "int8"), ("dtype", "float32"), ("int4", "int4")],
)
def test_a_model_that_only_guesses_is_rounded_unless_it_is_told_otherwise(
    fresh, tmp_path, weights, kept_in
):
    pytest.importorskip("nncf")
    fresh()
    folder = str(tmp_path / "toy")
    options = {"runner": "openvino", "device": "cpu", "dtype": "float32"}
    with draftwise.load(folder, folder, draft_weights=weights, **options) as engine:
        settings = engine.generate("x", tokens=1).settings
    assert (settings["weights"], settings["draft_weights"]) == ("float32", kept_in)


@pytest.mark.parametrize(
    ("name", "put", "told"),
    [
        (
            "draftwise.models.converting.convert",
            Mock(side_effect=TypeError("odd layer\nmore")),
            r"\(odd layer\)",
        ),
        ("draftwise.engine.runners.rollback_difference", lambda *_: 0.5, "answers otherwise"),
    ],
    ids=["cannot be converted", "converted wrongly"],
)
def test_a_model_that_openvino_does_not_take_stays_eager_and_is_not_tried_again(
    fresh, monkeypatch, tmp_path, name, put, told
):
    pytest.importorskip("openvino")
    monkeypatch.setattr(runners, "_WORTH_CONVERTING", 0)
    with monkeypatch.context() as patched:
        patched.setattr(name, put)
        with pytest.raises(ModelError, match=rf"{told}.*choose --runner eager") as error:
            open_runner(fresh(), "openvino")
        assert "\n" not in str(error.value)
        assert open_runner(fresh()).info.name == "eager"
    assert open_runner(fresh()).info.name == "eager", "known by now"
    left = [path for path in (tmp_path / "cache/openvino").iterdir() if path.suffix != ".lock"]
    assert left == []


def test_a_disk_that_is_full_is_no_word_about_the_model(fresh, monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setattr(runners, "_WORTH_CONVERTING", 0)
    monkeypatch.setattr(runners, "_milliseconds", lambda runner, _: len(runner.info.name) * -1.0)
    with monkeypatch.context() as patched:
        patched.setattr("draftwise.models.converting.convert", Mock(side_effect=OSError("full")))
        assert open_runner(fresh()).info.name == "eager"
    assert open_runner(fresh()).info.name == "openvino"


@pytest.mark.parametrize("name", ["runner", "weights", "draft_runner", "draft_weights"])
def test_a_runner_or_weights_that_are_not_there_are_refused_before_anything_is_loaded(name):
    with pytest.raises(OptionError, match=rf"{name} is 'int5': give one of auto, "):
        ModelOptions(**{name: "int5"})
    assert getattr(ModelOptions(), name) in (None, "auto")


def test_nobody_is_told_of_a_conversion(tmp_path):
    """The reporter would leave its files in the home folder, whether or not anybody can be reached."""
    pytest.importorskip("openvino")
    script = textwrap.dedent("""\
        import sys
        from pathlib import Path
        import torch
        from draftwise.models.converting import convert
        from draftwise.testing.toys import toy
        (work := Path(sys.argv[1]) / "work").mkdir()
        convert(toy(dtype=torch.float32), work, sys.argv[2], 512)
        """)
    for weights in ("float32", "int8"):
        (home := tmp_path / weights).mkdir()
        hidden = {name: value for name, value in os.environ.items() if name != "CI"}
        command = [sys.executable, "-c", script, str(home), weights]
        subprocess.run(command, check=True, env=hidden | {"HOME": str(home)}, capture_output=True)
        assert sorted(path.name for path in home.iterdir()) == ["work"]


def test_a_conversion_that_breaks_off_leaves_nothing_and_is_made_again(
    fresh, monkeypatch, tmp_path
):
    pytest.importorskip("openvino")
    from draftwise.models import converting

    whole = converting.ov.save_model

    def broken(model, path, **options):
        whole(model, path, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(converting.ov, "save_model", broken)
    with pytest.raises(KeyboardInterrupt):
        open_runner(fresh(), "openvino")
    left = [path for path in (tmp_path / "cache/openvino").iterdir() if path.suffix != ".lock"]
    assert left == []
    monkeypatch.undo()
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    assert open_runner(fresh(), "openvino").info.name == "openvino"
