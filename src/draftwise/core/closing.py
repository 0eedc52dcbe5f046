"""What is closed at the end of a `with` block."""

from types import TracebackType
from typing import Self


class Closing:
    """Makes a context manager of a class that has `close`."""

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
