"""The page in a headless Chromium: it draws, answers mouse and keys, asks for nothing. Needs the extra `browser`."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from opened_pages import Opened
from report_pages import HOSTILE, TEXT, account_of, named

from mezzo.cli import main
from mezzo.report.html import render

pytestmark = pytest.mark.xdist_group("browser")
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SOFTMAX = "/encoder.0/attention/Softmax"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of the demo model by command, and one of a model with names that mean harm."""
    place = tmp_path_factory.mktemp("reports")
    with np.load(DIGITS / "heldout.npz") as held:
        images = held["image"][:64]
    np.savez(place / "data.npz", image=images)
    images[3, 0, 2, 2] = np.nan
    np.savez(place / "nan.npz", image=images)
    result, given = place / "out.onnx", ["--data", place / "data.npz"]
    model = DIGITS / "digits.onnx"
    commands: dict[str, list[object]] = {
        "convert": ["convert", model, result, *given, "--to", "fp16", "--quiet"],
        "compare": ["compare", model, result, *given, "--quiet"],
        "tune": ["tune", model, place / "tuned.onnx", *given, "--to", "fp16", "--max-error", "3e-4", "--quiet"],
        "strategies": ["strategies", model, "--policy", "tensorflow"],
        "undecidable": ["compare", model, result, "--data", place / "nan.npz", "--quiet"],
        "without_data": ["convert", model, place / "other.onnx", "--to", "fp16", "--quiet"],
    }
    for name, words in commands.items():
        code = main([str(word) for word in [*words, "--report", place / f"{name}.html"]])
        assert code == (3 if name == "undecidable" else 0)
    (place / "hostile.html").write_text(render(account_of(named())), encoding="utf-8")
    return {path.stem: path for path in place.glob("*.html")}


