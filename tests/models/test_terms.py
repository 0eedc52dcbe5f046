"""A model with terms is used by nobody who has not accepted them, and they are asked for once."""

import dataclasses
import io
import sys
from pathlib import Path

import pytest

from draftwise.core.errors import ModelError
from draftwise.models import builtin
from draftwise.models.builtin import builtin_folder
from draftwise.models.catalogue import BUILTIN
from draftwise.models.terms import Terms, require_acceptance

TERMS = Terms("toy", notice="Toys are subject to the Terms of Toys", where="toys.example/terms")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> Terminal:
    """What a terminal shows at which somebody types an answer."""
    monkeypatch.delenv("DRAFTWISE_ACCEPT_TERMS", raising=False)
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    return shown


@pytest.mark.parametrize("answer", ["y\n", "Yes\n", " YES \n"])
def test_terms_accepted_at_a_terminal_are_shown_first_and_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    terminal = at_terminal(monkeypatch, answer)
    require_acceptance("toy-1b", TERMS, tmp_path)
    notice, question = terminal.getvalue().split("\n")
    assert notice == "toy-1b: Toys are subject to the Terms of Toys"
    assert question == "Do you accept these terms? [y/N] "
    monkeypatch.setattr(sys, "stdin", None)
    require_acceptance("toy-7b", TERMS, tmp_path)
    assert terminal.getvalue().endswith(question)


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "maybe\n", "yesterday\n"])
def test_any_other_answer_refuses_in_one_line_and_the_next_run_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    for _ in range(2):
        terminal = at_terminal(monkeypatch, answer)
        with pytest.raises(ModelError, match=r"^toy-1b is not used.*were not accepted\.$"):
            require_acceptance("toy-1b", TERMS, tmp_path)
        assert terminal.getvalue().count("?") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("piped", ["stdin", "stderr"])
def test_where_nobody_can_be_asked_one_line_says_how_to_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piped: str
) -> None:
    at_terminal(monkeypatch, "yes\n")
    monkeypatch.setattr(sys, piped, io.StringIO("yes\n"))
    told = r"^toy-1b may be used only .*toys\.example/terms.*DRAFTWISE_ACCEPT_TERMS=toy\.$"
    with pytest.raises(ModelError, match=told) as caught:
        require_acceptance("toy-1b", TERMS, tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("DRAFTWISE_ACCEPT_TERMS", "toyota,other")
    with pytest.raises(ModelError, match=told):
        require_acceptance("toy-1b", TERMS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_terms_accepted_by_name_are_shown_once_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAFTWISE_ACCEPT_TERMS", "other,toy")
    require_acceptance("toy-1b", TERMS, tmp_path)
    assert capsys.readouterr() == ("", "toy-1b: Toys are subject to the Terms of Toys\n")
    monkeypatch.delenv("DRAFTWISE_ACCEPT_TERMS")
    require_acceptance("toy-1b", TERMS, tmp_path)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("index")
def test_a_built_in_model_is_neither_fetched_nor_used_before_its_terms_are_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = dataclasses.replace(BUILTIN["smollm2-135m"], name="toy", terms=TERMS)
    monkeypatch.setattr(builtin, "BUILTIN", {"toy": model})
    monkeypatch.setattr(builtin, "_is_ready", lambda _: True)
    monkeypatch.delenv("DRAFTWISE_ACCEPT_TERMS", raising=False)
    with pytest.raises(ModelError, match="only once its terms are accepted"):
        builtin_folder("toy", progress=False)
    monkeypatch.setenv("DRAFTWISE_ACCEPT_TERMS", "toy")
    assert builtin_folder("toy", progress=False).name == "toy"


def test_gemmas_terms_say_where_they_are_in_at_most_two_lines() -> None:
    terms = BUILTIN["gemma3-270m"].terms
    assert terms
    assert terms.name == "gemma"
    assert "ai.google.dev/gemma/terms" in terms.notice
    assert len(terms.notice.splitlines()) <= 2
    assert {name for name, model in BUILTIN.items() if model.terms} == {"gemma3-270m"}
