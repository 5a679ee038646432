"""HTML fragments for notebooks: a title and sentences above one table, with bars as SVG in the
colours of the HTML report. All text is escaped. Colours are legible on white and on black.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzo.formats.dtypes import DType
from mezzo.report.layout.names import clean
from mezzo.report.records.headline import ResultStanding

# Pages without a doctype do not inherit these.
_TABLE = "border-collapse:collapse;color:inherit;font:inherit"
_RULE = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL = f'style="text-align:left;vertical-align:top;padding:2px 14px 2px 0;{_RULE}"'
_BARE = 'style="text-align:left;vertical-align:top;padding:0 14px 0 0;border:0"'
_DIM = 'style="opacity:.65"'
_CODE = 'style="font-family:ui-monospace,Consolas,monospace;background:none;color:inherit"'
_WIDTH, _HEIGHT = 160, 12  # of a full bar, in pixels
_WITHIN, _BEYOND, _OPEN = "#2e9e5b", "#c0392b", "#8a97a5"
_STANDINGS = {ResultStanding.RIGHT: _WITHIN, ResultStanding.WRONG: _BEYOND}
# The lines' colours of the report's style sheet; formats of one to eight bits share one.
_PRECISIONS = {"f32": "#b86e00", "f16": "#0f6cb5", "bf16": "#0b7a54", "f64": "#b4431a"}
_SMALL = "#93479b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A result in a few lines for a shell, and with a table for notebooks.

    `sentences` have labels, empty for that of the sentence before; the one labelled "next" is code.
    `shares`: one bar per row, full at 1; `stacks`: one bar per row, divided by precision.
    `standing` colours the edge.
    """

    title: str
    sentences: Sequence[tuple[str, str]] = ()
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    shares: Sequence[float] = ()
    stacks: Sequence[Mapping[DType, float]] = ()
    standing: ResultStanding | None = None


def spell_card(card: Card) -> str:
    """The title and the sentences of a card, one line for each label."""
    lines: dict[str, list[str]] = {}
    label = ""
    for own_label, sentence in card.sentences:
        label = own_label or label
        lines.setdefault(label, []).append(sentence)
    width = max(map(len, lines), default=0)
    spelled = (f"  {label:<{width}} {'; '.join(texts)}" for label, texts in lines.items())
    return "\n".join([card.title, *spelled])


def draw_card(card: Card) -> str:
    """A card as an HTML fragment."""
    cells = [[_safe(text) for text in row] for row in card.rows]
    bars = [*map(_draw_share, card.shares), *map(_draw_stack, card.stacks)]
    if bars:
        cells = [[*row, bar] for row, bar in zip(cells, bars, strict=True)]
    head = "".join(f"<th {_CELL}>{_safe(title)}</th>" for title in card.titles)
    body = "".join(_draw_row(row, _CELL) for row in cells)
    edge = "" if card.standing is None else _STANDINGS.get(card.standing, _OPEN)
    border = f"border-left:4px solid {edge};padding-left:10px;" if edge else ""
    return (
        f'<div class="mezzo" style="color:inherit;font-size:13px;line-height:1.5;{border}">'
        f'<div style="font-weight:600">{_safe(card.title)}</div>{_draw_sentences(card.sentences)}'
        f'<table style="{_TABLE};margin-top:6px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def share_of(number: float, limit: float) -> float:
    """A number relative to a limit, infinite if that is 0 or the number not finite."""
    if limit > 0 and math.isfinite(number):
        return number / limit
    return math.inf if number else 0.0


def _draw_sentences(sentences: Sequence[tuple[str, str]]) -> str:
    rows = []
    for label, sentence in sentences:
        text = f"<code {_CODE}>{_safe(sentence)}</code>" if label == "next" else _safe(sentence)
        rows.append(_draw_row([f"<span {_DIM}>{_safe(label)}</span>", text], _BARE))
    return f'<table style="{_TABLE}"><tbody>{"".join(rows)}</tbody></table>' if rows else ""


def _draw_row(cells: Sequence[str], style: str) -> str:
    return "<tr>" + "".join(f"<td {style}>{cell}</td>" for cell in cells) + "</tr>"


def _safe(text: str) -> str:
    """Text escaped for HTML, hidden characters included."""
    return html.escape(clean(text))


def _draw_share(share: float) -> str:
    """A bar that is full, and red, from a share of 1 on."""
    width = _WIDTH * min(max(share, 0.0), 1.0)
    colour = _WITHIN if share <= 1 else _BEYOND
    return _draw_bar(f"{100 * share:.3g} %", [(0.0, width, colour)])


def _draw_stack(amounts: Mapping[DType, float]) -> str:
    """A bar divided by precision."""
    total = sum(amounts.values())
    parts, start, words = [], 0.0, []
    for dtype, amount in amounts.items():
        if amount:
            width = _WIDTH * amount / total
            parts.append((start, width, _PRECISIONS.get(str(dtype), _SMALL)))
            words.append(f"{dtype} {100 * amount / total:.3g} %")
            start += width
    return _draw_bar(", ".join(words), parts)


def _draw_bar(label: str, parts: Sequence[tuple[float, float, str]]) -> str:
    """A framed bar with parts: start and width in pixels, and colour."""
    drawn = "".join(
        f'<rect x="{start:.1f}" width="{width:.1f}" height="{_HEIGHT}" fill="{colour}"/>'
        for start, width, colour in parts
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" style="vertical-align:middle" role="img"'
        f' aria-label="{_safe(label)}">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="rgba(128,128,128,.5)"/>'
        f"{drawn}</svg>"
    )
