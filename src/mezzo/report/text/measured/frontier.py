"""Frontier between cost and error, as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.numerics.measures import BYTES_MOVED, BYTES_STORED
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_error, spell_share
from mezzo.report.layout.parts import indented, make_table

if TYPE_CHECKING:
    from mezzo.numerics.measures import CostTable, FrontierPoint, Prediction

_ROWS = 16
# Tolerance for costs, which are rounded to whole units per node.
_SAME_COST = 1e-3


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
    costs: "CostTable | None",
    prediction: "Prediction | None" = None,
) -> list[RenderableType]:
    """The table of plans, the cheapest first."""
    finite = sorted(
        (p for p in points if math.isfinite(p.cost)), key=lambda p: (p.cost, -p.predicted_error)
    )
    if not finite:
        return []
    if costs is not None and costs.unit == BYTES_STORED:
        return _report_storages(layout, finite, prediction)
    scale = scale_of(finite, costs)
    high = None if scale is None else scale.high
    unit = "cost" if costs is None else clean(costs.unit)
    relative = "cost" if high is None else "cost to FP32"
    right = (relative, unit, "low nodes", "predicted", "measured")
    table = make_table(layout, "", *right, right=right)
    for point in _thin(finite):
        relation = f"{point.cost:.4g}" if high is None else f"{point.cost / high:.3f}"
        table.add_row(
            Text("chosen" if point.is_chosen else "", style="bold green"), relation,
            _spell_cost(point.cost, costs), str(point.low_nodes),
            spell_error(point.predicted_error),
            "" if point.error is None else spell_error(point.error),
        )  # fmt: skip
    captions = [] if costs is None else [f"costs: {clean(costs.source)}"]
    captions.append(spell_prediction(prediction))
    if scale is not None and not scale.is_whole:
        captions.insert(
            0,
            "cost: what FP32 nodes forgo and what casts take; all low with free casts costs"
            " nothing",
        )
    return [table, *(indented(line, style="dim") for line in captions)]


def _report_storages(
    layout: Layout, points: "Sequence[FrontierPoint]", prediction: "Prediction | None"
) -> list[RenderableType]:
    """The table of plans that store weights in blocks, the smallest first."""
    right = ("weights", "in blocks", "predicted", "measured")
    table = make_table(layout, "", *right, right=right)
    for point in points:
        table.add_row(
            Text("chosen" if point.is_chosen else "", style="bold green"),
            format_size(round(point.cost)),
            str(point.low_nodes),
            spell_error(point.predicted_error),
            "" if point.error is None else spell_error(point.error),
        )
    caption = "each plan is the best for its budget of predicted error or bytes"
    if prediction is not None and prediction.points > 1:
        spread = f"{prediction.low:.2g} to {prediction.high:.2g} times their prediction"
        caption += f"; measured errors are {spread}"
    return [table, indented(caption, style="dim")]


def spell_prediction(prediction: "Prediction | None") -> str:
    """A sentence on the accuracy of predicted errors."""
    caption = (
        "each plan is the cheapest for one price of predicted error; that error is an estimate"
    )
    if prediction is None:
        return caption
    count = prediction.points
    spread = f"{prediction.low:.2g} to {prediction.high:.2g} times its prediction"
    sample = (
        "the one plan that was measured" if count == 1 else f"the {count} plans that were measured"
    )
    return f"{caption}, fitted to {sample}" + (f", whose errors are {spread}" if count > 1 else "")


def _spell_cost(cost: float, costs: "CostTable | None") -> str:
    """A cost in its own unit: bytes as sizes, others with five digits."""
    if costs is not None and costs.unit == BYTES_MOVED and math.isfinite(cost):
        return format_size(round(cost))
    return f"{cost:.5g}"


def _thin(points: "Sequence[FrontierPoint]") -> "Sequence[FrontierPoint]":
    """At most `_ROWS` points spread evenly, with the ends and the chosen one."""
    if len(points) <= _ROWS:
        return points
    step = (len(points) - 1) / (_ROWS - 1)
    numbers = {round(number * step) for number in range(_ROWS)}
    return [point for number, point in enumerate(points) if number in numbers or point.is_chosen]
