"""A row of the OpenVINO runner: a request, and which token each slot of its state stands for.

The state holds the first of the row's tokens, all of them after a read, and waste among them. Where it was
lost, or where to begin anew is faster, it holds fewer or none, and the next read feeds the rest again.
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
        del self.tokens[length:]
        if length < len(self.slots):
            self._positions[self.slots[length:]] = _NOWHERE
            del self.slots[length:]

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
        self._positions[first:used] = _NOWHERE
        self._positions[first : first + count] = np.arange(length, length + count)
        slots = [*self.slots, *range(first, first + count)]
        self.slots, self._used = slots, used  # at once: an interrupt comes before, or behind

    def empty(self) -> None:
        """Forget what the state holds: all tokens are read again."""
        self.slots = []
        self.request.reset_state()
        self._used = 0

    def lose(self) -> State:
        """Hold nothing and trust nothing until there is a fresh request; returns what there was."""
        lost = self.request, self.slots, self._used
        self.slots, self._used = [], max(self._used, 1)  # waste, to be emptied
        return lost

    def regain(self, lost: State, used: int) -> None:
        """Go back to what was lost, where all is well with it but for new slots, which are waste."""
        request, slots, before = lost
        self._positions[before:used] = _NOWHERE
        self.request, self.slots, self._used = request, slots, used

    def restart(self, request: ov.InferRequest) -> None:
        """Go on with a request whose state holds what this one's did, in order and without waste."""
        used = len(self.slots)
        slots, positions = list(range(used)), np.arange(used + _ROOM)
        self.request, self.slots, self._used, self._positions = request, slots, used, positions

    def begin(self, request: ov.InferRequest) -> None:
        """Go on with a fresh request, whose state holds nothing."""
        self.request, self.slots, self._used = request, [], 0
