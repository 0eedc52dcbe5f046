"""Whose turn it is: an engine serves one request at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from draftwise.core.errors import BusyError, ClosedError


class Turn:
    """Other threads wait for their turn. The thread that holds it is refused: it would wait for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None
        self.closed = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn and hold it while the block runs."""
        if self.held_here:
            raise BusyError(
                "this thread has a stream open on the engine: finish or close it first, or load "
                "another engine"
            )
        with self._lock:
            if self.closed:
                raise ClosedError("the engine is closed: load another")
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = None

    @property
    def held_here(self) -> bool:
        """Whether this thread holds the turn."""
        return self._holder == threading.get_ident()

    def hand_to_this_thread(self) -> None:
        """Say that this thread now drives the request whose turn it is."""
        self._holder = threading.get_ident()
