"""HTML fragments for notebooks: lines above one table, with bars as SVG. All text is escaped."""

import html
import math
from collections.abc import Iterable, Sequence

from mezzo.report.layout.names import clean

# Pages without a doctype do not inherit these.
_TABLE = "border-collapse:collapse;color:inherit;font:inherit"
_CELL = (
    'style="text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.35)"'
)
_BAR = 120  # width of a full bar in pixels
# Legible on white and on black.
_WITHIN, _PAST = "#2e9e5b", "#c0392b"


def fragment(
    lines: Iterable[str],
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    shares: Sequence[float] = (),
) -> str:
    """Lines above a table. `shares`: one per row, drawn as a bar in a last column."""
    cells = [[_safe(text) for text in row] for row in rows]
    if shares:
        bars = map(_draw_bar, shares)
        cells = [[*row, bar] for row, bar in zip(cells, bars, strict=True)]
    above = "".join(f"<div>{_safe(line)}</div>" for line in lines)
    head = "".join(f"<th {_CELL}>{_safe(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td {_CELL}>{cell}</td>" for cell in row) + "</tr>" for row in cells
    )
    return (
        f'<div class="mezzo" style="color:inherit;font-size:13px;line-height:1.5">{above}'
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def share_of(number: float, limit: float) -> float:
    """A number relative to a limit, infinite if that is 0 or the number not finite."""
    if limit > 0 and math.isfinite(number):
        return number / limit
    return math.inf if number else 0.0


def _safe(text: str) -> str:
    """Text escaped for HTML, hidden characters included."""
    return html.escape(clean(text))


def _draw_bar(share: float) -> str:
    """A bar that is full, and red, from a share of 1 on."""
    size = f'height="10" width="{_BAR * min(max(share, 0.0), 1.0):.1f}"'
    return (
        f'<svg width="{_BAR}" height="10" role="img" aria-label="{100 * share:.3g} %">'
        f'<rect width="{_BAR}" height="10" fill="none" stroke="rgba(128,128,128,.5)"/>'
        f'<rect {size} fill="{_WITHIN if share <= 1 else _PAST}"/></svg>'
    )
