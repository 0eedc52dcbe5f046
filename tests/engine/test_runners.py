"""The runner that is named, or the faster one: measured once, kept, and never a guess."""

from collections.abc import Callable

import pytest

import draftwise
from draftwise.core.errors import OptionError
from draftwise.engine import runners
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
        ("eager", "int8", "float32", "weights in int8 need --runner openvino"),
        ("graph", "auto", "float32", "--runner graph needs a CUDA device"),
        ("openvino", "auto", "float64", "float32 or bfloat16, not on cpu in float64"),
    ],
)
def test_what_a_runner_cannot_do_is_refused_in_one_line(fresh, kind, weights, dtype, told):
    pytest.importorskip("openvino")
    with pytest.raises(OptionError, match=told) as error:
        open_runner(fresh(dtype), kind, weights)
    assert "\n" not in str(error.value)


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
