"""What a report is made of, before it is HTML or Markdown."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from draftwise.measure.records import Origin


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text. labels: how many columns at the left are words; the others are numbers."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot, what it is, and what it shows in words, for who cannot see it."""

    figure: Figure
    caption: str
    words: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Text to be copied, such as the settings of an engine."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """One question and its answer. points: a list. pieces: a text by the origin of its tokens."""

    id: str
    title: str
    paragraphs: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    pieces: tuple[tuple[str, Origin], ...] = ()
    listings: tuple[Listing, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The whole: what came out in one sentence, what that rests on, and the sections."""

    title: str
    headline: str
    standfirst: str
    sections: tuple[Section, ...]
