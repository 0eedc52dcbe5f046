"""Terms under which a model may be used: shown before its first use, and accepted once.

That they were accepted is remembered in the cache. A terminal is asked; anything else accepts by
naming the terms in DRAFTWISE_ACCEPT_TERMS, several with commas.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from draftwise.core.errors import ModelError

_VARIABLE = "DRAFTWISE_ACCEPT_TERMS"


@dataclass(frozen=True, slots=True)
class Terms:
    """name: by which they are accepted. notice: what they are. where: the place to read them."""

    name: str
    notice: str
    where: str


def require_acceptance(model: str, terms: Terms, cache: Path) -> None:
    """Return once the terms are accepted; ModelError if they are not."""
    accepted = cache / "terms" / terms.name
    if accepted.exists():
        return
    named = terms.name in os.environ.get(_VARIABLE, "").split(",")
    if not named and not _can_ask():
        raise ModelError(
            f"{model} may be used only once its terms are accepted: read {terms.where}, and run "
            f"again with {_VARIABLE}={terms.name}."
        )
    sys.stderr.write(f"{model}: {terms.notice}\n")
    if not named and not _answered_yes():
        raise ModelError(f"{model} is not used, since its terms were not accepted.")
    accepted.parent.mkdir(parents=True, exist_ok=True)
    accepted.write_text(f"{terms.notice}\n", encoding="utf-8")


def _can_ask() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())


def _answered_yes() -> bool:
    sys.stderr.write("Do you accept these terms? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
