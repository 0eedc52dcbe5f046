"""Whether two models speak of the same tokens. Needs the vocabularies only: no weights, no torch.

Sizes prove nothing: two vocabularies of the same size may share no id, and one vocabulary comes
with different numbers of embedding rows (Qwen2.5 has 151,665 tokens, in 151,936 rows at 0.5B and
152,064 at 7B). So strings are compared, id by id, over every id that either model can use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

SHOWN = 3
"""How many differences a verdict names."""


VocabularyKind = Literal["same", "padding", "different"]


@dataclass(frozen=True, slots=True)
class VocabularyInfo:
    """One model's vocabulary.

    strings: each id's string as stored; None for an id that is not in use: a hole, or padding that
        a file format spells out.
    special_ids: ids of special tokens.
    embedding_rows: rows of the model's embedding, the width of its logits.
    """

    strings: Sequence[str | None]
    special_ids: frozenset[int]
    embedding_rows: int

    @property
    def largest_id(self) -> int:
        """The largest id in use, whether or not the model has a row for it; -1 for none."""
        return _length(self.strings) - 1

    @property
    def size(self) -> int:
        """The real size: the highest id that is in use and has a row, plus one."""
        return _length(self.strings[: self.embedding_rows])


@dataclass(frozen=True, slots=True)
class Difference:
    """An id that does not mean the same to both; None where it is unused."""

    id: int
    target: str | None
    draft: str | None

    def __str__(self) -> str:
        target, draft = _quoted(self.target), _quoted(self.draft)
        return f"{self.id} is {target} for the target, {draft} for the draft"


@dataclass(frozen=True, slots=True)
class VocabularyVerdict:
    """How the vocabularies of a target and a draft compare.

    kind: "same"; "padding" (the same tokens, but one model has more rows than the other: cut both
        logits to common_size before arg-max and softmax); "different".
    common_size: ids below it are within the real size of both.
    num_different: ids that do not mean the same to both. differences: the first of them.
    only_special: whether there are such ids and all are special tokens.
    """

    kind: VocabularyKind
    common_size: int
    num_different: int = 0
    differences: tuple[Difference, ...] = ()
    only_special: bool = False

    @property
    def summary(self) -> str:
        """One line that says it."""
        if self.kind == "same":
            return f"the same vocabulary of {self.common_size:,} tokens"
        if self.kind == "padding":
            return f"the same {self.common_size:,} tokens, with different padding after them"
        special = ", all special tokens" if self.only_special else ""
        first = "; ".join(map(str, self.differences))
        ids = "1 id differs" if self.num_different == 1 else f"{self.num_different:,} ids differ"
        return f"different vocabularies: {ids}{special} ({first})"


def compare(target: VocabularyInfo, draft: VocabularyInfo) -> VocabularyVerdict:
    """Compare two vocabularies id by id.

    A token that only one of them has makes them different, wherever its id lies: a draft that has
    to read a token it never learnt guesses badly or fails, and what it proposes beyond the target's
    vocabulary is never right.
    """
    ours, theirs = tuple(target.strings[: target.size]), tuple(draft.strings[: draft.size])
    common = min(len(ours), len(theirs))
    if ours == theirs:
        kind = "same" if target.embedding_rows == draft.embedding_rows else "padding"
        return VocabularyVerdict(kind, common)
    pairs = enumerate(zip_longest(ours, theirs))
    differing = [(i, a, b) for i, (a, b) in pairs if a != b]
    special = target.special_ids | draft.special_ids
    return VocabularyVerdict(
        "different",
        common,
        num_different=len(differing),
        differences=tuple(Difference(*difference) for difference in differing[:SHOWN]),
        only_special=all(i in special for i, _, _ in differing),
    )


def _length(strings: Sequence[str | None]) -> int:
    """Length without the unused ids at the end."""
    return next((i for i in range(len(strings), 0, -1) if strings[i - 1] is not None), 0)


def _quoted(string: str | None) -> str:
    return "unused" if string is None else repr(string)
