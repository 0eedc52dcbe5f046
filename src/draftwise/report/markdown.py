"""A report as Markdown: its words and tables, without plots."""

import re
from collections.abc import Iterator, Sequence

from draftwise.report.parts import Listing, Report, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&])")


def markdown(report: Report) -> str:
    """The text of a file."""
    lines = [f"# {_plain(report.title)}", "", f"**{_plain(report.headline)}.**", ""]
    lines += [_plain(report.standfirst), ""]
    for section in report.sections:
        lines += _section(section)
    return "\n".join(lines)


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "")
    for paragraph in section.paragraphs:
        yield from (_plain(paragraph), "")
    if section.points:
        yield from (*(f"- {_plain(point)}" for point in section.points), "")
    for table in section.tables:
        yield from (*_table(table), "")
    for listing in section.listings:
        yield from (f"### {_plain(listing.name)}", "", *_listing(listing), "")


def _table(table: Table) -> Iterator[str]:
    yield from (f"{_plain(table.caption)}:", "")
    yield _row(table.head)
    yield _row([":--" if n < table.labels else "--:" for n in range(len(table.head))])
    for row in table.rows:
        yield _row([_plain(cell) for cell in row])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _listing(listing: Listing) -> Iterator[str]:
    longest = max(map(len, re.findall("`+", listing.text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, listing.text.rstrip("\n"), fence)


def _plain(text: str) -> str:
    """Text that reads as it is: no markup, no line breaks."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
