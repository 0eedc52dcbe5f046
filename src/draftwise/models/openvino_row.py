"""A row of the OpenVINO runner: a request, and which token each slot of its state stands for.

The state holds the first of the row's tokens, all of them between reads, and waste among them. Where it was
lost, or where to begin anew is faster, it holds none, and the next read feeds them again.
"""

import numpy as np
import openvino as ov

State = tuple[ov.InferRequest, list[int], int]
"""A request, the slots of its state that stand for tokens, and how many slots it has."""

_NOWHERE = 1 << 62
"""Position of a slot whose token is gone: behind every token that could ask."""

_ROOM = 256
"""Slots whose positions a new row has room for; a longer row makes more."""


class StateRow:
    """tokens: that the row holds. slots: of the state, one for each token that was read into it, in order."""

    def __init__(self, request: ov.InferRequest) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.slots: list[int] = []
        self._positions = np.empty(_ROOM, np.int64)  # of all slots, and of more than there are
        self._used = 0

    @property
    def waste(self) -> int:
        """Slots that stand for no token."""
        return self._used - len(self.slots)

    def crop(self, length: int) -> None:
        """Keep the first tokens, and no slots beyond them. Nothing moves."""
        if length < len(self.slots):
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

    def take(self, count: int, used: int) -> None:
        """The state has so many slots now; the first of the new ones stand for `count` tokens more."""
        first, length = self._used, len(self.slots)
        # In this order: what an interrupt leaves undone is waste, or a slot too many, which is cropped.
        self._positions[first:used] = _NOWHERE
        self._used = used
        self.slots += range(first, first + count)
        self._positions[first : first + count] = np.arange(length, length + count)

    def empty(self) -> None:
        """Forget what the state holds: all tokens are read again."""
        self.slots = []
        self.request.reset_state()
        self._used = 0

    def lose(self, request: ov.InferRequest) -> State:
        """Go on with a fresh request, which holds nothing; returns what there was."""
        lost = self.request, self.slots, self._used
        self.request, self.slots, self._used = request, [], 0
        return lost

    def regain(self, lost: State, used: int) -> None:
        """Go back to what was lost, where all is well with it but for new slots, which are waste."""
        request, slots, before = lost
        self._positions[before:used] = _NOWHERE
        self.request, self.slots, self._used = request, slots, used

    def restart(self, request: ov.InferRequest) -> None:
        """Go on with a request whose state holds what this one's did, in order and without waste."""
        self.request, self._used = request, len(self.slots)
        self.slots = list(range(self._used))
        self._positions[: self._used] = self.slots
