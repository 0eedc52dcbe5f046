"""Text as it comes, coloured by where each token is from, above a line of status."""

import sys

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from draftwise.cli.render import STYLES, legend
from draftwise.core.counters import Counters
from draftwise.decoding.round import Round


class LiveText:
    """Writes rounds to standard output. On a terminal in colour, else as plain text; a context manager.

    Finished lines are printed for good; the line being written and the status below it are redrawn.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._line = Text()
        self._counters = Counters()
        self._seconds = 0.0

    def __enter__(self) -> "LiveText":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._live.stop()
            self._console.print(self._line)
            self._console.print(Text("\n").append_text(legend()))
        else:
            sys.stdout.write("\n")
        sys.stdout.flush()

    def add(self, round_: Round) -> None:
        """Show one more round."""
        if not self._console.is_terminal:
            sys.stdout.write(round_.text)
            sys.stdout.flush()
            return
        self._counters += Counters.from_rounds([round_.count])
        self._seconds += round_.times.total
        for text, origin in round_.segments:
            self._line.append(text, STYLES[origin])
        *finished, self._line = self._line.split("\n", allow_blank=True) or [Text()]
        for line in finished:
            self._live.console.print(line)
        self._live.update(Group(self._line, self._status()), refresh=True)

    def _status(self) -> Text:
        counters = self._counters
        speed = counters.emitted / self._seconds if self._seconds else 0.0
        return Text.assemble(
            legend(),
            (
                f"| {counters.emitted} tokens, {speed:.1f}/s | {counters.rounds} rounds | accepted "
                f"{counters.accepted} of {counters.drafted}",
                "dim",
            ),
        )
