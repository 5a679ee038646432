"""What people read of measurements: whole, as it looks in a pipe; within 80 columns; and safe whatever names hold."""

import math
from dataclasses import replace

import pytest
from samples import (
    BROKEN,
    DATA,
    F16,
    LAYERS,
    MEASURED,
    PROTECTED,
    RANGES,
    SAME,
    SEARCH,
    SENSITIVITY,
    SUMMARY,
    deviation,
    interval,
    make_plan,
    show,
    value_range,
)

from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import FormatRange, Measured, Prediction, Ruling
from mezzo.report.layout.layout import Layout
from mezzo.report.records.trust import find_beginning
from mezzo.report.text.conversion import report_conversion
from mezzo.report.text.measured.comparison import report_comparison
from mezzo.report.text.measured.ranges import report_ranges
from mezzo.report.text.measured.sensitivity import report_sensitivity
from mezzo.report.text.measured.tuning import report_tuning

NAMES = ("in.onnx", "out.onnx")
COMPARISON = """\
in.onnx <-> out.onnx
calib.npz: 128 samples in 4 batches; emulated: every result is rounded as the types say

the same: the largest output error 3.1e-04 is within 1e-03
  95 % interval 2.8e-04 .. 3.4e-04; budget 1.00e-03, set by --max-error; noise of FP32 1.20e-07

output  relative L2       95 % interval     cosine  SQNR dB        ulp   top-1
y          3.10e-04  2.8e-04 .. 3.4e-04  0.9999999     70.2  0.635 f16  98.4 %
  y: top-1 agreement 98.4 % (95.1 % .. 99.8 %)
  y: top-5 agreement 100 % (100 % .. 100 %)

metrics:accuracy: 0.981 -> 0.9795, 0.0015 worse

layers, the worst first
layer    relative L2     cosine  SQNR dB         ulp
layer_1     2.00e-05  0.9999999     94.0   0.041 f16
layer_0     1.00e-05  0.9999999    100.0  0.0205 f16

notes
  y was compared as f32
"""
TUNING = """\
in.onnx -> out.onnx
to fp16, policy balanced, strategy mincut, target any
tuned on calib.npz: 128 samples in 4 batches

inside the budget: error 7.90e-04 where 1.00e-03 is allowed, 8.10e-04 on data it never saw
  stopped by: the frontier has no cheaper plan inside the budget

search
evaluations  6 on all data, 14 on a part, 1 of the result
time         12 s
margin       aimed at 8.00e-04, the budget / 1.25, for data it never saw
cost         60.0 % of all in FP32
costliest    block.0/norm (3 nodes, error inf when it alone runs low)

               before    after
nodes in f16        0        2
nodes in f32        3        1
casts added                  1
size          4.00 MB  2.10 MB
opset              17       17

the frontier between cost and error
        cost to FP32  bytes moved  low nodes  predicted  measured
               0.420      2.10 MB          9        inf
               0.500      2.50 MB          7   4.00e-03  4.40e-03
chosen         0.600      3.00 MB          5   7.10e-04  8.10e-04
               0.780      3.90 MB          2   9.00e-05
               1.000      5.00 MB          0          0         0
  costs: the operators' table
  each plan is the cheapest for one price of predicted error; that error is an estimate

1 of 3 nodes stays in f32
"""
RANGES_TEXT = """\
ranges of in.onnx
5 values on calib.npz: 128 samples in 4 batches

1 value passes f16's range, up to 65504
value    made by               minimum  maximum  beyond  largest in
squares  make_squares (Mul)  -1.25e+06  2.5e+06  75.0 %  calib.npz[32:64]

1 value comes within a factor 4 of f16's limit
value  made by          minimum  maximum  beyond  largest in
edge   make_edge (Mul)   -20000    40000     0 %  calib.npz[32:64]

1 value vanishes in part in f16
value  made by             mean  to zero  below normal  rounding
eps    make_eps (Mul)  1.25e-10    100 %         100 %  2.00e-04

1 value not finite before any rounding
  mask (make_mask (Mul)): infinities

not measured
  ids: not a float
"""
SENSITIVITY_TEXT = """\
sensitivity of in.onnx
7 runs on calib.npz: 128 samples in 4 batches

with everything low that may be, the output error is inf

3 units, the 2 most costly
unit             error  of all  found by     nodes
block.0/norm       inf  breaks  a run alone  mean, sub, sq
head          4.00e-04  64.0 %  a run alone
  block.0/norm: infinities in 'y'
  and 1 unit more, 36.0 % of the squared error
"""


