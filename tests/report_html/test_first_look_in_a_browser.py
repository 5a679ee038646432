"""What a reader of a page sees first: the wrong node, modules and lines, the limits of the format asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from opened_pages import Opened
from report_pages import HOSTILE, account_of, blocks, converted_elsewhere, exported, tokens

from mezzo.cli import main
from mezzo.report.html import render

pytestmark = pytest.mark.xdist_group("browser")
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
# Whether the selected box can be seen whole, at a size at which its name can be read.
_IN_VIEW = """(() => {
    const { cy, selected } = mezzoPage.drawing, box = cy.getElementById(selected.id).renderedBoundingBox();
    return box.x1 >= 0 && box.y1 >= 0 && box.x2 <= cy.width() && box.y2 <= cy.height() && cy.zoom() >= 0.6;
})()"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of commands on models that another tool converted or exported."""
    place = tmp_path_factory.mktemp("pages")
    np.savez(place / "x.npz", x=np.random.default_rng(5).uniform(0.5, 2, (8, 4)).astype(np.float32))
    reports: dict[str, Path] = {}
    for name, hot, code in (("wrong", 17, 1), ("right", None, 0)):
        model = blocks(36, hot)
        onnx.save(model, place / f"{name}.onnx")
        onnx.save(converted_elsewhere(model), place / f"{name}16.onnx")
        reports[name] = place / f"{name}.html"
        words = ["compare", place / f"{name}.onnx", place / f"{name}16.onnx", "--data", place / "x.npz"]
        assert main([str(word) for word in [*words, "--quiet", "--report", reports[name]]]) == code
    with np.load(DIGITS / "heldout.npz") as held:
        np.savez(place / "digits.npz", image=held["image"][:32])
    reports["bf16"] = place / "bf16.html"
    words = ["convert", DIGITS / "digits.onnx", place / "out.onnx", "--to", "bf16", "--target", "openvino-cpu"]
    words += ["--data", place / "digits.npz", "--quiet", "--report", reports["bf16"]]
    assert main([str(word) for word in words]) in (0, 1, 3)
    for name, model in {"exported": exported(), "tokens": tokens(), "states": tokens(70)}.items():
        reports[name] = place / f"{name}.html"
        reports[name].write_text(render(account_of(model)), encoding="utf-8")
    return reports


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The page that the test's parameter names."""
    page = Opened(browser, pages[request.param])
    yield page
    page.close()


def page_of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("opened", [name], indirect=True)


@page_of("wrong")
def test_failed_comparison_opens_on_the_node_at_which_the_error_begins(opened: Opened) -> None:
    assert opened.selected == "/net/block.17/fc/MatMul"
    assert opened.run(_IN_VIEW)
    assert "The error begins at /net/block.17/fc/MatMul" in opened.page.inner_text("#wrong")
    assert "✗ The error begins here." in opened.details() and "infinit" in opened.details()
    assert opened.run("mezzoPage.drawing.cy.nodes('.wrong').map((node) => node.data('label'))[0].startsWith('✗ ')")


@page_of("wrong")
def test_other_boxes_stay_closed_and_casts_stand_in_them(opened: Opened) -> None:
    drawn = opened.run("[...mezzoPage.drawing.layout.places.keys()].map((box) => [box.kind, box.name, box.isOpen])")
    assert len(drawn) < 60
    closed = {name for kind, name, is_open in drawn if kind == "scope" and not is_open}
    assert {"block.16", "block.18"} <= closed and "block.17" not in closed
    outside = opened.run("mezzoPage.drawing.tree.root.children.map((box) => box.kind)")
    assert "cast" not in outside and "placed" not in outside and "part" not in outside


@page_of("wrong")
def test_reset_and_a_closed_box_still_lead_to_the_wrong_node(opened: Opened) -> None:
    opened.run("mezzoPage.drawing.select(null); mezzoPage.drawing.fit()")
    opened.page.click("#less")
    assert opened.selected == "/net/block.17/fc/MatMul" and opened.run(_IN_VIEW)
    opened.run("mezzoPage.drawing.toggle([...mezzoPage.drawing.tree.byId.values()].find((b) => b.name === 'block.17'))")
    marked = opened.run("mezzoPage.drawing.cy.nodes('.wrong').map((node) => node.data('label'))")
    assert any("block.17" in label for label in marked)


@page_of("wrong")
def test_a_fault_is_no_error_of_zero(opened: Opened) -> None:
    card = opened.page.locator(".card", has_text="Output error").inner_text()
    assert "wrong" in card and "the reference does not have" in card
    first = opened.run("errorRows(mezzoPage.account).sort((a, b) => byNumber(b.error, a.error))[0]")
    assert first["fault"] and first["cosine"] is None


@page_of("right")
def test_comparison_that_holds_opens_on_the_largest_error_without_alarm(opened: Opened) -> None:
    assert opened.selected is not None and opened.run(_IN_VIEW)
    told = opened.page.inner_text("#wrong")
    assert told.startswith("▲ The largest error is at ") and "begins" not in told
    assert opened.run("mezzoPage.drawing.cy.nodes('.wrong').length") == 0


