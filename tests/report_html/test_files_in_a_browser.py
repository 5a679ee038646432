"""Files that a page saves, heads of tables that keys reach, and the chart of the frontier."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest
from opened_pages import Opened
from report_pages import TEXT, account_of, measured, named

from mezzo.report.html import render

pytestmark = pytest.mark.xdist_group("browser")
FORMULA = '=HYPERLINK("http://x")'
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("files")
    accounts = {
        "timed": measured(account_of(named((FORMULA, "<b>&amp;")))),
        "estimated": measured(account_of(onnx.parser.parse_model(TEXT)), unit="bytes moved"),
    }
    for name, account in accounts.items():
        (place / f"{name}.html").write_text(render(account), encoding="utf-8")
    return {name: place / f"{name}.html" for name in accounts}


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    opened = Opened(browser, pages["timed"])
    yield opened
    opened.close()


def saved(opened: Opened, selector: str, place: Path) -> Path:
    """What a button saves."""
    with opened.page.expect_download() as download:
        opened.page.locator(selector).click()
    download.value.save_as(place / download.value.suggested_filename)
    return place / download.value.suggested_filename


def test_table_is_saved_as_csv_without_formulas(opened: Opened, tmp_path: Path) -> None:
    path = saved(opened, "#nodes .save", tmp_path)
    assert path.name == "nodes.csv"
    with path.open(newline="", encoding="utf-8") as file:
        titles, *rows = list(csv.reader(file))
    assert titles[:3] == ["name", "operator", "runs in"]
    names = [row[0] for row in rows]
    assert len(rows) == opened.run("mezzoPage.account.nodes.length")
    assert f"'{FORMULA}" in names and "<b>&amp;" in names


def test_graph_and_chart_are_saved_as_svg(opened: Opened, tmp_path: Path) -> None:
    graph = ElementTree.parse(saved(opened, "#save-graph", tmp_path)).getroot()
    words = ["".join(text.itertext()) for text in graph.iter(f"{SVG}text")]
    assert graph.tag == f"{SVG}svg" and any("MatMul" in word for word in words)
    drawn = opened.run("mezzoPage.drawing.layout.places.size")
    assert len(words) == drawn and len(list(graph.iter(f"{SVG}polyline"))) == opened.run(
        "mezzoPage.drawing.layout.edges.length"
    )
    chart = ElementTree.parse(saved(opened, "#frontier-title .save >> nth=1", tmp_path)).getroot()
    assert len(list(chart.iter(f"{SVG}circle"))) == 3
    assert not list(graph.iter(f"{SVG}script")) and "class" not in chart.find(f"{SVG}line").attrib  # type: ignore[union-attr]


def test_heads_sort_by_keys(opened: Opened) -> None:
    opened.run("document.getElementById('nodes').scrollIntoView()")
    head = opened.page.locator("#nodes .tabulator-col.tabulator-sortable").first
    head.wait_for()
    opened.page.wait_for_function("document.querySelector('#nodes .tabulator-col.tabulator-sortable').tabIndex === 0")
    head.focus()
    opened.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    opened.page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"


def test_frontier_has_time_where_it_was_measured(browser: Any, pages: dict[str, Path]) -> None:
    axes = {}
    for name, path in pages.items():
        opened = Opened(browser, path)
        axes[name] = opened.page.locator("#frontier-chart svg text").all_text_contents()
        told = opened.page.locator("#frontier-chart circle").first.get_attribute("aria-label")
        assert told is not None and "predicted error" in told
        opened.close()
    assert any(words.startswith("measured time per call") for words in axes["timed"])
    assert any(words.endswith("ms") for words in axes["timed"])
    assert any("times were not measured" in words for words in axes["estimated"])
