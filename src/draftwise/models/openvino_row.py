"""A row of the OpenVINO runner: a request, and which token each slot of its state stands for.

The state holds a prefix of the row's tokens, and waste between them. A read feeds the rest: all tokens,
where the state was broken off in the middle of a pass, or where to begin anew is faster.
"""

from collections.abc import Sequence

import numpy as np
import openvino as ov

_NOWHERE = 1 << 62
"""Position of a slot whose token is gone: behind every token that could ask."""

_ROOM = 256
"""Slots whose positions a new row has room for; a longer row makes more."""


class Row:
    """tokens: that the row holds. slots: of the state, one for each token that was read into it, in order."""

    def __init__(self, request: ov.InferRequest) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.slots: list[int] = []
        self._positions = np.empty(_ROOM, np.int64)  # of all slots, and of more than there are
        self._used = 0
        self._new = 0  # the first slot of the last pass

    @property
    def waste(self) -> int:
        """Slots that stand for no token."""
        return self._used - len(self.slots)

    def crop(self, length: int) -> None:
        """Keep the first tokens. Nothing moves."""
        self._positions[self.slots[length:]] = _NOWHERE
        del self.slots[length:]
        del self.tokens[length:]

    def positions(self, width: int) -> np.ndarray:
        """Of all slots, were so many tokens read behind those in the state; the last are the new ones'."""
        length, end = len(self.slots), self._used + width
        if end > len(self._positions):
            self._positions = np.concatenate([self._positions, np.empty(end, np.int64)])
        self._positions[self._used : end] = np.arange(length, length + width)
        return self._positions[:end]

    def own(self, width: int) -> None:
        """Count the slots of a pass. They stand for no token until the whole read is through."""
        self._new, self._used = self._used, self._used + width
        self._positions[self._new : self._used] = _NOWHERE

    def hold(self, tokens: Sequence[int]) -> None:
        """Hold these tokens too; the last pass took them, behind what the state had not."""
        first, length, count = self._new, len(self.slots), len(self.tokens) + len(tokens)
        # Tokens last: an interrupt before leaves a row too long, which is cropped.
        self.slots += range(first, first + count - length)
        self._positions[first : first + count - length] = np.arange(length, count)
        self.tokens += tokens

    def empty(self) -> None:
        """Forget what the state holds: all tokens are read anew."""
        self.slots = []
        self.request.reset_state()
        self._used = 0

    def restart(self, request: ov.InferRequest) -> None:
        """Go on with a request whose state holds what this one's did, in order and without waste."""
        self.request, self._used = request, len(self.slots)
        self.slots = list(range(self._used))
        self._positions[: self._used] = self.slots
