"""The browser that pages are tried in."""

import pytest
from browsers import open_browser

browser = pytest.fixture(scope="module")(open_browser)
