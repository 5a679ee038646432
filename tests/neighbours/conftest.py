"""What the neighbours need: each fixture gives it, or skips with what to install."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from neighbours import INSTALLED, REMEDY

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# A browser that asks nothing of anyone, and may run where there is no sandbox, as in most containers.
QUIET = (
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Launch = Callable[..., Any]


@pytest.fixture(scope="session")
def text_folder() -> Path:
    """A folder as model hubs keep them, with onnx/model.onnx and onnx/model_fp16.onnx. Not to be changed."""
    folder = INSTALLED / "text"
    if not (folder / "onnx" / "model_fp16.onnx").exists():
        pytest.skip(f"needs the model of examples/neighbours/shared/text_model.py in out/neighbours/text: {REMEDY}")
    return folder


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Where npm put what examples/neighbours/package.json names."""
    folder = INSTALLED / "node_modules"
    if not (folder / ".made").exists():
        pytest.skip(f"needs npm's packages in out/neighbours/node_modules: {REMEDY}")
    return folder


@pytest.fixture(scope="session")
def node() -> str:
    """Node.js."""
    return shutil.which("node") or pytest.skip("needs Node.js 20 or newer on PATH as node")


@pytest.fixture(scope="module")
def launch() -> Iterator[Launch]:
    """Start a headless browser, or give the one that was started with these switches."""
    api = pytest.importorskip("playwright.sync_api", reason=f"needs the Python package playwright: {REMEDY}")
    with api.sync_playwright() as playwright:
        path = os.environ.get("MEZZO_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("needs Chromium: on PATH, in MEZZO_BROWSER, or by `python -m playwright install chromium`")
        browsers: dict[tuple[str, ...], Any] = {}

        def start(*switches: str) -> Any:
            if switches not in browsers:
                browsers[switches] = playwright.chromium.launch(executable_path=path, args=[*QUIET, *switches])
            return browsers[switches]

        yield start
        for browser in browsers.values():
            browser.close()
