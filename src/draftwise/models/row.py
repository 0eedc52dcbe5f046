"""The cache rule: a row's cache holds a prefix of the sequence; feed the rest.

A `Row` remembers which tokens its runner has read. Asked for logits at the end of a sequence, it
keeps the common prefix, crops what differs and reads what is missing. Prefill, full acceptance,
rollback, an aborted request and the next turn of a chat are all this one case.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from draftwise.core.closing import Closing
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import DeviceTokens
from draftwise.models.runner import BlockRunner, Read, Runner


class Row(Closing):
    """One sequence's place in a runner, and the tokens that it holds."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._row = runner.add_row()
        self._held: list[int] = []
        self._behind: tuple[Sequence[int], int] = (), 0  # tokens, and how many of them are held too
        self.passes = 0
        self.tokens_read = 0

    def close(self) -> None:
        """Give the place back."""
        self.runner.remove_row(self._row)

    def prefill(self, ids: list[int]) -> None:
        """Hold `ids` and nothing else, reading what is not held yet; no logits."""
        self._keep_common(ids, len(ids))
        while len(self._held) < len(ids):
            self._read(ids[: len(self._held) + self.runner.info.longest_read], 0)

    def logits(self, ids: list[int], num: int = 1) -> Tensor:
        """Return the logits after each of the last `num` tokens of `ids`: [num, width].

        One pass, unless so much is missing that it is read in chunks first.
        """
        self._make_ready(ids, num)
        return self._read(ids, num)

    def logits_behind(self, ids: list[int], tokens: Sequence[int]) -> Tensor:
        """Return the logits after `ids` and after each of the tokens that follow: [len(tokens) + 1, width].

        Tokens that lie on the device of a `BlockRunner` are read there.
        """
        if not isinstance(tokens, DeviceTokens) or not isinstance(self.runner, BlockRunner):
            return self.logits(ids + list(tokens), len(tokens) + 1)
        self._make_ready(ids, 1)
        new = ids[len(self._held) :]
        logits = self.runner.read_block(self._row, new, tokens.ids)
        self._held, self._behind = ids[:], (tokens, len(tokens))
        self.passes += 1
        self.tokens_read += len(new) + len(tokens)
        return logits

    def draft(self, ids: list[int], k: int, choose: Callable[[Tensor], Tensor]) -> DeviceTokens:
        """The k tokens behind `ids` that `choose` makes of their logits, as a `BlockRunner` drafts."""
        if not isinstance(self.runner, BlockRunner):
            raise TypeError(f"the {self.runner.info.name} runner drafts no blocks")
        self._make_ready(ids, 1)
        new = ids[len(self._held) :]
        tokens = DeviceTokens(self.runner.draft(self._row, new, k, choose))
        self._held, self._behind = ids[:], (tokens, k - 1)
        self.passes += k
        self.tokens_read += len(new) + k - 1
        return tokens

    def _make_ready(self, ids: list[int], num: int) -> None:
        """Leave no more to be read than belongs into one pass with logits at the last `num` tokens."""
        self._keep_common(ids, len(ids) - num)
        if len(ids) - len(self._held) > num + self.runner.info.longest_read:
            self.prefill(ids[: len(ids) - num])

    def _read(self, ids: list[int], num: int) -> Tensor:
        new = ids[len(self._held) :]
        reading = self.runner.read([Read(self._row, new, num)])[0]
        self._held = ids[:]
        self.passes += 1
        self.tokens_read += len(new)
        return reading.logits

    def _keep_common(self, ids: list[int], at_most: int) -> None:
        """Crop to the common prefix. The memory goes first: no interrupt may leave it too long."""
        tokens, num = self._behind
        if num:
            self._held, self._behind = [*self._held, *tokens[:num]], ((), 0)
        self._held = self._held[: min(common_prefix(self._held, ids), at_most)]
        self.runner.crop(self._row, len(self._held))