def test_a_share_is_never_told_as_a_measurement():
    shown = show(report_sensitivity(Layout.PLAIN, "in.onnx", SENSITIVITY, 9))
    row = next(" ".join(line.split()) for line in shown.splitlines() if line.startswith("mm "))
    assert row == "mm 3.00e-04 1.00e-04 .. 9.00e-04 36.0 % share of 12"
    assert "a share was not measured alone" in shown
    shared = replace(MEASURED, search=replace(SEARCH, costliest="mm"))
    assert "mm (error 3.00e-04, its share of what 12 cost together)" in show_tuning(shared)
    alone = show_tuning(replace(MEASURED, search=replace(SEARCH, costliest="head")))
    assert "head (error 4.00e-04 when it alone runs low)" in alone


def test_what_predictions_are_worth_is_told():
    fitted = replace(SEARCH, prediction=Prediction(0.5, 0.8, 1.25, 3))
    shown = show_tuning(replace(MEASURED, search=fitted))
    assert (
        "that error is an estimate, fitted to the 3 plans that were measured, whose errors are 0.8 to 1.2 times"
        in shown
    )


def test_a_budget_that_nobody_can_judge_is_no_budget_kept():
    unknown = ("input 'x' holds NaN in calib.npz", "output 'y' is zero everywhere in the reference")
    search = replace(SEARCH, is_within_budget=False, unknown=unknown)
    shown = show_tuning(replace(MEASURED, comparison=None, search=search))
    assert "\ncannot tell: error 7.90e-04" in shown
    assert "\ninside the budget" not in shown and "\nover the budget" not in shown
    assert all(f"cannot tell: {reason}" in shown for reason in unknown)


def show_tuning(measured: Measured) -> str:
    return show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, measured))


def tuned(**changes: object) -> Measured:
    return replace(MEASURED, comparison=None, search=replace(SEARCH, **changes))


def test_comparison_is_reported_whole():
    assert show(report_comparison(Layout.PLAIN, *NAMES, replace(SAME, layers=LAYERS[:2]))) == COMPARISON


def test_tuning_is_reported_whole():
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, MEASURED))
    check = shown.index("\nthe check\n")
    assert shown[:check] + shown[shown.index("\n1 of 3 nodes") :][: len("\n1 of 3 nodes stays in f32\n")] == TUNING
    assert "the same: the largest output error" in shown[check:]


def test_ranges_are_reported_whole():
    assert show(report_ranges(Layout.PLAIN, "in.onnx", RANGES, F16, 10)) == RANGES_TEXT


def test_sensitivity_is_reported_whole():
    assert show(report_sensitivity(Layout.PLAIN, "in.onnx", SENSITIVITY, 2)) == SENSITIVITY_TEXT


def test_broken_comparison_names_the_fault_and_where_the_error_begins():
    shown = show(report_comparison(Layout.PLAIN, *NAMES, BROKEN))
    assert "\nnot the same: 'y' holds NaN where the reference has none\n  budget 1.00e-03" in shown
    assert "  y: NaN in 12 of 128 samples, where the reference has none\n" in shown
    assert "\ny                 -              -       -        -    -\n" in shown
    assert "the error begins at layer_7: error 1.28e-03; the 7 layers before it keep the budget" in shown
    assert "the worst 10 of 12 layers" in shown and "layer_1 " not in shown


