"""The page in a real browser: complete, quiet, readable on a phone, in the light and in the dark."""

import shutil
from dataclasses import replace
from itertools import pairwise

import pytest

from draftwise.core.counters import RoundCount
from draftwise.report.page import html
from draftwise.report.sections import compose
from tests.report import made

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text

CONTRASTS = """selectors => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = channels(getComputedStyle(e).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const one = element => {
    const style = getComputedStyle(element);
    const text = channels(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(text), light(behind(element))].sort((p, q) => q - p);
    return (a + 0.05) / (b + 0.05);
  };
  return Object.fromEntries(selectors.map(
    s => [s, Math.min(...[...document.querySelectorAll(s)].map(one))]));
}"""


@pytest.fixture(scope="module")
def report():
    return compose(made.everything(), title="<i>Pairs</i> & more")


@pytest.fixture(scope="module")
def source(report):
    return html(report)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, source, tmp_path):
    """Open the page as a reader would; what it says on the console and asks the network is kept."""
    path = tmp_path / "report.html"
    contexts = []

    def open_(viewport=DESK, scheme="light", source=source):
        path.write_text(source, encoding="utf-8")
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(path.as_uri(), wait_until="networkidle")
        return page

    yield open_
    for context in contexts:
        context.close()


def test_it_asks_the_network_for_nothing_and_says_nothing(opened):
    page = opened()

    assert page.said == []
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.locator("script").count() == 0


def test_every_section_is_there_in_order_with_its_tables_and_plots(opened, report):
    page = opened()

    titles = [section.title for section in report.sections]
    assert page.locator("h2").all_inner_texts() == titles
    for section in report.sections:
        at = page.locator(f"section#{section.id}")
        assert at.locator("table").count() == len(section.tables)
        assert at.locator("[role=img] svg").count() == len(section.charts)
        assert at.locator("pre").count() == len(section.listings)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_only_tables_scroll_sideways(opened, scheme):
    page = opened(PHONE, scheme)

    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    widths = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(e => e.getBoundingClientRect().right)"
    )
    assert max(widths) <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_background(opened, scheme):
    page = opened(scheme=scheme)

    selectors = [
        *("h1", ".headline", ".standfirst", "section p", "li", "h3", "figcaption", "thead th"),
        *("tbody th", "td", "pre", "footer", ".text .accepted", ".text .correction"),
        *(".text .bonus", ".text .plain", "svg text"),
    ]
    contrasts = page.evaluate(CONTRASTS, selectors)

    assert {name: c for name, c in contrasts.items() if not LEAST_CONTRAST <= c <= 21} == {}


def test_plots_follow_the_readers_colours(opened):
    fills = "[...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)"

    light, dark = (set(opened(scheme=scheme).evaluate(fills)) for scheme in ("light", "dark"))

    assert light
    assert not light & dark


def test_text_from_records_is_text(opened):
    page = opened()

    assert page.title() == "<i>Pairs</i> & more"
    assert "<script>alert('no')</script>" in page.locator("#text .text").inner_text()
    assert "Write <b>one</b> & more" in page.locator("#text").inner_text()
    assert "' <0>'" in page.locator("#nesting table").inner_text()
    assert "<model>" in page.locator("pre").inner_text()


def test_names_in_plots_read_as_they_are(opened):
    odd = replace(made.SMALL, name="a$b$<i>")
    records = []
    for index, workload in enumerate(("翻訳 & $x_$", "$")):
        where = {"workload": workload, "index": index}
        records += [made.plain(**where), made.run([RoundCount(1, 1, 2, 1)], odd, 1, **where)]

    shown = opened(source=html(compose(records))).locator("#workloads svg text").all_text_contents()

    assert {"翻訳 & $x_$", "$", "a$b$<i>"} <= set(shown)


def test_origins_differ_without_colour(opened):
    page = opened()

    styles = [
        page.locator(f".text .{origin}").first.evaluate(
            "e => getComputedStyle(e).textDecorationLine + getComputedStyle(e).textDecorationStyle"
        )
        for origin in ("accepted", "correction", "bonus", "plain")
    ]
    assert len(set(styles)) == 4


def test_it_can_be_read_without_eyes(opened):
    page = opened()

    assert page.locator("html").get_attribute("lang") == "en"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    labels = page.evaluate("[...document.querySelectorAll('[role=img]')].map(e => e.ariaLabel)")
    assert all(len(label) > 40 for label in labels)
    assert page.locator("table th[scope=row]").count() == page.locator("tbody tr").count()


def test_the_same_records_make_the_same_page(report, source):
    assert html(compose(made.everything(), title="<i>Pairs</i> & more")) == source
