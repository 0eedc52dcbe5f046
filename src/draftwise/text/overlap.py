"""What two vocabularies share, token by token, judged by the bytes of the tokens."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Overlap:
    """Tokens that two vocabularies share.

    to_draft: target id -> draft id. to_target: the other way round; both are one to one, so that a
    token's probability is moved and never split. total: tokens of the draft that stand for bytes.
    """

    to_draft: dict[int, int]
    to_target: dict[int, int]
    total: int

    @property
    def share(self) -> float:
        """Of the draft's tokens, how many the target has."""
        return len(self.to_target) / self.total if self.total else 0.0


def overlap(
    target: Sequence[bytes | None],
    draft: Sequence[bytes | None],
    special_target: Collection[int] = (),
    special_draft: Collection[int] = (),
) -> Overlap:
    """Match tokens of equal bytes. Special tokens are never matched, nor are tokens without bytes."""
    ours, theirs = _first_by_bytes(target, special_target), _first_by_bytes(draft, special_draft)
    to_draft = {i: theirs[spelled] for spelled, i in ours.items() if spelled in theirs}
    return Overlap(to_draft, {theirs_id: i for i, theirs_id in to_draft.items()}, len(theirs))


def boundaries_met(target: Sequence[bytes], draft: Sequence[bytes]) -> float:
    """Of the places where the target's tokens of a text end, how many end a token of the draft too."""
    ours = list(accumulate(map(len, target)))
    theirs = set(accumulate(map(len, draft)))
    return sum(end in theirs for end in ours) / len(ours) if ours else 0.0


def _first_by_bytes(tokens: Sequence[bytes | None], special: Collection[int]) -> dict[bytes, int]:
    """The lowest id of each byte string."""
    by_bytes: dict[bytes, int] = {}
    for i, spelled in enumerate(tokens):
        if spelled and i not in special:
            by_bytes.setdefault(spelled, i)
    return by_bytes