def test_error_begins_at_the_first_fault_or_the_first_layer_past_the_budget():
    assert find_beginning(LAYERS, 1e-3) is LAYERS[7] and find_beginning(LAYERS, 1.0) is None
    faulty = (LAYERS[0], replace(LAYERS[1], fault="zeros"), *LAYERS[2:])
    assert find_beginning(faulty, 1e-3) is faulty[1]
    odd = deviation("odd", math.nan)
    assert find_beginning((LAYERS[0], odd), 1.0) is odd


def test_faulty_layers_come_first_whatever_their_error():
    layers = (*LAYERS, replace(deviation("dead", 1e-9), fault="zeros where the reference has none"))
    shown = show(report_comparison(Layout.PLAIN, *NAMES, replace(SAME, layers=layers)))
    first = shown.partition("the worst first\n")[2].splitlines()[1]
    assert first.startswith("dead ") and "dead: zeros where the reference has none" in shown


def test_comparison_without_float_outputs_says_so():
    shown = show(report_comparison(Layout.PLAIN, *NAMES, replace(SAME, outputs=(), layers=(), metric=None)))
    assert "no output computes floats" in shown


def test_native_run_is_told_from_an_emulated_one():
    shown = show(report_comparison(Layout.PLAIN, *NAMES, replace(SAME, run="native")))
    assert "run natively" in shown and "emulated" not in shown


def test_ranges_that_fit_say_so():
    shown = show(report_ranges(Layout.PLAIN, "in.onnx", replace(RANGES, values=RANGES.values[:1], skipped=()), F16, 10))
    assert shown.endswith(
        "every value fits f16: none passes its range, comes near it or vanishes\n"
        "  the largest magnitude is 12.5, of h in calib.npz[32:64]\n"
    )


def test_ranges_show_the_limit_and_count_the_rest():
    values = tuple(value_range(f"v{number}", 1e5 + number) for number in range(5))
    shown = show(report_ranges(Layout.PLAIN, "in.onnx", replace(RANGES, values=values), F16, 2))
    assert "5 values pass f16's range, up to 65504, 2 shown" in shown
    assert "v4 " in shown and "v3 " in shown and "v2 " not in shown


def test_range_between_the_largest_number_and_where_rounding_overflows_is_near():
    """65519 rounds to 65504 in FP16; 65520 is the first that rounds to infinity."""
    for largest, what in ((65519.0, "comes within"), (65520.0, "passes")):
        shown = show(
            report_ranges(Layout.PLAIN, "m", replace(RANGES, values=(value_range("v", largest),), skipped=()), F16, 9)
        )
        assert f"1 value {what}" in shown


@pytest.mark.parametrize(
    ("dtype", "largest", "what"),
    [
        (DType.FLOAT8E4M3FN, 464.0, "comes within"),
        (DType.FLOAT8E4M3FN, 464.1, "passes"),
        (DType.FLOAT8E5M2, 61439.0, "comes within"),
        (DType.FLOAT8E5M2, 61440.0, "passes"),
    ],
)
def test_limits_of_fp8_are_where_rounding_leaves_the_numbers(dtype, largest, what):
    np, ml_dtypes = pytest.importorskip("numpy"), pytest.importorskip("ml_dtypes")
    storage = {DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, DType.FLOAT8E5M2: ml_dtypes.float8_e5m2}[dtype]
    assert np.isfinite(np.float32(np.float32(largest).astype(storage))) == (what == "comes within")
    held = replace(value_range("v", largest), formats={dtype: FormatRange(0, 0, 0, 0.1)})
    assert f"1 value {what}" in show(report_ranges(Layout.PLAIN, "m", replace(RANGES, values=(held,)), dtype, 9))


