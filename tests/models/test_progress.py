"""Progress is told on stderr: a bar where a person looks, lines elsewhere, or nothing."""

import io
import sys

import pytest

from draftwise.models.progress import progress_bar


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
