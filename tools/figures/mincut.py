"""Draws docs/images/min-cut.svg: one small graph under two strategies, with what each arrow costs.

    python tools/figures/mincut.py           # draws it
    python tools/figures/mincut.py --check   # ends with 1 if the picture differs from what the planner decides

Everything in the picture is read from the planner: gains, cast prices, what runs low and what an assignment costs.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx.numpy_helper
import onnx.parser
from svg import CUT, GREY, HIGH, INK, LOW, Drawing

from mezzo.contracts.options.request import Request
from mezzo.contracts.problem import Choice, Problem
from mezzo.contracts.strategy import casts_of, cost
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import open_source
from mezzo.ir.nodes import Kind
from mezzo.planner.options import read_options
from mezzo.plugins.discovery import strategies

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "min-cut.svg"
# A gate: the Add reads a product and the exponential of it, and a softmax reads the Add.
MODEL = """
<ir_version: 10, opset_import: ["" : 18]>
gate (float[64,256] x) => (float[64,256] y)
{
   [MatMul_1] h = MatMul(x, w)
   [Exp] e = Exp(h)
   [Add] a = Add(h, e)
   [Softmax] s = Softmax<axis = -1>(a)
   [MatMul_2] y = MatMul(s, v)
}
"""
PANELS = (
    ("mincut", "mincut: the Add joins its neighbours"),
    ("forward", "forward: the Add is allowed, so it converts"),
)
_PANEL, _TOP, _STEP, _BOX = 470, 92, 62, (108, 32)
_LOW_X, _HIGH_X, _CUT_X = 76, 306, 191


def draw() -> Drawing:
    """Both panels side by side."""
    problem = _problem()
    height = _TOP + _STEP * len(_shown(problem)) + 46
    drawing = Drawing(
        len(PANELS) * _PANEL, height, "Five operators split between FP16 and FP32 by a minimum cut, and by a colouring"
    )
    for number, (name, title) in enumerate(PANELS):
        _draw_panel(drawing, problem, strategies()[name].assign(problem), number * _PANEL, title)
    return drawing


def _problem() -> Problem:
    model = onnx.parser.parse_model(MODEL)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), name) for name in "wv")
    return judge_model(open_source(model, False, None), read_options(Request(target="any")))[1].problem


def _shown(problem: Problem) -> list[int]:
    """Nodes in the picture, in their order: what holds data, from inputs to outputs; weights are had in either type."""
    kinds = (Kind.INPUT, Kind.OP, Kind.OUTPUT)
    found = [n.id for n in problem.graph.nodes if n.kind in kinds and not problem.is_absent[n.id]]
    return sorted(found, key=lambda number: (kinds.index(problem.graph.nodes[number].kind), number))


def _draw_panel(drawing: Drawing, problem: Problem, levels: Sequence[int], left: int, title: str) -> None:
    shown = _shown(problem)
    at = {number: _TOP + _STEP * row for row, number in enumerate(shown)}
    drawing.text(left + 22, 26, title, is_bold=True, size=14)
    drawing.text(left + _LOW_X, 58, "f16", LOW, 14, "middle", is_bold=True)
    drawing.text(left + _HIGH_X, 58, "f32", HIGH, 14, "middle", is_bold=True)
    bottom = _TOP + _STEP * len(shown) - 24
    drawing.line((left + _CUT_X, 44), (left + _CUT_X, bottom), CUT, 1.4, "6 5")
    casts = {value: int(problem.cast_prices[0, value]) for value, _ in casts_of(problem, levels)}
    told: set[int] = set()
    for value, uses in enumerate(problem.graph.uses):
        maker = problem.graph.values[value].producer
        for use in uses:
            if maker in at and use.node in at:
                crosses = levels[maker] != levels[use.node]
                price = casts.get(value) if crosses and value not in told else None
                told |= {value} if price is not None else set()
                start, end = ((levels[number] == 1, at[number]) for number in (maker, use.node))
                _draw_edge(drawing, left, start, end, crosses, price)
    for number in shown:
        _draw_node(drawing, problem, number, left, at[number], levels[number] == 1)
    total = (
        f"{len(casts)} casts move {_spell(sum(casts.values()))}; with the work forgone {_spell(cost(problem, levels))}"
    )
    drawing.text(left + 22, bottom + 34, total, size=13)


def _draw_edge(
    drawing: Drawing, left: int, start: tuple[bool, int], end: tuple[bool, int], crosses: bool, price: int | None
) -> None:
    """An arrow from maker to reader; in the colour of the cut where it crosses, with the price of its cast."""
    (from_low, top), (to_low, foot) = start, end
    x1, x2 = (left + (_LOW_X if low else _HIGH_X) for low in (from_low, to_low))
    half = _BOX[1] / 2
    y1, y2 = top + half, foot - half - 3
    if not crosses and foot - top > _STEP:  # past the nodes between
        x1 += -44 if from_low else 44
        x2 += -44 if to_low else 44
    drawing.line((x1, y1), (x2, y2), CUT if crosses else GREY, 1.8 if crosses else 1.2, has_head=True)
    if price is not None:
        y = y1 + (y2 - y1) * abs(left + _CUT_X - x1) / abs(x2 - x1)
        drawing.box(left + _CUT_X - 34, y - 10, 68, 19, "#ffffff", 3)
        drawing.text(left + _CUT_X, y + 4, _spell(price), CUT, 12, "middle")


def _draw_node(drawing: Drawing, problem: Problem, number: int, left: int, y: int, runs_low: bool) -> None:
    node = problem.graph.nodes[number]
    x = left + (_LOW_X if runs_low else _HIGH_X)
    is_op = node.kind is Kind.OP
    fill = (LOW if runs_low else HIGH) if is_op else GREY
    width, height = _BOX
    drawing.box(x - width / 2, y - height / 2, width, height, fill)
    name = node.name if is_op else node.name.replace("_", " ")
    drawing.text(x, y + 5, name, "#ffffff", 13, "middle", is_bold=True)
    if is_op and not runs_low:
        is_denied = problem.sides[0].choices[number] is Choice.HIGH
        lines = ["denied"] if is_denied else []
        lines.append(f"forgoes {_spell(int(problem.gains[1, number]))}")
        for row, words in enumerate(lines):
            down = 4 + 15 * row - 7 * (len(lines) - 1)
            drawing.text(x + width / 2 + 8, y + down, words, INK if is_denied else CUT, 12)


def _spell(size: int) -> str:
    """Bytes moved, in KB."""
    return f"{size / 1024:,.0f} KB"


def main() -> int:
    drawing = draw()
    if "--check" not in sys.argv[1:]:
        drawing.save(PICTURE)
        return 0
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawing.spell():
        return 0
    print("min-cut.svg differs from what the planner decides; run python tools/figures/mincut.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
