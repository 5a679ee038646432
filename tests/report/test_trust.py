"""Whether answers may be trusted, and what worries most: the sentences that comparisons of every kind come to."""

from dataclasses import replace

import pytest
from samples import BROKEN, DATA, LAYERS, SAME, deviation, interval, value_range

from mezzo.common.machine import Machine
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import Precision, line_of, uniform
from mezzo.numerics.measures import Comparison, Measured, MetricResult, Ranges, Ruling
from mezzo.report.records.headline import ResultStanding
from mezzo.report.records.headlines import head_comparison
from mezzo.report.records.speeds import expect_speed
from mezzo.report.records.trust import judge, risk_on_data

MACHINE = Machine("x86_64", ("avx2",))
RANDOM = replace(DATA, name="random (seed 3)", seed=3)


def ruled(ruling: Ruling, error: float = 3.1e-4, *, data: object = DATA, high: float | None = None) -> Comparison:
    held = interval(error) if high is None else replace(interval(error), high=high)
    outputs = (deviation("y", error, relative_l2=held),)
    verdict = replace(SAME.verdict, ruling=ruling, error=held, because="the data holds NaN")
    return replace(SAME, outputs=outputs, layers=(), verdict=verdict, metric=None, data=data)


def dropped(drop: float) -> Comparison:
    verdict = replace(SAME.verdict, error=interval(drop), budget=0.01)
    return replace(SAME, verdict=verdict, metric=MetricResult("accuracy", 0.9, 0.9 - drop))


@pytest.mark.parametrize(
    ("comparison", "standing", "verdict", "risk"),
    [
        (ruled(Ruling.SAME), ResultStanding.RIGHT, "right: error 3.10e-04 within bound 1.00e-03 on 128 samples",
         "none seen on this data: the error takes 31.0 % of the bound"),
        (ruled(Ruling.SAME, 8e-4), ResultStanding.RIGHT, "right: error 8.00e-04 within bound 1.00e-03 on 128 samples",
         "the error takes 80.0 % of the bound: other data may pass it"),
        (replace(ruled(Ruling.SAME), run="native"), ResultStanding.RIGHT,
         "right: error 3.10e-04 within bound 1.00e-03 on 128 samples",
         "run natively: what the runtime computes in FP32 was not rounded"),
        (ruled(Ruling.SAME, data=RANDOM), ResultStanding.UNREFUTED,
         "not refuted: error 3.10e-04 within bound 1.00e-03 on 128 random samples",
         "random inputs prove little: real ones are correlated and have outliers"),
        (ruled(Ruling.DIFFERENT, 0.5), ResultStanding.WRONG, "wrong: error 0.5 past bound 1.00e-03 on 128 samples",
         "this model gives other answers than the reference"),
        (replace(ruled(Ruling.DIFFERENT, 0.5), layers=LAYERS), ResultStanding.WRONG,
         "wrong: error 0.5 past bound 1.00e-03 on 128 samples",
         "the error begins at layer_7; 7 layers before it keep the bound"),
        (replace(ruled(Ruling.DIFFERENT, 0.5, data=RANDOM), layers=LAYERS), ResultStanding.WRONG,
         "wrong: error 0.5 past bound 1.00e-03 on 128 random samples",
         "the error begins at layer_7, on random inputs, which prove little"),
        (ruled(Ruling.UNDECIDED, high=2e-3), ResultStanding.OPEN,
         "undecided: error 3.10e-04 within bound 1.00e-03 on 128 samples, but may be 2.00e-03",
         "128 samples do not decide: more would"),
        (ruled(Ruling.UNDECIDED, high=float("inf")), ResultStanding.OPEN,
         "undecided: error 3.10e-04 within bound 1.00e-03 on 128 samples, too few to tell of others",
         "128 samples do not decide: more would"),
        (ruled(Ruling.UNKNOWN, float("nan")), ResultStanding.OPEN, "cannot tell: the data holds NaN",
         "unknown whether the answers are the same: this data shows nothing"),
        (dropped(0.001), ResultStanding.RIGHT, "right: accuracy drops by 1.00e-03 within bound 0.01 on 128 samples",
         "none seen on this data: the drop takes 10.0 % of the bound"),
        (dropped(-0.02), ResultStanding.RIGHT, "right: accuracy drops by 0 within bound 0.01 on 128 samples",
         "none seen on this data: the drop takes 0 % of the bound"),
        (replace(BROKEN, layers=()), ResultStanding.WRONG, "wrong: 'y' holds NaN where the reference has none",
         "this model gives other answers than the reference"),
    ],
)  # fmt: skip
def test_a_comparison_is_told_in_a_sentence(
    comparison: Comparison, standing: ResultStanding, verdict: str, risk: str
) -> None:
    headline = head_comparison("a.onnx", "b.onnx", comparison, MACHINE)
    assert (headline.standing, headline.verdict, headline.risk) == (standing, verdict, risk)
    assert judge(comparison) == (standing, verdict)


def planned(dtype: DType) -> Plan:
    node = PlannedNode("make_edge", "Mul", "op", uniform(dtype), None, "cost", "so", None)
    return Plan(
        line=line_of(DType.FLOAT32, DType.FLOAT16), dialect="onnx", version=None, settings=(), edits=(), limits=(),
        notes=(), make_nodes=lambda: (node,), make_fingerprint=lambda: "f",
    )  # fmt: skip


def test_values_that_come_close_to_overflow_are_the_worst_worry_of_what_runs_low() -> None:
    measured = Measured(ranges=Ranges(DATA, (value_range("h", 3.0), value_range("edge", 40_000.0))))
    comparison = ruled(Ruling.SAME)
    close = "1 value comes close to overflow: 40000 at make_edge"
    assert risk_on_data(comparison, planned(DType.FLOAT16), measured) == close
    assert "none seen" in risk_on_data(comparison, planned(DType.FLOAT32), measured)
    random = risk_on_data(ruled(Ruling.SAME, data=RANDOM), planned(DType.FLOAT16), measured)
    assert random == "random inputs prove little: real ones are correlated and have outliers"
    written = risk_on_data(ruled(Ruling.DIFFERENT, 0.5), planned(DType.FLOAT16), measured)
    assert written == "the result was written all the same: it is not fit for use"


def test_what_a_model_says_it_was_made_for_tells_what_it_gains() -> None:
    known = replace(ruled(Ruling.SAME), sizes_bytes=(4000, 2000), target="any")
    assert head_comparison("a", "b", known, MACHINE).gains == (
        "size 4.00 KB -> 2.00 KB (50 %)", "no performance data for target 'any'"
    )  # fmt: skip
    silent = head_comparison("a", "b", ruled(Ruling.SAME), MACHINE).gains
    assert silent == ("speed not measured: a comparison judges answers alone",)
    assert expect_speed(None, "t", MACHINE).is_faster is None


def test_precision_of_what_is_handed_on_decides_what_is_close() -> None:
    """Sums handed on in FP32 do not overflow FP16, whatever they are multiplied in."""
    node = PlannedNode("make_edge", "MatMul", "op",
                       Precision(DType.FLOAT16, DType.FLOAT32, DType.FLOAT32), None, "cost", "so", None)  # fmt: skip
    plan = planned(DType.FLOAT16).with_nodes([node])
    measured = Measured(ranges=Ranges(DATA, (value_range("edge", 40_000.0),)))
    assert "none seen" in risk_on_data(ruled(Ruling.SAME), plan, measured)
