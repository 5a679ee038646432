"""Index page of a folder conversion: one row per model, with a link to its page; no scripts."""

import html
import os
import string
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mezzo.common.sizes import format_size
from mezzo.report.html.page import MARK
from mezzo.report.layout.names import clean
from mezzo.report.records.headline import Headline
from mezzo.report.text.folder import count_states

if TYPE_CHECKING:
    from mezzo.report.text.folder import File, Folder

_PLAIN = frozenset(string.ascii_letters + string.digits + "/-_.~")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #b3261e; --good: #1b7f3b; --dim: #777; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #7bd88f; --dim: #aaa; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.25rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3rem .6rem; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
th { white-space: nowrap; } td:first-child { min-width: 9rem; }
.number { text-align: right; white-space: nowrap; } .dim { color: var(--dim); }
.wrong, .failed { color: var(--bad); } .right { color: var(--good); }
ul.counts { list-style: none; padding: 0; display: flex; gap: 1.5rem; flex-wrap: wrap; }
ul.counts b { font-size: 1.4rem; display: block; }
"""


def page_name(name: str) -> str:
    """The path of a model's page, from that of the index."""
    return f"models/{name}.html"


def render_index(title: str, headline: Headline | None, folder: "Folder") -> str:
    """The index page; `headline` is None if nothing was converted."""
    shown = html.escape(clean(title))
    body = [f"<h1>{shown}</h1>", *_rows_of(headline), *_counts(count_states(folder))]
    if folder.failed:
        failures = ((failure.source, failure.because) for failure in folder.failed)
        body += ["<h2 id=failed>Failed</h2>", *_reasons(failures, "failed")]
    files = tuple(folder.files)
    if files:
        body += ["<h2 id=converted>Converted</h2>", *_files(files)]
    if folder.skipped:
        body += ["<h2 id=kept>Kept: low or quantized already</h2>"]
        body += _reasons(iter(folder.skipped), "dim")
    return (
        f'{MARK}<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">'
        f"<title>mezzo: {shown}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _rows_of(headline: Headline | None) -> Iterator[str]:
    if headline is None:
        return
    yield "<table>"
    for label, sentence in headline.rows():
        yield f"<tr><th>{html.escape(label)}</th><td>{_cell(sentence)}</td></tr>"
    yield "</table>"


def _counts(counts: Mapping[str, int]) -> Iterator[str]:
    items = (f"<li><b>{count}</b> {html.escape(state)}</li>" for state, count in counts.items())
    yield f'<ul class="counts">{"".join(items)}</ul>'


def _files(files: "tuple[File, ...]") -> Iterator[str]:
    yield (
        "<table><thead><tr><th>model</th><th>verdict</th><th class=number>size</th>"
        "<th class=number>share</th><th class=number>seconds</th></tr></thead><tbody>"
    )
    for file in files:
        link = _quote(page_name(file.source))
        summary = file.converted.summary
        before, after = summary.size_before_bytes, summary.size_after_bytes
        share = f"{100 * after / before:.0f} %" if before else ""
        state = ' <span class="dim">unchanged</span>' if file.is_unchanged else ""
        standing = file.headline.standing.value
        yield (
            f'<tr><td><a href="{html.escape(link)}">{_cell(file.source)}</a>{state}</td>'
            f'<td class="{html.escape(standing.split()[-1])}">{_cell(file.headline.verdict)}</td>'
            f"<td class=number>{format_size(before)} → {format_size(after)}</td>"
            f"<td class=number>{share}</td><td class=number>{file.seconds:.2f}</td></tr>"
        )
    yield "</tbody></table>"


def _reasons(rows: Iterator[tuple[str, str]], style: str) -> Iterator[str]:
    yield "<table><tbody>"
    for name, because in rows:
        yield f'<tr><td>{_cell(name)}</td><td class="{style}">{_cell(because)}</td></tr>'
    yield "</tbody></table>"


def _quote(path: str) -> str:
    """A path as a relative URL, by its bytes on the disk."""
    signs = ((chr(byte), f"%{byte:02X}") for byte in os.fsencode(path))
    return "".join(sign if sign in _PLAIN else escaped for sign, escaped in signs)


def _cell(text: str) -> str:
    return html.escape(clean(text))
