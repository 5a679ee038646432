"""Pieces of what a notebook is given: lines, tables, and bars as pictures. Every name is escaped here."""

import html
import math
from collections.abc import Iterable, Sequence

from mezzo.report.layout.names import clean
from mezzo.report.views.picture import Picture

# Seen on white and on black alike.
_COLOURS = {"f16": "#2e9e5b", "bf16": "#1f9bb5", "f32": "#c8962e", "f64": "#a05fc0", "int8": "#8a6fd1"}
_OTHER = "#7a86a8"
_WIDE = 420  # of a picture, in its own units
TABLE = "border-collapse:collapse;color:inherit;font:inherit"  # which a page without a doctype does not
CELL = 'style="text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.35)"'


def fragment(lines: Iterable[str], titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines above a table, all of which are escaped here."""
    head = "".join(f"<div>{safe(line)}</div>" for line in lines)
    return frame(head + spell_table(titles, [[safe(cell) for cell in row] for row in rows]))


def bars_of(picture: Picture) -> list[tuple[str, Sequence[tuple[str, int]]]]:
    """What a picture says of nodes, weights, activations and multiply-adds, for `page_of`."""
    return [
        ("nodes", [(str(share.dtype), share.nodes) for share in picture.shares]),
        ("weights", [(str(share.dtype), share.weights_bytes) for share in picture.shares]),
        ("activations", [(str(share.dtype), share.activations_bytes) for share in picture.shares]),
        ("multiply-adds", [(str(share.dtype), share.multiply_adds) for share in picture.shares]),
    ]


def safe(text: str) -> str:
    """A name or a sentence as a page holds it."""
    return html.escape(clean(text))


def frame(inner: str) -> str:
    """What stands alone on a page."""
    return f'<div class="mezzo" style="color:inherit;font-size:13px;line-height:1.5">{inner}</div>'


def spell_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are safe already."""
    head = "".join(f"<th {CELL}>{safe(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td {CELL}>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table style="{TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def with_bars(rows: Iterable[tuple[str, str, float]], limit: float) -> list[tuple[str, str, str]]:
    """Rows of a name, a number in words and the number, which becomes a bar as long as its share of the limit."""
    return [(safe(name), safe(said), bar_of(number, limit)) for name, said, number in rows]


def bar_of(number: float, limit: float) -> str:
    share = number / limit if limit > 0 and math.isfinite(number) else math.inf if number else 0.0
    colour = _COLOURS["f16"] if share <= 1 else "#c0392b"
    width = 120 * min(max(share, 0.0), 1.0)
    return (
        f'<svg width="120" height="10" role="img" aria-label="{safe(f"{100 * share:.3g} % of {limit:.3g}")}">'
        f'<rect width="120" height="10" fill="none" stroke="rgba(128,128,128,.5)"/>'
        f'<rect width="{width:.1f}" height="10" fill="{colour}"/></svg>'
    )


def draw_bars(bars: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> str:
    """One bar for each measure with a part for each precision, as long as its share, and what the colours mean."""
    shown = [(name, parts) for name, parts in bars if sum(size for _, size in parts)]
    if not shown:
        return ""
    lines, dtypes = [], list(dict.fromkeys(dtype for _, parts in shown for dtype, size in parts if size))
    for place, (name, parts) in enumerate(shown):
        whole, left = sum(size for _, size in parts), 110.0
        lines.append(f'<text x="0" y="{place * 18 + 12}" font-size="12" fill="currentColor">{safe(name)}</text>')
        for dtype, size in parts:
            width = (_WIDE - 110) * size / whole
            told = f"<title>{safe(f'{name}: {100 * size / whole:.1f} % in {dtype}')}</title>"
            shape = f'x="{left:.1f}" y="{place * 18 + 2}" width="{width:.1f}" height="12" fill="{_colour(dtype)}"'
            lines.append(f"<rect {shape}>{told}</rect>" if size else "")
            left += width
    top = len(shown) * 18
    for place, dtype in enumerate(dtypes):
        lines.append(f'<rect x="{110 + place * 70}" y="{top + 4}" width="10" height="10" fill="{_colour(dtype)}"/>')
        lines.append(
            f'<text x="{124 + place * 70}" y="{top + 13}" font-size="12" fill="currentColor">{safe(dtype)}</text>'
        )
    box = f'width="{_WIDE}" height="{top + 18}" viewBox="0 0 {_WIDE} {top + 18}"'
    return f'<svg {box} role="img">{"".join(lines)}</svg>'


def _colour(dtype: str) -> str:
    return _COLOURS.get(dtype, _OTHER)