@page_of("bf16")
def test_ranges_of_bf16_are_held_against_its_own_limits(opened: Opened) -> None:
    told = opened.page.inner_text("#ranges")
    assert "what bf16 holds, 9.2e\u221241 to 3.39e38" in told and "f16 holds" not in told.replace("bf16", "")
    opened.run("document.getElementById('ranges').scrollIntoView()")
    opened.page.locator("#ranges .range").first.wait_for()
    band = opened.run("""(() => {
        const bar = document.querySelector("#ranges .range").getBoundingClientRect();
        const part = (name) => document.querySelector(`#ranges .range .${name}`).getBoundingClientRect();
        const [low, high] = ["subnormal", "holds"].map(part);
        return [(low.left - bar.left) / bar.width, (high.right - bar.left) / bar.width];
    })()""")
    # The axis runs from 1e-43 to 1e41, so its ends lie 2.96 and 2.47 of 84 powers of ten inside; a pixel is 0.5 %.
    assert band == pytest.approx([2.96 / 84, 1 - 2.47 / 84], abs=0.01)
    band_colour = opened.run("getComputedStyle(document.querySelector('#ranges .holds')).backgroundColor")
    assert (band_colour, opened.run("palette().fill.bf16")) == ("rgb(191, 234, 214)", "#bfead6")


@page_of("bf16")
def test_summary_tells_what_was_asked_for(opened: Opened) -> None:
    card = opened.page.locator(".card", has_text="Decided").inner_text()
    for words in ("bf16 for openvino-cpu", "policy balanced", "strategy mincut", "opset"):
        assert words in card


@page_of("exported")
def test_module_and_line_are_searched_and_told(opened: Opened) -> None:
    for words in ("encoder.layer.1.proj", "encoder.net.py:71"):
        opened.page.fill("#search", words)
        assert opened.page.locator("#found [role=option]").count() == 1
        opened.page.keyboard.press("Enter")
        assert opened.selected == "node_1"
    told = opened.details()
    for words in ("encoder.layer.1.proj", "/home/me/encoder.net.py:71", "return encoder.layer.1.proj(x)"):
        assert words in told
    opened.run("document.getElementById('nodes').scrollIntoView()")
    opened.page.locator("#nodes").get_by_label("Filter module").press_sequentially("layer.1")
    opened.page.locator("#nodes .tabulator-row").nth(1).wait_for(state="detached")
    assert "encoder.net.py:71" in opened.page.locator("#nodes .tabulator-row").inner_text()


@page_of("exported")
def test_modules_are_a_tree_with_what_is_inside_of_each(opened: Opened) -> None:
    rows = opened.run("moduleRows(mezzoPage.account, mezzoPage.shownViews[0])")
    inside = {row["name"]: row for row in rows}
    assert rows[0]["name"] == "the model"
    outer, inner = inside["encoder.layer.1"], inside["encoder.layer.1.proj"]
    assert outer["operators"] >= inner["operators"] >= 1 and inner["line"].endswith("encoder.net.py:71")
    assert list(inside).index("encoder.layer.1") < list(inside).index("encoder.layer.1.proj")


@page_of("exported")
def test_modules_and_lines_stay_text(opened: Opened) -> None:
    opened.run("mezzoPage.goNode(mezzoPage.account.byName.get('node_2'))")
    assert HOSTILE[1] in opened.details()
    opened.page.fill("#search", "onerror")
    opened.run("document.getElementById('nodes').scrollIntoView()")
    opened.page.locator("#nodes .tabulator-row").first.wait_for()
    opened.run("mezzoPage.print()")
    assert opened.page.locator("img[src=x]").count() == 0


@page_of("tokens")
def test_what_holds_integers_is_no_float(opened: Opened) -> None:
    rows = opened.run("nodeRows(mezzoPage.account, mezzoPage.shownViews[0])")
    assert {row["name"]: row["precision"] for row in rows}["input ids"] == "i64"
    labels = opened.run("mezzoPage.drawing.cy.nodes('.input').map((node) => node.data('label'))")
    assert labels == ["ids\ninput · i64"]
    assert not opened.run("mezzoPage.account.decisionOf.has('input ids')")  # nothing was decided of it


@page_of("tokens")
def test_nodes_begin_with_operators_and_end_with_weights(opened: Opened) -> None:
    kinds = opened.run("nodeRows(mezzoPage.account, mezzoPage.shownViews[0]).map((row) => row.kind)")
    assert kinds == ["op", "op", "output", "input", "source"]


@page_of("states")
def test_inputs_by_the_dozen_are_one_box(opened: Opened) -> None:
    outside = opened.run("mezzoPage.drawing.tree.root.children.map((box) => [box.kind, box.name])")
    assert ["part", "71 inputs"] in outside and ["part", "71 outputs"] in outside
    assert len(outside) < 10 and any(kind == "scope" for kind, _ in outside)
