"""`<!-- live: NAME -->` on a page becomes the report NAME.html, alive in a frame.

tools/build_site.py makes the reports; in a checkout the comment is not seen.
"""

import re

from sphinx.application import Sphinx

FOLDER = "live"
_COMMENT = re.compile(r"^<!-- live: (\w+) -->$", re.MULTILINE)
_FRAME = """\
```{{raw}} html
<p class="live-link"><a href="{up}{folder}/{name}.html" target="_blank">Open the report in a tab of its own</a></p>
<iframe class="live" src="{up}{folder}/{name}.html" title="The report, alive" loading="lazy"></iframe>
```"""


def _put(app: Sphinx, page: str, source: list[str]) -> None:
    up = "../" * page.count("/")
    source[0] = _COMMENT.sub(lambda found: _FRAME.format(up=up, folder=FOLDER, name=found[1]), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's way in."""
    app.connect("source-read", _put)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
