"""Builds the site of docs/ with a live report, and checks it: no warning, no dead link inside, nothing from elsewhere.

    python tools/build_site.py out/site

Needs `pip install -e '.[docs]'`. Ends with 1 and one line per fault.
"""

import contextlib
import io
import os
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

try:
    from sphinx.cmd.build import build_main
except ImportError as error:
    raise SystemExit(
        f"{error}; 'make docs' installs what builds the site, as does pip install 'mezzo[docs]'"
    ) from error

from mezzo.cli import main as run_mezzo

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Reports that pages show alive, by name, and the options of `mezzo tune` on the demo model that make them.
LIVE = {"digits": ("--to", "fp16", "--labels", "label", "--max-error", "3e-4")}
_LINKS = {"a": "href", "area": "href"}
# What a browser fetches when it opens a page.
_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class _Page(HTMLParser):
    """The anchors, links and loads of one built page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if _LINKS.get(tag) in found:
            self.links.append(found[_LINKS[tag]])
        if _LOADS.get(tag) in found:
            self.loads.append(found[_LOADS[tag]])


def build(site: Path) -> int:
    """Build every page anew, warnings being errors. Returns Sphinx's exit code."""
    cache = site.with_name(f"{site.name}.doctrees")
    return build_main(["-b", "html", "-E", "-a", "-W", "--keep-going", "-q", "-d", str(cache), str(DOCS), str(site)])


def add_reports(site: Path) -> None:
    """Write the reports that pages show alive into the site."""
    folder = site / "live"
    folder.mkdir(parents=True, exist_ok=True)
    home = Path.cwd()
    os.chdir(ROOT)  # the report says the paths that it was given
    try:
        with tempfile.TemporaryDirectory() as name:
            for report, options in LIVE.items():
                model, data = "examples/digits/digits.onnx", "examples/digits/heldout.npz"
                place = folder / f"{report}.html"
                words = ["tune", model, f"{name}/tuned.onnx", "--data", data, *options, "--report", str(place)]
                with contextlib.redirect_stdout(io.StringIO()):
                    code = run_mezzo(words)
                if code != 0:
                    raise SystemExit(f"mezzo {' '.join(words)} ended with {code}")
    finally:
        os.chdir(home)


def faults_of(site: Path) -> list[str]:
    """Links that lead nowhere inside the site, and what its pages load from elsewhere."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                faults.append(f"{where}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                faults.append(f"{where}: {link} has no such anchor")
        for link in page.loads:
            parts = urlsplit(link)
            if parts.netloc and parts.scheme != "data":
                faults.append(f"{where}: loads {link} from elsewhere")
    return faults


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    code = build(site)
    if code == 0:
        add_reports(site)
    faults = faults_of(site) if code == 0 else []
    for fault in faults:
        print(fault, file=sys.stderr)
    return code or int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
