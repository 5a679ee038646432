"""One page of trainings: a drawing of the curves with the spread of their seeds, and the table of how they end.

It holds no script and asks for nothing. Names are escaped, and numbers alone reach the drawing.
"""

import html
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby

from mezzo.numerics.statistics.training_curves import Curve, Curves
from mezzo.report.html.page import MARK
from mezzo.report.layout.names import clean, shorten
from mezzo.report.text.training.curves import COLUMNS, LONGEST_NAME, rows_of_curves, tell_unknown, thinned, title_of

MOST_NETWORKS = 32
MOST_DRAWN = 12  # ways in one drawing
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
main { max-width: 1100px; } .curves { width: 100%; height: auto; display: block; }
.curves text { fill: var(--text); font-size: 12px; } .curves .grid { stroke: var(--rule); }
.body { overflow-x: auto; } td, th { padding: 3px 18px 3px 0; text-align: left; white-space: nowrap; }
"""
# Told apart by people who see no red or green too, on white and on black. Source: Okabe and Ito (2008).
_COLOURS = ("#7a86a8", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#b59b00")
_DASHES = ("", "6 3", "2 3")  # where the colours begin again
_WIDTH, _HEIGHT = 1000, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 720, 16, 370
_TICKS = 5


def render_curves(networks: Sequence[Curves], test: str) -> str:
    """The page that shows trainings, `test` being what its verdicts rest on."""
    parts = [
        f'<section><h2>{_safe(title_of(one))}</h2><div class="body">{_drawing(one)}{_table(one)}</div></section>'
        for one in networks[:MOST_NETWORKS]
    ]
    more = len(networks) - MOST_NETWORKS
    parts += [f"<p>{more} more networks are in the table that mezzo curves prints.</p>"] if more > 0 else []
    style = files("mezzo.report.html").joinpath("style.css").read_text(encoding="utf-8") + _STYLE
    return (
        f'{MARK}\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        f"<title>mezzo curves</title><style>{style}</style></head>"
        f'<body><header class="top"><h1>mezzo curves</h1></header><main id="content">{"".join(parts)}'
        f"<footer><p>Lines are means over seeds, bands reach from the lowest seed to the highest. Judged {_safe(test)}."
        "</p></footer></main></body></html>\n"
    )


def _table(one: Curves) -> str:
    head = "".join(f"<th>{_safe(title)}</th>" for title in ("way", *COLUMNS, ""))
    rows = "".join(map(_row, rows_of_curves(one)))
    said = "".join(f"<p>{_safe(line)}</p>" for line in tell_unknown(one))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{said}"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in cells)}</tr>"


def _drawing(one: Curves) -> str:
    """Loss against steps, on a logarithmic axis where all losses are above zero."""
    curves = one.curves[:MOST_DRAWN]
    every = [loss for curve in curves for line in (curve.lowest, curve.highest) for loss in line if math.isfinite(loss)]
    if not every:
        return "<p>No loss is finite.</p>"
    axis = _Axis(min(every), max(every), max(curve.steps[-1] for curve in curves))
    shapes = [*axis.grid(), *(shape for at, curve in enumerate(curves) for shape in _band(curve, axis, at))]
    shapes += [shape for at, curve in enumerate(curves) for shape in _line(curve, axis, at)]
    shapes += [shape for at, curve in enumerate(curves) for shape in _key(curve, at)]
    more = len(one.curves) - len(curves)
    if more > 0:
        shapes.append(f'<text x="{_RIGHT + 24}" y="{_TOP + 10 + 22 * len(curves)}">and {more} more below</text>')
    about = f'class="curves" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    return f'<svg {about} aria-label="losses against steps, {len(curves)} ways">{"".join(shapes)}</svg>'


class _Axis:
    """Where steps and losses lie in a drawing."""

    def __init__(self, low: float, high: float, steps: int) -> None:
        self._is_log, self._steps = low > 0, steps
        self._low, self._high = self._of(low), self._of(high)

    def x(self, step: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * step / max(self._steps, 1)

    def y(self, loss: float) -> float:
        span = self._high - self._low
        share = (self._of(loss) - self._low) / span if 0 < span < math.inf else 0.5
        return _BOTTOM - (_BOTTOM - _TOP) * share

    def grid(self) -> Iterator[str]:
        for part in range(_TICKS):
            at = self._low * (1 - part / (_TICKS - 1)) + self._high * part / (_TICKS - 1)
            loss = 10**at if self._is_log else at
            y = _BOTTOM - (_BOTTOM - _TOP) * part / (_TICKS - 1)
            yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss:.3g}</text>'
            step = round(self._steps * part / (_TICKS - 1))
            yield f'<text x="{self.x(step):.1f}" y="{_BOTTOM + 20}" text-anchor="middle">{step}</text>'
        yield f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 42}" text-anchor="middle">step</text>'

    def _of(self, loss: float) -> float:
        return math.log10(loss) if self._is_log else loss


def _band(curve: Curve, axis: _Axis, at: int) -> Iterator[str]:
    """From the lowest seed to the highest, where there are several."""
    if len(curve.ends) < 2:
        return
    for places in _finite(curve, (curve.lowest, curve.highest)):
        there = [f"{axis.x(curve.steps[place]):.1f},{axis.y(curve.highest[place]):.1f}" for place in places]
        back = [f"{axis.x(curve.steps[place]):.1f},{axis.y(curve.lowest[place]):.1f}" for place in reversed(places)]
        yield f'<polygon points="{" ".join(there + back)}" fill="{_colour(at)}" fill-opacity="0.18"/>'


def _line(curve: Curve, axis: _Axis, at: int) -> Iterator[str]:
    for places in _finite(curve, (curve.mean,)):
        points = " ".join(f"{axis.x(curve.steps[place]):.1f},{axis.y(curve.mean[place]):.1f}" for place in places)
        yield f'<polyline points="{points}" fill="none" {_stroke(at)}/>'


def _key(curve: Curve, at: int) -> Iterator[str]:
    y = _TOP + 6 + 22 * at
    name = _safe(shorten(clean(curve.way), LONGEST_NAME))
    yield f'<line x1="{_RIGHT + 24}" y1="{y}" x2="{_RIGHT + 50}" y2="{y}" {_stroke(at)}/>'
    yield f'<text x="{_RIGHT + 58}" y="{y + 4}">{name}</text>'


def _finite(curve: Curve, lines: Sequence[Sequence[float]]) -> Iterator[list[int]]:
    """The points that are drawn, in runs of those where all lines are finite."""
    for is_finite, places in groupby(
        thinned(len(curve.steps)), lambda place: all(math.isfinite(line[place]) for line in lines)
    ):
        if is_finite:
            yield list(places)


def _stroke(at: int) -> str:
    dash = _DASHES[at // len(_COLOURS) % len(_DASHES)]
    return f'stroke="{_colour(at)}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _colour(at: int) -> str:
    return _COLOURS[at % len(_COLOURS)]


def _safe(text: str) -> str:
    return html.escape(clean(text))