@pytest.fixture
def opened(browser: Any, reports: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The report that the test's parameter names; that of convert if there is none."""
    page = Opened(browser, reports[getattr(request, "param", "convert")])
    yield page
    page.close()


@pytest.mark.parametrize("opened", ["convert", "compare", "tune", "strategies"], indirect=True)
def test_every_command_has_a_drawing_and_its_tables(opened: Opened) -> None:
    command = opened.run("mezzoPage.account.command")
    wanted = {
        "convert": {"summary", "graph", "reasons", "errors", "ranges", "modules", "nodes"},
        "compare": {"summary", "graph", "reasons", "differences", "errors", "modules", "nodes"},
        "tune": {"summary", "graph", "reasons", "frontier", "errors", "ranges", "sensitivity", "modules", "nodes"},
        "strategies": {"summary", "graph", "strategies", "differences", "modules", "nodes"},
    }[command]
    shown = opened.run("[...document.querySelectorAll('section')].filter((one) => !one.hidden).map((one) => one.id)")
    assert set(shown) == wanted
    assert opened.run("mezzoPage.drawing.cy.nodes().length") > 10
    for section in wanted - {"summary", "graph", "reasons"}:
        opened.run(f"document.getElementById('{section}').scrollIntoView()")
        opened.page.locator(f"#{section} .tabulator-row").first.wait_for()
    assert opened.run("document.documentElement.scrollWidth <= innerWidth"), "the page does not scroll sideways"


def test_click_opens_a_box_and_tells_why_of_a_node(opened: Opened) -> None:
    before = opened.run("mezzoPage.drawing.cy.nodes().length")
    closed = opened.run(
        "[...mezzoPage.drawing.layout.places.keys()].find((box) => box.isGroup && !box.isOpen && box.ops > 3).name"
    )
    opened.click_box(closed)
    assert opened.run("mezzoPage.drawing.cy.nodes().length") > before
    assert opened.selected == closed
    opened.run(f"mezzoPage.goNode(mezzoPage.account.byName.get({SOFTMAX!r}))")
    opened.click_box("/encoder.0/attention/MatMul")
    opened.click_box(SOFTMAX)
    told = opened.details()
    for words in ("Softmax", "f16", "Nothing in this region needs f32", "lifted 'softmax'", "subnormal"):
        assert words in told
    asked = re.search("mezzo explain .*", told)
    assert asked is not None and "out.onnx" in asked[0], "the source does not know what data decided"


def test_click_hits_its_box_after_something_opened_above_the_drawing(browser: Any, reports: dict[str, Path]) -> None:
    opened = Opened(browser, reports["without_data"], viewport={"width": 1360, "height": 2400})
    opened.page.locator("#drawing").hover()
    was = opened.page.locator("#drawing").bounding_box()["y"]
    opened.run("document.querySelector('.cause').open = true")
    assert opened.page.locator("#drawing").bounding_box()["y"] > was + 50
    opened.click_box("input image")
    assert opened.selected == "input image"
    opened.close()


@pytest.mark.parametrize("opened", ["without_data"], indirect=True)
def test_panel_of_a_node_that_stays_high_tells_the_rule(opened: Opened) -> None:
    opened.run(f"mezzoPage.goNode(mezzoPage.account.byName.get({SOFTMAX!r}))")
    told = opened.details()
    for words in ("Softmax", "f32", "Loses precision for large inputs", "Rule softmax: deny", "mezzo explain"):
        assert words in told
    asked = re.search("mezzo explain .*", told)
    assert asked is not None and "digits.onnx" in asked[0]


@pytest.mark.parametrize("opened", ["undecidable"], indirect=True)
def test_summary_gives_no_budget_where_nothing_could_be_judged(opened: Opened) -> None:
    told = opened.page.inner_text("#summary")
    assert "Cannot tell. Input 'image' holds NaN in sample 3 of nan.npz" in told
    assert "No output could be judged on 64 samples of" in told and "Budget" not in told
    assert "judges nothing" in told


@pytest.mark.parametrize("opened", ["tune"], indirect=True)
def test_search_has_the_first_word(opened: Opened) -> None:
    told = opened.page.inner_text("#summary")
    assert 0 < told.index("Within the budget.") < told.index("Same answers.")


def test_cast_is_drawn_and_tells_who_reads_it(opened: Opened) -> None:
    opened.run(f"mezzoPage.goNode(mezzoPage.account.byName.get({SOFTMAX!r}))")
    labels = opened.run("mezzoPage.drawing.cy.nodes('.placed').map((node) => node.data('label'))")
    assert "f16 → f32" in labels and "f32 → f16" in labels
    opened.run("mezzoPage.drawing.select(mezzoPage.drawing.tree.casts.find((box) => box.cast.dtype === 'f32'))")
    assert "Read by" in opened.details() or "READ BY" in opened.details()
    assert SOFTMAX in opened.details() or "logits" in opened.details()


def test_search_finds_and_reveals_a_node_by_keyboard_alone(opened: Opened) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("encoder.1 softmax")
    assert opened.page.locator("#found [role=option]").count() == 1
    opened.page.keyboard.press("Enter")
    assert opened.selected == "/encoder.1/attention/Softmax"
    assert opened.run("document.activeElement.id") == "drawing"
    opened.page.keyboard.press("/")
    opened.page.keyboard.press("ControlOrMeta+a")
    opened.page.keyboard.type("no such name")
    assert "Nothing is called so." in opened.page.inner_text("#found")
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("#found").is_hidden()


def test_keys_walk_the_graph(opened: Opened) -> None:
    opened.page.locator("#drawing").focus()
    opened.page.keyboard.press("ArrowDown")
    assert opened.selected == "input image"
    for _ in range(2):
        opened.page.keyboard.press("ArrowDown")
    assert opened.selected == "/stem/Conv"
    opened.page.keyboard.press("ArrowUp")
    opened.page.keyboard.press("ArrowUp")
    assert opened.selected == "input image"
    opened.run(
        "mezzoPage.drawing.go([...mezzoPage.drawing.layout.places.keys()].find((box) => box.name === 'encoder.1'))"
    )
    was = opened.run("mezzoPage.drawing.selected.isOpen")
    opened.page.keyboard.press("Enter")
    assert opened.run("mezzoPage.drawing.selected.isOpen") is not was
    opened.page.keyboard.press("Escape")
    assert opened.selected is None


def test_zoom_by_buttons_keys_and_wheel(opened: Opened) -> None:
    zoom = "mezzoPage.drawing.cy.zoom()"
    first = opened.run(zoom)
    opened.page.click("#zoom-in")
    assert opened.run(zoom) > first
    opened.page.locator("#drawing").focus()
    opened.page.keyboard.press("-")
    assert opened.run(zoom) == pytest.approx(first)
    opened.page.locator("#drawing").hover()
    deadline = time.monotonic() + 10
    while opened.run(zoom) <= first * 1.01 and time.monotonic() < deadline:  # while the page scrolls, the wheel is its
        opened.page.wait_for_timeout(300)
        opened.page.mouse.wheel(0, -100)
    assert opened.run(zoom) > first * 1.01
    opened.page.keyboard.press("0")
    fitted = opened.run("""(() => { const { cy, layout } = mezzoPage.drawing;
        return cy.zoom() * layout.width <= cy.width() + 1 && cy.zoom() * layout.height <= cy.height() + 1; })()""")
    assert fitted


def test_tables_sort_filter_and_lead_to_the_graph(opened: Opened) -> None:
    opened.run("document.getElementById('nodes').scrollIntoView()")
    rows = opened.page.locator("#nodes .tabulator-row")
    rows.first.wait_for()
    opened.page.get_by_label("Filter operator").last.press_sequentially("softmax")
    opened.page.wait_for_timeout(500)
    assert rows.count() == 2
    assert "2 of" in opened.page.inner_text("#nodes-title")
    opened.page.locator("#nodes .tabulator-col", has_text="name").locator(".tabulator-col-title").first.click()
    opened.page.locator("#nodes .tabulator-col", has_text="name").locator(".tabulator-col-title").first.click()
    assert "encoder.1" in rows.first.inner_text()
    rows.first.focus()
    opened.page.keyboard.press("Enter")
    assert opened.selected == "/encoder.1/attention/Softmax"


@pytest.mark.parametrize("opened", ["strategies"], indirect=True)
def test_two_plans_stand_beside_each_other(opened: Opened) -> None:
    opened.page.select_option("#plan", label="mincut")
    opened.page.select_option("#against", label="paint")
    assert opened.run("mezzoPage.shownViews.map((view) => view.name)") == ["mincut", "paint"]
    opened.run("document.getElementById('differences').scrollIntoView()")
    opened.page.locator("#differences .tabulator-row").first.wait_for()
    told = opened.run("mezzoPage.differences().length")
    drawn = opened.run("mezzoPage.drawing.tree.root.differs")
    nodes = opened.run("mezzoPage.differences().filter((row) => row.op !== 'cast of the value').length")
    assert told > 0 and nodes >= drawn > 0
    assert opened.run("mezzoPage.drawing.cy.nodes('.differs').length") > 0


def test_dark_is_dark_by_the_system_and_by_the_switch(browser: Any, reports: dict[str, Path]) -> None:
    dark, light = "rgb(18, 22, 27)", "rgb(246, 247, 249)"
    colour = "getComputedStyle(document.body).backgroundColor"
    for scheme, wanted in (("dark", dark), ("light", light)):
        opened = Opened(browser, reports["tune"], color_scheme=scheme)
        assert opened.run(colour) == wanted
        opened.page.click("#theme")
        assert opened.run(colour) == light
        opened.page.click("#theme")
        assert opened.run(colour) == dark
        text = opened.run("mezzoPage.drawing.cy.nodes()[0].style('color')")
        assert text == "rgb(232,237,242)"
        opened.close()


@pytest.mark.parametrize("opened", ["hostile"], indirect=True)
def test_names_stay_names(opened: Opened) -> None:
    for name in HOSTILE:
        found = opened.run(f"mezzoPage.account.byName.get({json.dumps(name)})")
        assert found is not None, name
        opened.run(f"mezzoPage.goNode({found})")
        told = opened.page.inner_text("#details h3")
        assert not any(sign in told for sign in "\u202e\u200b\x1b\x00\x07\u2028")
        opened.page.fill("#search", name[:6].replace("\x1b", ""))
    opened.run("document.getElementById('nodes').scrollIntoView()")
    opened.page.locator("#nodes .tabulator-row").first.wait_for()
    opened.run("mezzoPage.print()")
    assert opened.page.locator("main img[src=x], main svg[onload], main script, main [onmouseover]").count() == 0
    assert opened.page.title() == "mezzo convert: in.onnx → out.onnx"


def test_prints_tables_and_drawing(opened: Opened) -> None:
    opened.run("dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#print-drawing").is_visible()
    assert opened.page.locator("#nodes .on-paper tbody tr").count() > 20
    assert len(opened.page.pdf()) > 50_000


def test_everything_that_acts_has_a_name(opened: Opened) -> None:
    nameless = opened.run("""[...document.querySelectorAll('button, input, select, a, [tabindex="0"], [role=img]')]
        .filter((one) => one.closest('.tabulator-row') === null)
        .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length))
        .map((one) => one.outerHTML.slice(0, 120))""")
    assert nameless == []
    seen = []
    for _ in range(40):  # through the menu and the reasons, to the graph
        opened.page.keyboard.press("Tab")
        seen.append(opened.run("document.activeElement.id || document.activeElement.textContent.slice(0, 20)"))
    assert "search" in seen and "theme" in seen and "zoom-in" in seen
    assert opened.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_account_without_a_graph_shows_tables(browser: Any, tmp_path: Path) -> None:
    account = {**account_of(onnx.parser.parse_model(TEXT)), "graph": None, "plans": []}
    (tmp_path / "page.html").write_text(render(account), encoding="utf-8")
    opened = Opened(browser, tmp_path / "page.html")
    assert opened.page.locator("#graph").is_hidden()
    opened.page.locator("#nodes .tabulator-row").first.wait_for()
    opened.close()
