"""The site in a headless Chromium, opened as files: it searches, copies commands alone, shows the report, fits a phone.

Needs the extras `docs` and `browser`.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import open_browser

pytest.importorskip(
    "playwright.sync_api", reason="playwright is missing: install mezzo's extra 'browser', or run 'make browser-test'"
)
pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
# As the browser finds what was copied: no page of files may read the clipboard.
_PASTE = "document.body.prepend(Object.assign(document.createElement('textarea'), {id: 'pasted'}))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    if any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_parser", "furo", "sphinx_copybutton")):
        pytest.skip("needs what builds the site: pip install -e '.[docs]'")
    place = tmp_path_factory.mktemp("site") / "site"
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_site.py"), str(place)], capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return place


browser = pytest.fixture(scope="module")(open_browser)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that asks for nothing but files, and on which nothing goes wrong."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []

    def look(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            wrong.append(request.url)

    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", look)
    yield opened
    context.close()
    # Of files the search cannot fetch the summaries that it shows below what it finds.
    assert [fault for fault in wrong if fault != "Failed to fetch"] == []


def test_search_finds_pages(site, page):
    page.goto(f"{(site / 'search.html').as_uri()}?q=frontier")
    page.wait_for_selector("#search-results li")
    titles = page.locator("#search-results li a").all_inner_texts()
    assert any("budget" in title for title in titles)


def test_copy_takes_the_commands_of_a_session_without_prompts_and_outputs(site, page):
    page.goto((site / "tutorial.html").as_uri())
    session = page.locator(".highlight-console").first
    session.hover()
    session.locator("button.copybtn").click()
    page.evaluate(_PASTE)
    page.locator("#pasted").focus()
    page.keyboard.press("Control+V")
    assert page.locator("#pasted").input_value() == "mezzo plan model.onnx --to fp16"


def test_output_alone_has_nothing_to_copy(site, page):
    page.goto((site / "tutorial.html").as_uri())
    assert page.locator(".highlight-text pre").count() > 0
    assert page.locator(".highlight-text button.copybtn").count() == 0
    assert page.locator(".highlight-python button.copybtn").count() > 0


def test_session_is_coloured(site, page):
    page.goto((site / "tutorial.html").as_uri())
    colours = {
        part: page.locator(f".highlight-console .{part}").first.evaluate("part => getComputedStyle(part).color")
        for part in ("k", "na", "go")
    }
    assert len(set(colours.values())) == 3


def test_report_is_alive_in_its_page(site, page):
    page.goto((site / "how-to" / "report.html").as_uri())
    page.locator("iframe.live").scroll_into_view_if_needed()
    inside = page.frame_locator("iframe.live")
    inside.locator("canvas").first.wait_for(timeout=20_000)
    assert "digits.onnx" in inside.locator("body").inner_text()


def test_name_in_quotes_leads_to_the_reference(site, page):
    page.goto((site / "explanation" / "systems.html").as_uri())
    page.locator("a.quoted-name", has_text="mezzo.convert_lists").first.click()
    assert page.url.endswith("reference/python.html#mezzoconvert_lists")


def test_type_in_the_reference_leads_to_where_it_is_told_of(site, page):
    page.goto((site / "reference" / "python.html").as_uri())
    page.locator("table a", has_text="FrontierPoint").first.click()
    assert page.url.endswith("#frontierpoint") and page.locator("#frontierpoint").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_a_phone(site, browser, theme):
    context = browser.new_context(viewport={"width": 420, "height": 900}, color_scheme=theme)
    opened = context.new_page()
    wide = []
    for path in sorted(site.rglob("*.html")):
        if path.parent.name not in {"live", "_static"}:
            opened.goto(path.as_uri())
            if opened.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                wide.append(path.name)
    ground = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()
    assert wide == [] and (ground == "rgb(255, 255, 255)") == (theme == "light")
