"""The browser that pages are tried in, for the tests of several folders."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def open_browser() -> Iterator[Any]:
    """The browser that playwright has installed, or the system's."""
    playwright = pytest.importorskip(
        "playwright.sync_api",
        reason="playwright is missing: install mezzo's extra 'browser', or run 'make browser-test'",
    )
    with playwright.sync_playwright() as tool:
        own = tool.chromium.executable_path
        found = own if os.path.exists(own) else next(filter(None, map(shutil.which, _SYSTEM)), None)
        if found is None:
            pytest.skip("no Chromium found: run 'playwright install chromium' or 'apt-get install chromium'")
        opened = tool.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()
