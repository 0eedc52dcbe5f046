"""Markdown shows text as it is, and the tables of the page."""

from draftwise.report.markdown import markdown
from draftwise.report.parts import Listing, Report, Section, Table
from draftwise.report.sections import compose
from tests.report import made


def report_of(section):
    return Report("Title", "Headline", "Standfirst", (section,))


def test_a_table_has_as_many_columns_in_every_row():
    cells = ("a|b", "<b>*x*</b>\nnext")
    text = markdown(report_of(Section("id", "T", tables=(Table("C", ("one", "two"), (cells,)),))))

    assert "| one | two |\n| :-- | --: |\n| a\\|b | \\<b\\>\\*x\\*\\</b\\> next |" in text


def test_a_listing_is_fenced_by_more_backticks_than_it_holds():
    text = markdown(report_of(Section("id", "T", listings=(Listing("vLLM", "a\n````\nb\n"),))))

    assert "### vLLM\n\n`````\na\n````\nb\n`````\n" in text


def test_every_section_and_every_table_of_the_page_is_there():
    report = compose(made.everything())

    text = markdown(report)

    assert text.startswith(
        "# Speculative decoding of qwen2.5-coder-1.5b\n\n**Speculation should pay: "
    )
    for section in report.sections:
        assert f"\n## {section.title}\n" in text
    assert text.count("\n| ") == sum(
        len(table.rows) + 2 for section in report.sections for table in section.tables
    )
    assert "- guesses are cheap\n- both models fit" in text
