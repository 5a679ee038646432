"""Self-contained HTML page of an account, with its libraries and scripts inline.

The account is embedded as gzip in base64, whose characters have no meaning in HTML or JavaScript:
names from a model reach the page as text nodes only. The Content-Security-Policy in the page's head
allows the listed script digests, and forbids every request.
"""

import base64
import hashlib
import html
import os
import re
from collections.abc import Mapping
from importlib.resources import files

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.safe_paths import check_destination, open_regular, write_file
from mezzo.report.html.packing import pack
from mezzo.report.html.without_scripts import spell_without_scripts
from mezzo.report.layout.names import clean

# The first line of every page.
MARK = "<!DOCTYPE html><!-- mezzo-report/1 -->"
_LIBRARIES = ("cytoscape.min.js", "dagre.min.js", "tabulator.min.js")
_STYLES = ("vendor/tabulator.min.css", "style.css")
_SCRIPTS = (
    "text.js", "packing.js", "account.js", "links.js", "files.js", "colours.js", "measures.js",
    "tree.js", "layout.js", "drawing.js", "details.js", "rows.js", "tables.js", "ranges.js",
    "charts.js", "summary.js", "why.js", "sections.js", "toolbar.js", "search.js", "page.js",
)  # fmt: skip
_SLOT = re.compile(r"<!--slot:(\w+)-->")


def render(account: Mapping[str, object]) -> str:
    """The HTML page of an account; without a graph, as `--json` prints it, a page of tables.

    Raises ValueError: it is no account, or has NaN or an infinity, which JSON lacks.
    """
    if account.get("format") != "mezzo-account/1":
        raise ValueError(
            f"format is {account.get('format')!r}, wanted 'mezzo-account/1'; give an account of"
            " mezzo's"
        )
    scripts = [_read(f"vendor/{name}") for name in _LIBRARIES] + [
        _read(f"scripts/{name}") for name in _SCRIPTS
    ]
    title = html.escape(f"mezzo {account.get('command')}: {_name(account)}")
    slots = {
        "title": title,
        "policy": html.escape(_policy(scripts)),
        "styles": "\n".join(f"<style>{_read(name)}</style>" for name in _STYLES),
        "licences": html.escape(_read("vendor/LICENSES")),
        "plain": spell_without_scripts(account),
        "account": pack(account),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # One pass over the template: slot contents are not searched for slots.
    return MARK + _SLOT.sub(lambda slot: slots[slot[1]], _read("page.html"))


def check_page_path(path: str | os.PathLike[str]) -> None:
    """Check that a page can be written at a path, where nothing or another page may be.

    Raises InputError: it cannot, or another file is there.
    """
    check_destination(path, option("report"))
    if not os.path.exists(path):
        return
    try:
        handle, _ = open_regular(path)
    except OSError as error:
        raise InputError(f"cannot read the report {os.fspath(path)!r}: {error.strerror}") from error
    with handle:
        begin = handle.read(len(MARK))
    if begin and begin != MARK.encode():
        raise InputError(
            f"{option('report')} {os.fspath(path)!r} exists and is no report of mezzo's; give"
            " another name or remove it"
        )


def write_account(path: str | os.PathLike[str], account: Mapping[str, object]) -> None:
    """Write the page of an account atomically. Raises InputError: the path cannot be written."""
    write_file(path, render(account).encode(), option("report"))


def _policy(scripts: list[str]) -> str:
    """The Content-Security-Policy: these scripts, inline styles, data images, and no request."""
    digests = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    return (
        "default-src 'none'; script-src "
        + " ".join(f"'sha256-{digest}'" for digest in digests)
        + "; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _name(account: Mapping[str, object]) -> str:
    models = account.get("models")
    paths = [str(model["path"]) for model in models] if isinstance(models, list) else []
    return clean(" → ".join(path.replace("\\", "/").rpartition("/")[2] for path in paths))


def _read(name: str) -> str:
    return files("mezzo.report.html").joinpath(name).read_text(encoding="utf-8")