def test_ranges_of_a_format_without_a_table_row_go_by_shares():
    odd = replace(value_range("v", 1e4), formats={DType.FLOAT8E8M0: FormatRange(0.25, 0, 0, 1.0)})
    shown = show(report_ranges(Layout.PLAIN, "m", replace(RANGES, values=(odd,)), DType.FLOAT8E8M0, 9))
    assert "1 value passes f8e8m0's range\n" in shown and "25.0 %" in shown


def test_sensitivity_of_nothing_says_so():
    shown = show(report_sensitivity(Layout.PLAIN, "m", replace(SENSITIVITY, units=(), all_low=0.0), 9))
    assert "no node may run low" in shown


def test_search_over_the_budget_says_what_would_help():
    measured = tuned(is_within_budget=False, error=0.0137, held_out_error=0.0141, stopped_by="the time limit")
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, measured))
    assert "over the budget: error 0.0137 where 1.00e-03 is allowed, 0.0141 on data it never saw" in shown
    assert "  stopped by: the time limit\n" in shown
    assert "a budget of 0.015 would be kept by this plan" in shown
    assert "most of the error comes from block.0/norm: --exclude keeps it in FP32" in shown


def test_search_inside_the_budget_says_what_more_would_give():
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, tuned()))
    assert "a budget of 0.0055 would lower the cost to 50.0 % of all in FP32" in shown


def test_search_without_held_out_data_asks_for_more():
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, tuned(held_out_error=None)))
    assert "all data was used to tune" in shown and "more data would leave a part that tuning never sees" in shown


def judged_by_metric(drop: float, budget: float) -> Measured:
    verdict = replace(SAME.verdict, error=interval(drop), budget=budget, budget_source="a drop of 0.5% of accuracy")
    return replace(MEASURED, comparison=replace(SAME, verdict=verdict), search=replace(SEARCH, budget=budget))


def test_search_by_a_metric_tells_its_drop_and_no_budget_of_error():
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, judged_by_metric(0.0015, 0.0049)))
    assert "inside the budget: metrics:accuracy drops by 0.0015 where 4.90e-03 is allowed, on data it" in shown
    assert "a budget of" not in shown


def test_layers_have_no_budget_where_a_metric_has_it():
    by_metric = replace(BROKEN, verdict=judged_by_metric(0.0, 1e-4).comparison.verdict, metric=SAME.metric)
    assert "the error begins" not in show(report_comparison(Layout.PLAIN, *NAMES, by_metric))
    faulty = replace(by_metric, layers=(*LAYERS[:3], replace(LAYERS[3], fault="zeros")))
    assert "the error begins at layer_3: zeros" in show(report_comparison(Layout.PLAIN, *NAMES, faulty))


def test_verdict_that_samples_cannot_decide_says_so():
    verdict = replace(SAME.verdict, ruling=Ruling.UNDECIDED, because="output 'y' may differ by 1.2e-3")
    shown = show(report_comparison(Layout.PLAIN, *NAMES, replace(SAME, verdict=verdict)))
    assert "\nundecided: output 'y' may differ by 1.2e-3\n" in shown


def test_tuning_that_measured_nothing_is_reported():
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, Measured()))
    assert "nodes in f16" in shown and "frontier" not in shown and "budget" not in shown


def test_conversion_on_data_tells_what_was_protected_and_the_verdict():
    shown = show(report_conversion(Layout.PLAIN, *NAMES, make_plan(PROTECTED), SUMMARY, MEASURED))
    assert "data-overflow      1  'squares' holds 0 to 2.5e+06 in calib.npz[32:64]" in shown
    assert "the data protects 1 node: see data-overflow above" in shown
    assert "\nthe check\nthe same: the largest output error" in shown
    assert shown.index("y was compared as f32") > shown.index("notes")


def test_conversion_on_harmless_data_says_so():
    shown = show(report_conversion(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, Measured(data=DATA, ranges=RANGES)))
    assert "the data found nothing that f16 cannot hold in 5 values" in shown


