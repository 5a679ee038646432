"""Hand-made measurements, plans and summaries, as the commands make them."""

import io
import math
from dataclasses import replace

from rich.console import Console

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import Precision, line_of, uniform
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
from mezzo.report.records.summary import Summary
from mezzo.tables.policy import Category

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
DATA = DataSource("calib.npz", 4, 128)
SETTINGS = (("to", "fp16"), ("policy", "balanced"), ("strategy", "mincut"), ("target", "any"), ("include", "[]"))


def interval(estimate: float, spread: float = 0.1) -> Interval:
    return Interval(estimate, estimate * (1 - spread), estimate * (1 + spread))


def format_range(beyond: float = 0.0, below: float = 0.0, vanishing: float = 0.0) -> FormatRange:
    return FormatRange(beyond, below, vanishing, 2e-4)


def value_range(name: str, largest: float, f16: FormatRange | None = None) -> ValueRange:
    return ValueRange(
        value=name,
        node=f"make_{name}",
        op="Mul",
        count=512,
        sampled=512,
        minimum=-largest / 2,
        maximum=largest,
        mean_absolute=largest / 8,
        has_nan=False,
        has_infinity=False,
        quantiles=((0.5, largest / 9), (1.0, largest)),
        formats={F16: f16 or format_range(), BF16: format_range()},
        largest_at="calib.npz[32:64]",
    )


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
    made = Deviation(
        name=name,
        samples=128,
        relative_l2=interval(error),
        cosine=1 - error**2 / 2,
        sqnr_db=decibels,
        largest_absolute=error * 3,
        largest_ulp=error * 2048,
        ulp_format=F16,
    )
    return replace(made, **more)


LAYERS = tuple(deviation(f"layer_{number}", 1e-5 * 2**number) for number in range(12))
SAME = Comparison(
    data=DATA,
    run="emulated",
    outputs=(deviation("y", 3.1e-4, top1=Interval(0.984, 0.951, 0.998), topk=interval(1, 0), k=5),),
    layers=LAYERS[:5],
    verdict=Verdict(
        ruling=Ruling.SAME,
        error=interval(3.1e-4),
        budget=1e-3,
        budget_source="set by --max-error",
        noise=1.2e-7,
        because="the largest output error 3.1e-04 is within 1e-03",
    ),
    metric=MetricResult("metrics:accuracy", 0.981, 0.9795),
    notes=("y was compared as f32",),
)
BROKEN = Comparison(
    data=DATA,
    run="emulated",
    outputs=(deviation("y", math.nan, fault="NaN in 12 of 128 samples, where the reference has none"),),
    layers=LAYERS,
    verdict=Verdict(
        ruling=Ruling.DIFFERENT,
        error=interval(math.nan),
        budget=1e-3,
        budget_source="set by --max-error",
        noise=1.2e-7,
        because="'y' holds NaN where the reference has none",
    ),
)

SENSITIVITY = Sensitivity(
    data=DATA,
    units=(
        UnitError(
            name="block.0/norm",
            nodes=("mean", "sub", "sq"),
            error=math.inf,
            is_measured=True,
            fault="infinities in 'y'",
        ),
        UnitError(name="head", nodes=("head",), error=4e-4, is_measured=True),
        UnitError(
            name="mm", nodes=("mm",), error=3e-4, is_measured=False, fault=None, together=12, low=1e-4, high=9e-4
        ),
    ),
    all_low=math.inf,
    runs=7,
)
COSTS = CostTable("the operators' table", "bytes moved", (NodeCost("mm", 4e6, 2e6), NodeCost("sm", 1e6, 1e6)))
FRONTIER = (
    FrontierPoint(weight=0.0, cost=2.1e6, low_nodes=9, predicted_error=math.inf),
    FrontierPoint(weight=1e8, cost=2.5e6, low_nodes=7, predicted_error=4e-3, error=4.4e-3),
    FrontierPoint(weight=1e9, cost=3.0e6, low_nodes=5, predicted_error=7.1e-4, error=8.1e-4, is_chosen=True),
    FrontierPoint(weight=1e11, cost=3.9e6, low_nodes=2, predicted_error=9e-5),
    FrontierPoint(weight=math.inf, cost=5.0e6, low_nodes=0, predicted_error=0.0, error=0.0),
)
SEARCH = SearchRecord(
    budget=1e-3,
    margin=1.25,
    evaluations=6,
    partial_evaluations=14,
    checks=1,
    error=7.9e-4,
    held_out_error=8.1e-4,
    is_within_budget=True,
    stopped_by="the frontier has no cheaper plan inside the budget",
    time_s=12.3,
    costliest="block.0/norm",
)
MEASURED = Measured(
    data=DATA,
    ranges=RANGES,
    comparison=SAME,
    sensitivity=SENSITIVITY,
    costs=COSTS,
    frontier=FRONTIER,
    search=SEARCH,
    notes=("the last quarter was held out",),
)


def planned(name: str, dtype: DType, rule: str, because: str, cause: str | None = None) -> PlannedNode:
    category = Category.DENY if dtype is F32 else Category.ALLOW
    return PlannedNode(name, "MatMul", "op", uniform(dtype), category, rule, because, cause)


def make_plan(*more: PlannedNode, low: DType = F16) -> Plan:
    nodes = (
        PlannedNode(
            "input x", "", "input", uniform(F32), None, "interface", "its type is part of the model's interface", None
        ),
        planned("mm", low, "linear", "linear operators gain most"),
        PlannedNode("sum", "Gemm", "op", Precision(low, F32, low), Category.ALLOW, "linear", "sums in f32", None),
        planned("sm", F32, "softmax", "takes exponentials of differences"),
        *more,
    )
    return Plan(
        line=line_of(F32, low),
        dialect="onnx",
        version=None,
        settings=SETTINGS,
        edits=(),
        limits=(),
        notes=("a note of the plan",),
        make_nodes=lambda: nodes,
        make_fingerprint=lambda: "fingerprint",
    )


PROTECTED = planned(
    "sq", F32, "data-overflow", "'squares' holds 0 to 2.5e+06 in calib.npz[32:64]: past f16's limit", "sub"
)
SUMMARY = Summary(
    low_nodes=2,
    high_nodes=2,
    casts=1,
    size_before_bytes=4_000_000,
    size_after_bytes=2_100_000,
    opset_before=17,
    opset_after=17,
    notes=("a note of the plan",),
)


def show(parts, width: int = 10_000) -> str:
    """What a console of this width shows, without colours."""
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
