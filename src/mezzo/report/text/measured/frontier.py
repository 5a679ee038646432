"""Frontier between cost and error: an ASCII plot for any terminal or pipe, and its table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.numerics.measures import BYTES_MOVED
from mezzo.report.layout.layout import Layout, indented
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_error, spell_share

if TYPE_CHECKING:
    from mezzo.numerics.measures import CostTable, FrontierPoint, Prediction

_WIDTH, _HEIGHT = 60, 12
_ROWS = 16
# Tolerance for costs, which are rounded to whole units per node.
_SAME_COST = 1e-3
_CHOSEN, _MEASURED, _PREDICTED, _BUDGET, _ABOVE, _BELOW = "@", "o", ".", "-", "^", "v"
_STYLES = {_CHOSEN: "bold green", _MEASURED: "cyan", _PREDICTED: "dim", _BUDGET: "red"}
# Drawing order: later signs cover earlier ones, so the chosen plan is always visible.
_SIGNS = {
    _ABOVE: "not finite", _BELOW: "no error", _PREDICTED: "predicted", _MEASURED: "measured",
    _CHOSEN: "chosen",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CostScale:
    """The reference of costs: `high` is the cost of all nodes in FP32.

    `is_whole`: costs are of whole models. Otherwise they are the gain that FP32 nodes forgo plus
    the casts, so that all low with free casts costs 0.
    """

    high: float
    is_whole: bool

    def spell(self, cost: float) -> str:
        """A plan's cost relative to the model in FP32."""
        if self.is_whole:
            return f"{spell_share(cost / self.high)} of all in FP32"
        return f"{cost / self.high:.3g}, where all in FP32 is 1 and all low with free casts 0"


def scale_of(points: "Sequence[FrontierPoint]", costs: "CostTable | None") -> CostScale | None:
    """The scale, from the plan without low nodes; None if there is no such plan."""
    high = next((point.cost for point in points if point.low_nodes == 0 and point.cost > 0), None)
    if high is None:
        return None
    total = 0.0 if costs is None else math.fsum(cost.high for cost in costs.nodes)
    return CostScale(high, math.isclose(high, total, rel_tol=_SAME_COST))


def report_frontier(
    layout: Layout,
    points: "Sequence[FrontierPoint]",
    budget: float,
    costs: "CostTable | None",
    prediction: "Prediction | None" = None,
) -> list[RenderableType]:
    """The plot and the table, the cheapest plan first."""
    finite = sorted((p for p in points if math.isfinite(p.cost)), key=lambda p: (p.cost, -p.predicted_error))
    if not finite:
        return []
    scale = scale_of(finite, costs)
    high = None if scale is None else scale.high
    unit = "cost" if costs is None else clean(costs.unit)
    lines = plot_frontier(finite, budget, high)
    table = layout.make_table(
        "", f"cost{'' if high is None else ' to FP32'}", unit, "low nodes", "predicted", "measured",
        right=(f"cost{'' if high is None else ' to FP32'}", unit, "low nodes", "predicted", "measured"),
    )  # fmt: skip
    for point in _thin(finite):
        relation = f"{point.cost:.4g}" if high is None else f"{point.cost / high:.3f}"
        table.add_row(
            Text("chosen" if point.is_chosen else "", style="bold green"), relation, _spell_cost(point.cost, costs),
            str(point.low_nodes), spell_error(point.predicted_error),
            "" if point.error is None else spell_error(point.error),
        )  # fmt: skip
    captions = [] if costs is None else [f"costs: {clean(costs.source)}"]
    captions.append(spell_prediction(prediction))
    if scale is not None and not scale.is_whole:
        captions.insert(0, "cost: what FP32 nodes forgo and what casts take; all low with free casts costs nothing")
    return [*lines, Text(""), table, *(indented(line, style="dim") for line in captions)]


def spell_prediction(prediction: "Prediction | None") -> str:
    """A sentence on the accuracy of predicted errors."""
    caption = "each plan is the cheapest for one price of predicted error; that error is an estimate"
    if prediction is None:
        return caption
    count = prediction.points
    spread = f"{prediction.low:.2g} to {prediction.high:.2g} times its prediction"
    sample = "the one plan that was measured" if count == 1 else f"the {count} plans that were measured"
    return f"{caption}, fitted to {sample}" + (f", whose errors are {spread}" if count > 1 else "")


def _spell_cost(cost: float, costs: "CostTable | None") -> str:
    """A cost in its own unit: bytes as sizes, others with five digits."""
    if costs is not None and costs.unit == BYTES_MOVED and math.isfinite(cost):
        return format_size(round(cost))
    return f"{cost:.5g}"