def test_conversion_without_data_is_reported_as_before():
    shown = show(report_conversion(Layout.PLAIN, *NAMES, make_plan(), SUMMARY))
    assert "data" not in shown and "the check" not in shown


def all_reports(layout: Layout, name: str):
    values = tuple(replace(value, value=name, node=name, op=name) for value in RANGES.values)
    values = (*values, replace(values[1], largest_at=name))
    broken = replace(
        BROKEN,
        data=replace(DATA, name=name),
        outputs=(replace(BROKEN.outputs[0], name=name, fault=name, top1=interval(0.5), k=5, topk=interval(0.6)),),
        layers=tuple(replace(layer, name=name) for layer in LAYERS),
        verdict=replace(BROKEN.verdict, because=name, budget_source=name),
        metric=replace(SAME.metric, name=name),
        notes=(name,),
    )
    units = tuple(replace(unit, name=name, nodes=(name, name), fault=name) for unit in SENSITIVITY.units)
    sensitivity = replace(SENSITIVITY, data=replace(DATA, name=name), units=units)
    measured = replace(
        MEASURED,
        data=replace(DATA, name=name),
        comparison=broken,
        sensitivity=sensitivity,
        costs=replace(MEASURED.costs, source=name, unit="ns"),
        search=replace(SEARCH, stopped_by=name, costliest=name, is_within_budget=False),
        notes=(name,),
    )
    plan = make_plan(PROTECTED._replace(name=name, rule=f"data-{name}", because=name))
    yield "comparison", report_comparison(layout, name, name, broken)
    yield "ranges", report_ranges(layout, name, replace(RANGES, values=values, skipped=(name,)), F16, 9)
    yield "sensitivity", report_sensitivity(layout, name, sensitivity, 9)
    yield "tuning", report_tuning(layout, name, name, plan, SUMMARY, measured)
    yield "conversion", report_conversion(layout, name, name, plan, SUMMARY, measured)


LONG = "/encoder/layer.11/attention/self/MatMul_output_0"


@pytest.mark.parametrize("name", [LONG, LONG * 4, "y"], ids=["long", "very long", "short"])
def test_reports_fit_80_columns_of_a_terminal(name):
    for what, parts in all_reports(Layout.TERMINAL, name):
        shown = show(parts, 80)
        assert max(map(len, shown.splitlines())) <= 80, what
        assert name in "".join(shown.split()), what


def test_numbers_of_tables_are_never_cut():
    """Names fold where columns are few; what a table is for does not."""
    shown = show(report_comparison(Layout.TERMINAL, *NAMES, replace(SAME, layers=(deviation(LONG, 1.234e-5),))), 80)
    for figure in ("3.10e-04", "2.8e-04 .. 3.4e-04", "0.9999999", "70.2", "0.635 f16", "98.4 %", "1.23e-05"):
        assert figure in shown


def test_hostile_names_are_shown_escaped():
    hostile = "a\x1b[31m[bold]b[/nope]\u202e\r\nc"
    for what, parts in all_reports(Layout.PLAIN, hostile):
        shown = show(parts)
        assert all(sign == "\n" or sign.isprintable() for sign in shown), what
        assert "a\\x1b[31m[bold]b[/nope]\\u202e\\r\\nc" in shown, what


def test_reports_in_a_pipe_are_ascii():
    for what, parts in all_reports(Layout.PLAIN, "y"):
        assert show(parts).isascii(), what


def test_costs_that_are_not_of_whole_models_are_said_to_be_something_else():
    measured = tuned()
    assert "cost         60.0 % of all in FP32" in show(
        report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, measured)
    )
    shown = show(report_tuning(Layout.PLAIN, *NAMES, make_plan(), SUMMARY, replace(measured, costs=None)))
    assert "cost         0.6, where all in FP32 is 1 and all low with free casts 0" in shown
    assert "cost: what FP32 nodes forgo and what casts take" in shown and "% of all in FP32" not in shown
