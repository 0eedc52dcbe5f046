"""How far something slow is, told on stderr and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that hears of bytes done; two lines instead where stderr is no terminal.

    total: bytes to come, None where there is nothing to count.
    """
    console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
    if not shown:
        yield unheard
    elif not console.is_terminal:
        console.print(f"{title} ({total / 1e6:,.0f} MB)" if total else title)
        yield unheard
        console.print(f"{title}: done")
    else:
        counts = (DownloadColumn(), TimeRemainingColumn()) if total else ()
        columns = TextColumn(title), BarColumn(), *counts
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)


def unheard(_: int) -> None:
    """Progress that nobody wants to hear of."""
