"""Hand-made measurements, plans and summaries, as the commands make them."""

import io
import math
from dataclasses import replace

from rich.console import Console

from mezzo.converting.results import Summary
from mezzo.core.levels import Precision, line_of, uniform
from mezzo.core.plans import Plan, PlannedNode
from mezzo.core.policy import Category
from mezzo.dtypes import DType
from mezzo.numerics.measures import (
    Comparison,
    CostTable,
    DataSource,
    Deviation,
    FormatRange,
    FrontierPoint,
    Interval,
    Measured,
    MetricResult,
    NodeCost,
    Ranges,
    Ruling,
    SearchRecord,
    Sensitivity,
    UnitError,
    ValueRange,
    Verdict,
)

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
DATA = DataSource("calib.npz", 4, 128)
SETTINGS = (("to", "fp16"), ("policy", "balanced"), ("strategy", "mincut"), ("target", "any"), ("include", "[]"))


def interval(estimate: float, spread: float = 0.1) -> Interval:
    return Interval(estimate, estimate * (1 - spread), estimate * (1 + spread))


def format_range(beyond: float = 0.0, below: float = 0.0, vanishing: float = 0.0) -> FormatRange:
    return FormatRange(beyond, below, vanishing, 2e-4)


def value_range(name: str, largest: float, f16: FormatRange | None = None) -> ValueRange:
    return ValueRange(
        name, f"make_{name}", "Mul", 512, 512, -largest / 2, largest, largest / 8, False, False,
        ((0.5, largest / 9), (1.0, largest)), {F16: f16 or format_range(), BF16: format_range()}, "calib.npz[32:64]",
    )  # fmt: skip


RANGES = Ranges(
    DATA,
    (
        value_range("h", 12.5),
        value_range("squares", 2.5e6, format_range(beyond=0.75)),
        value_range("edge", 40_000.0),
        value_range("eps", 1e-9, format_range(below=1.0, vanishing=1.0)),
        replace(value_range("mask", 1.0), has_infinity=True, minimum=0.0),
    ),
    ("ids: not a float",),
)


def deviation(name: str, error: float, **more: object) -> Deviation:
    decibels = math.inf if error == 0 else -20 * math.log10(error) if math.isfinite(error) else math.nan
    made = Deviation(name, 128, interval(error), 1 - error**2 / 2, decibels, error * 3, error * 2048, F16)
    return replace(made, **more)


LAYERS = tuple(deviation(f"layer_{number}", 1e-5 * 2**number) for number in range(12))
SAME = Comparison(
    DATA, "emulated",
    (deviation("y", 3.1e-4, top1=Interval(0.984, 0.951, 0.998), topk=interval(1, 0), k=5),), LAYERS[:5],
    Verdict(Ruling.SAME, interval(3.1e-4), 1e-3, "set by --max-error", 1.2e-7,
            "the largest output error 3.1e-04 is within 1e-03"),
    MetricResult("metrics:accuracy", 0.981, 0.9795), ("y was compared as f32",),
)  # fmt: skip
BROKEN = Comparison(
    DATA, "emulated",
    (deviation("y", math.nan, fault="NaN in 12 of 128 samples, where the reference has none"),), LAYERS,
    Verdict(Ruling.DIFFERENT, interval(math.nan), 1e-3, "set by --max-error", 1.2e-7,
            "'y' holds NaN where the reference has none"),
)  # fmt: skip

SENSITIVITY = Sensitivity(
    DATA,
    (
        UnitError("block.0/norm", ("mean", "sub", "sq"), math.inf, True, "infinities in 'y'"),
        UnitError("head", ("head",), 4e-4, True),
        UnitError("mm", ("mm",), 3e-4, False, None, 12, 1e-4, 9e-4),
    ),
    math.inf,
    7,
)
COSTS = CostTable("the operators' table", "bytes moved", (NodeCost("mm", 4e6, 2e6), NodeCost("sm", 1e6, 1e6)))
FRONTIER = (
    FrontierPoint(0.0, 2.1e6, 9, math.inf),
    FrontierPoint(1e8, 2.5e6, 7, 4e-3, 4.4e-3),
    FrontierPoint(1e9, 3.0e6, 5, 7.1e-4, 8.1e-4, True),
    FrontierPoint(1e11, 3.9e6, 2, 9e-5),
    FrontierPoint(math.inf, 5.0e6, 0, 0.0, 0.0),
)
SEARCH = SearchRecord(
    1e-3, 1.25, 6, 14, 7.9e-4, 8.1e-4, True, "the frontier has no cheaper plan inside the budget", 12.3, "block.0/norm"
)
MEASURED = Measured(DATA, RANGES, SAME, SENSITIVITY, COSTS, FRONTIER, SEARCH, ("the last quarter was held out",))


def planned(name: str, dtype: DType, rule: str, because: str, cause: str | None = None) -> PlannedNode:
    category = Category.DENY if dtype is F32 else Category.ALLOW
    return PlannedNode(name, "MatMul", "op", uniform(dtype), category, rule, because, cause)


def make_plan(*more: PlannedNode, low: DType = F16) -> Plan:
    nodes = (
        PlannedNode(
            "input x", "", "input", uniform(F32), None, "interface", "its dtype is the caller's contract", None
        ),
        planned("mm", low, "linear", "linear operators gain most"),
        PlannedNode("sum", "Gemm", "op", Precision(low, F32, low), Category.ALLOW, "linear", "sums in f32", None),
        planned("sm", F32, "softmax", "takes exponentials of differences"),
        *more,
    )
    return Plan(
        line_of(F32, low), "onnx", None, SETTINGS, (), (), ("a note of the plan",), lambda: nodes, lambda: "fingerprint"
    )


PROTECTED = planned(
    "sq", F32, "data-overflow", "'squares' holds 0 to 2.5e+06 in calib.npz[32:64]: past f16's limit", "sub"
)
SUMMARY = Summary(2, 2, 1, 4_000_000, 2_100_000, 17, 17, ("a note of the plan",))


def show(parts, width: int = 10_000) -> str:
    """What a console of this width shows, without colours."""
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
