"""What stays high and why, colours of the graph, filters, and addresses that lead to a node."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from opened_pages import Opened
from report_pages import account_of, measured

from mezzo.report.html import render
from mezzo.report.records.account import schema

pytestmark = pytest.mark.xdist_group("browser")
MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   h = MatMul(x, w)
   s = Softmax<axis=-1>(h)
   r = Relu(s)
   e = Exp(r)
   y = MatMul(e, w)
}
"""
NAMES = ("/net/a/b/MatMul", "/net/a/b/Softmax", "/net/a/c/Relu", "/net/a/c/Exp", "/net/d/MatMul")
SOFTMAX = NAMES[1]
SOFTMAX_RULE = '.cause:has(.rule:text-is("softmax"))'


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with measured times of kernels and a frontier."""
    model = onnx.parser.parse_model(MODEL)
    for node, name in zip(model.graph.node, NAMES, strict=True):
        node.name = name
    account = measured(account_of(model))
    jsonschema.validate(account, schema())
    path = tmp_path_factory.mktemp("reasons") / "page.html"
    path.write_text(render(account), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Opened]:
    opened = Opened(browser, page)
    yield opened
    opened.close()


def test_reasons_stand_above_the_graph_with_their_cost(opened: Opened) -> None:
    order = opened.run("[...document.querySelectorAll('main section')].map((one) => one.id)")
    assert order[:3] == ["summary", "reasons", "graph"]
    told = opened.page.inner_text("#reasons")
    assert told.startswith("What stays in f32, and why")
    assert "BY A RULE OF THE POLICY OR THE GRAPH" in told.upper()
    softmax = opened.page.locator(SOFTMAX_RULE)
    assert "1 operator" in softmax.inner_text() and "takes 2 ms, 25 % of the time" in softmax.inner_text()
    assert "f16 would save 1 ms" in softmax.inner_text() and "1 cast around it" in softmax.inner_text()


def test_node_of_a_group_leads_to_the_graph_and_survives_a_reload(opened: Opened) -> None:
    block = opened.page.locator(SOFTMAX_RULE)
    block.locator("summary").click()
    assert "2 ms" in block.locator("tbody tr").inner_text()
    block.locator("a.node").click()
    assert opened.selected == SOFTMAX
    assert opened.run("location.hash") == f"#node={SOFTMAX.replace('/', '%2F')}"
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready]")
    assert opened.selected == SOFTMAX and opened.requests.pop().startswith("file:")


def test_selection_and_sections_are_in_the_address(browser: Any, page: Path) -> None:
    opened = Opened(browser, page)
    opened.run("mezzoPage.goNode(mezzoPage.account.byName.get('/net/d/MatMul'))")
    assert opened.run("decodeURIComponent(location.hash)") == "#node=/net/d/MatMul"
    opened.run("mezzoPage.drawing.select(null)")
    assert opened.run("location.hash") == ""
    opened.run("location.hash = '#node=%E0%A4%A'")  # a broken escape
    opened.run("location.hash = '#node=no such node'")
    assert opened.selected is None
    opened.close()


def test_group_highlights_its_nodes_and_lists_them(opened: Opened) -> None:
    block = opened.page.locator(SOFTMAX_RULE)
    block.locator("summary").click()
    block.get_by_text("Highlight in the graph").click()
    assert opened.page.inner_text("#highlighted").startswith("1 operator that rule softmax keeps in f32 highlighted.")
    clear = "mezzoPage.drawing.cy.nodes(':childless').not('.faded').map((node) => node.data('label').split('\\n')[0])"
    assert "b/Softmax" in " ".join(opened.run(clear)) or "Softmax" in opened.run(clear)
    assert opened.run("mezzoPage.drawing.cy.nodes('.faded').length") > 0
    opened.page.get_by_text("List them").click()
    rows = opened.page.locator("#nodes .tabulator-row")
    rows.first.wait_for()
    opened.page.wait_for_function("document.querySelectorAll('#nodes .tabulator-row').length === 1")
    opened.page.get_by_text("Show all").click()
    opened.page.wait_for_function("document.querySelectorAll('#nodes .tabulator-row').length > 4")
    assert opened.run("mezzoPage.drawing.cy.nodes('.faded').length") == 0


def test_legend_and_counts_highlight_a_precision(opened: Opened) -> None:
    entry = opened.page.locator("#legend .entry", has_text="f32")
    entry.click()
    assert entry.get_attribute("aria-pressed") == "true"
    assert "in f32 highlighted." in opened.page.inner_text("#highlighted")
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false" and opened.page.locator("#highlighted").is_hidden()
    opened.page.locator("#summary .count", has_text="f16").click()
    assert "in f16 highlighted." in opened.page.inner_text("#highlighted")


def test_colours_are_offered_where_they_are_known(opened: Opened) -> None:
    assert opened.run("[...document.getElementById('colour').options].map((one) => one.value)") == ["", "time", "bytes"]
    opened.page.select_option("#colour", "time")
    labels = opened.run("mezzoPage.drawing.cy.nodes().map((node) => node.data('label'))")
    assert any("2 ms" in label for label in labels)
    scale = opened.page.get_attribute("#legend .scale", "aria-label")
    assert scale is not None and scale.startswith("time, from ") and scale.endswith(", logarithmic")
    opened.page.select_option("#colour", "")
    assert opened.page.locator("#legend .entry").count() >= 2


def test_box_that_holds_one_box_opens_with_it(opened: Opened) -> None:
    opened.run("mezzoPage.drawing.tree.byId.forEach((box) => { box.isOpen = box === mezzoPage.drawing.tree.root; })")
    opened.run("mezzoPage.drawing.draw()")
    opened.run("mezzoPage.drawing.toggle([...mezzoPage.drawing.tree.byId.values()].find((box) => box.name === 'net'))")
    is_open = "[...mezzoPage.drawing.layout.places.keys()].filter((box) => box.isGroup && box.isOpen)"
    assert set(opened.run(f"{is_open}.map((box) => box.name)")) == {"net", "a"}, "of the two boxes in a, neither"


def test_panel_tells_shapes_attributes_and_times(opened: Opened) -> None:
    opened.run(f"mezzoPage.goNode(mezzoPage.account.byName.get({json.dumps(SOFTMAX)}))")
    told = opened.details()
    for words in ("[?, 4]", "axis", "-1", "measured time, f32 → f16", "2 ms → 1 ms", "writes"):
        assert words in told