def plot_frontier(points: "Sequence[FrontierPoint]", budget: float, high: float | None) -> list[Text]:
    """A plot of error over cost, one line of text per row; the error axis is logarithmic."""
    errors = [_error(point) for point in points]
    axis = _axis_of(errors, budget)
    largest = max(point.cost for point in points) or 1.0
    scale = high or largest
    right = max(largest / scale, 1.0)
    left = min(point.cost for point in points) / scale
    left = 0.0 if right - left > 0.6 * right else math.floor(left * 20) / 20
    left = left if left < right else 0.0
    grid = [[" "] * (_WIDTH + 1) for _ in range(_HEIGHT + 1)]
    if budget > 0 and math.isfinite(budget):
        grid[axis.row(budget)] = [_BUDGET if column % 2 == 0 else " " for column in range(_WIDTH + 1)]
    order = sorted(zip(points, errors, strict=True), key=lambda pair: list(_SIGNS).index(_sign(pair[0])))
    for point, error in order:
        column = round((point.cost / scale - left) / (right - left) * _WIDTH)
        grid[axis.row(error)][min(max(column, 0), _WIDTH)] = _sign(point)
    lines = [Text("  error", style="dim")]
    for number, row in enumerate(grid):
        label = f"{budget:.1e}" if _BUDGET in row else axis.label(number)
        lines.append(_styled(label, row))
    unit = "cost, all in FP32 = 1" if high is not None else "cost, the largest = 1"
    ticks = f"{left:<10.3g}{(left + right) / 2:^{_WIDTH - 19}.3g}{right:>10.3g}"
    lines += [Text(f"{'':8} +{'-' * (_WIDTH + 1)}", style="dim"), Text(f"{'':9} {ticks}", style="dim")]
    used = {_sign(point) for point in points}
    legend = [f"{sign} {word}" for sign, word in reversed(_SIGNS.items()) if sign in used]
    if budget > 0 and math.isfinite(budget):
        legend.append("- - budget")
    return [*lines, Text(f"{'':9} {unit}", style="dim"), Text(f"{'':9} {', '.join(legend)}", style="dim")]


def _error(point: "FrontierPoint") -> float:
    return point.predicted_error if point.error is None else point.error


def _sign(point: "FrontierPoint") -> str:
    if point.is_chosen:
        return _CHOSEN
    if not math.isfinite(_error(point)):
        return _ABOVE
    if _error(point) <= 0:
        return _BELOW
    return _PREDICTED if point.error is None else _MEASURED


@dataclass(frozen=True, slots=True)
class _Axis:
    """Logarithmic axis: 10 ** `low` on row `bottom`, 10 ** `high` on row `top`; inf and 0
    outside."""

    low: int
    high: int
    top: int
    bottom: int

    def row(self, error: float) -> int:
        if not math.isfinite(error):
            return 0
        if error <= 0:
            return _HEIGHT
        share = (math.log10(error) - self.low) / (self.high - self.low)
        return self.bottom - round(min(max(share, 0.0), 1.0) * (self.bottom - self.top))

    def label(self, row: int) -> str:
        """The power of ten on a row, if there is one."""
        if row < self.top or row > self.bottom:
            return "inf" if row < self.top else "0"
        powers = (power for power in range(self.low, self.high + 1) if self.row(10.0**power) == row)
        return next((f"1e{power:+03d}" for power in powers), "")


def _axis_of(errors: Sequence[float], budget: float) -> _Axis:
    """The axis whose powers of ten enclose errors and budget."""
    exponents = [math.log10(error) for error in (*errors, budget) if error > 0 and math.isfinite(error)] or [-4.0, -2.0]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    top = int(any(not math.isfinite(error) for error in errors))
    bottom = _HEIGHT - int(any(error <= 0 for error in errors))
    return _Axis(low, max(high, low + 1), top, bottom)


def _styled(label: str, row: Sequence[str]) -> Text:
    line = Text(f"{label:>8} |", style="dim")
    for sign in "".join(row).rstrip():
        line.append(sign, style=_STYLES.get(sign, ""))
    return line


def _thin(points: "Sequence[FrontierPoint]") -> "Sequence[FrontierPoint]":
    """At most `_ROWS` points spread evenly, with the ends and the chosen one."""
    if len(points) <= _ROWS:
        return points
    step = (len(points) - 1) / (_ROWS - 1)
    numbers = {round(number * step) for number in range(_ROWS)}
    return [point for number, point in enumerate(points) if number in numbers or point.is_chosen]
