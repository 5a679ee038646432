"""HTML fragments for notebooks: lines, tables, and bars as SVG. All names are escaped."""

import html
import math
from collections.abc import Iterable, Sequence

from mezzo.report.layout.names import clean
from mezzo.report.views.picture import Picture

# Legible on white and on black.
_COLOURS = {
    "f16": "#2e9e5b",
    "bf16": "#1f9bb5",
    "f32": "#c8962e",
    "f64": "#a05fc0",
    "int8": "#8a6fd1",
}
_OTHER = "#7a86a8"
_WIDE = 420  # width of a picture in SVG units
# Pages without a doctype do not inherit these.
TABLE = "border-collapse:collapse;color:inherit;font:inherit"
CELL = (
    'style="text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.35)"'
)


def fragment(lines: Iterable[str], titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines above a table, all escaped."""
    head = "".join(f"<div>{safe(line)}</div>" for line in lines)
    return frame(head + spell_table(titles, [[safe(cell) for cell in row] for row in rows]))


def bars_of(picture: Picture) -> list[tuple[str, Sequence[tuple[str, int]]]]:
    """Nodes, weights, activations and multiply-adds by precision, for `page_of`."""
    return [
        ("nodes", [(str(share.dtype), share.nodes) for share in picture.shares]),
        ("weights", [(str(share.dtype), share.weights_bytes) for share in picture.shares]),
        ("activations", [(str(share.dtype), share.activations_bytes) for share in picture.shares]),
        ("multiply-adds", [(str(share.dtype), share.multiply_adds) for share in picture.shares]),
    ]


def safe(text: str) -> str:
    """Text escaped for HTML, hidden characters included."""
    return html.escape(clean(text))


def frame(inner: str) -> str:
    """HTML in a div of its own, with mezzo's style."""
    return f'<div class="mezzo" style="color:inherit;font-size:13px;line-height:1.5">{inner}</div>'


def spell_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of escaped cells."""
    head = "".join(f"<th {CELL}>{safe(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td {CELL}>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<table style="{TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def with_bars(rows: Iterable[tuple[str, str, float]], limit: float) -> list[tuple[str, str, str]]:
    """Rows of name, text and number, with the number as a bar relative to `limit`."""
    return [(safe(name), safe(text), bar_of(number, limit)) for name, text, number in rows]


def bar_of(number: float, limit: float) -> str:
    share = number / limit if limit > 0 and math.isfinite(number) else math.inf if number else 0.0
    colour = _COLOURS["f16"] if share <= 1 else "#c0392b"
    width = 120 * min(max(share, 0.0), 1.0)
    return (
        '<svg width="120" height="10" role="img"'
        f' aria-label="{safe(f"{100 * share:.3g} % of {limit:.3g}")}"><rect width="120" height="10"'
        f' fill="none" stroke="rgba(128,128,128,.5)"/><rect width="{width:.1f}" height="10"'
        f' fill="{colour}"/></svg>'
    )


def draw_bars(bars: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> str:
    """An SVG with one bar per measure, split by precision, and a legend."""
    nonempty = [(name, parts) for name, parts in bars if sum(size for _, size in parts)]
    if not nonempty:
        return ""
    lines, dtypes = (
        [],
        list(dict.fromkeys(dtype for _, parts in nonempty for dtype, size in parts if size)),
    )
    for position, (name, parts) in enumerate(nonempty):
        total, x = sum(size for _, size in parts), 110.0
        lines.append(
            f'<text x="0" y="{position * 18 + 12}" font-size="12"'
            f' fill="currentColor">{safe(name)}</text>'
        )
        for dtype, size in parts:
            width = (_WIDE - 110) * size / total
            tooltip = f"<title>{safe(f'{name}: {100 * size / total:.1f} % in {dtype}')}</title>"
            shape = (
                f'x="{x:.1f}" y="{position * 18 + 2}" width="{width:.1f}" height="12"'
                f' fill="{_colour(dtype)}"'
            )
            lines.append(f"<rect {shape}>{tooltip}</rect>" if size else "")
            x += width
    top = len(nonempty) * 18
    for position, dtype in enumerate(dtypes):
        lines.append(
            f'<rect x="{110 + position * 70}" y="{top + 4}" width="10" height="10"'
            f' fill="{_colour(dtype)}"/>'
        )
        lines.append(
            f'<text x="{124 + position * 70}" y="{top + 13}" font-size="12"'
            f' fill="currentColor">{safe(dtype)}</text>'
        )
    box = f'width="{_WIDE}" height="{top + 18}" viewBox="0 0 {_WIDE} {top + 18}"'
    return f'<svg {box} role="img">{"".join(lines)}</svg>'


def _colour(dtype: str) -> str:
    return _COLOURS.get(dtype, _OTHER)
