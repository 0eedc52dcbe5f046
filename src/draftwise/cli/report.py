"""`draftwise report`: one page of tables and plots from files of records."""

from pathlib import Path

import click

from draftwise.cli.measuring import write_page
from draftwise.core.errors import OptionError


@click.command()
@click.argument("records", nargs=-1, required=True, metavar="RECORDS.jsonl...")
@click.option(
    "--html", metavar="FILE", help="Where to; by default report.html beside the first file."
)
@click.option("--markdown", metavar="FILE", help="Write the words and tables as Markdown too.")
@click.option("--title", metavar="TEXT", help="By default, which target was sped up.")
def report(
    records: tuple[str, ...], html: str | None, markdown: str | None, title: str | None
) -> None:
    """Make a self-contained HTML page of tables and plots from RECORDS.

    They are what other verbs wrote with --out, of one target on one machine. No model is run. The names
    of the files that were written are printed.
    """
    sources = [Path(name) for name in records]
    pages = {"html": Path(html) if html else sources[0].with_name("report.html")}
    if markdown:
        pages["markdown"] = Path(markdown)
    if markdown and pages["html"].resolve() == pages["markdown"].resolve():
        raise OptionError(f"{markdown} cannot be both pages: give one of them another name")
    for path in pages.values():
        if path.resolve() in [source.resolve() for source in sources]:
            raise OptionError(f"{path} holds the records: give the page another name")

    from draftwise.measure.recording import read_records

    found = {source: read_records(source) for source in sources}
    for source, own in found.items():
        if not own:
            raise OptionError(f"{source} holds no records")

    from draftwise.report import markdown as as_markdown
    from draftwise.report import page
    from draftwise.report.sections import compose

    whole = compose([record for own in found.values() for record in own], title)
    makers = {"html": page.html, "markdown": as_markdown.markdown}
    for kind, path in pages.items():
        write_page(path, makers[kind](whole))
        click.echo(path)
