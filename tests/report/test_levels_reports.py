"""Reports of plans of more than two levels: a line, a column or a sign for each, in the plan's order."""

import json

import jsonschema
import pytest
from samples import SUMMARY, make_plan, planned, show

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import PrecisionLine, uniform
from mezzo.report.layout.layout import Layout
from mezzo.report.records.account import describe_conversion, schema
from mezzo.report.records.groups import count_before, count_precisions
from mezzo.report.records.suggestions import free
from mezzo.report.text.chain import report_chain, suggest_change
from mezzo.report.text.conversion import report_counts, report_high_nodes, report_plan
from mezzo.report.text.picture import Bar, report_picture
from mezzo.report.views.picture import Island, Picture, Share
from mezzo.report.views.plandiff import compare_plans

BF16, F32, F16, FP8 = DType.BFLOAT16, DType.FLOAT32, DType.FLOAT16, DType.FLOAT8E4M3FN
LINE = PrecisionLine((uniform(BF16), uniform(F32), uniform(FP8)), base=1)


def three_levels() -> Plan:
    """FP8 that was there, FP8 and BF16 of the plan's doing, one operator in FP32, and one in a format of no level."""
    nodes = (
        planned("typed", FP8, "typed", "is f8e4m3fn in the model already"),
        planned("a", FP8, "linear", "has kernels"),
        planned("b", BF16, "linear", "has kernels"),
        planned("c", BF16, "linear", "has kernels"),
        planned("sm", F32, "softmax", "takes exponentials of differences"),
        planned("strange", F16, "typed", "is f16 in the model already"),
    )
    return Plan(
        line=LINE,
        dialect="onnx",
        version=None,
        settings=(("to", "bf16,fp8"),),
        edits=(),
        limits=(),
        notes=(),
        make_nodes=lambda: nodes,
        make_fingerprint=lambda: "fingerprint",
    )


def test_counts_have_a_line_for_each_level_the_base_last_and_then_what_came_along() -> None:
    plan = three_levels()
    assert list(count_precisions(plan).items()) == [(BF16, 2), (FP8, 2), (F32, 1), (F16, 1)]
    assert list(count_before(plan).items()) == [(BF16, 0), (FP8, 1), (F32, 4), (F16, 1)]
    rows = [line.split() for line in show([report_counts(Layout.PLAIN, plan, SUMMARY)]).splitlines()[1:5]]
    assert rows == [
        ["nodes", "in", "bf16", "0", "2"],
        ["nodes", "in", "f8e4m3fn", "1", "2"],
        ["nodes", "in", "f32", "4", "1"],
        ["nodes", "in", "f16", "1", "1"],
    ]


def test_plan_of_levels_is_reported_whole() -> None:
    text = show(report_plan(Layout.PLAIN, "model.onnx", three_levels()))
    assert "nodes in bf16" in text and "1 of 6 nodes stays in f32" in text
    assert show(report_high_nodes(Layout.PLAIN, three_levels())) in text


def test_account_names_every_level_and_is_as_its_schema_says() -> None:
    account = describe_conversion("a.onnx", "b.onnx", three_levels(), SUMMARY)
    conversion = account["conversion"]
    assert isinstance(conversion, dict)
    assert (conversion["high"], conversion["low"]) == ("f32", ["bf16", "f8e4m3fn"])
    assert conversion["precisions"] == {"bf16": 2, "f8e4m3fn": 2, "f32": 1, "f16": 1}
    validator = jsonschema.Draft202012Validator(schema())
    validator.validate(json.loads(json.dumps(account)))
    pair = describe_conversion("a.onnx", "b.onnx", make_plan(), SUMMARY)["conversion"]
    assert isinstance(pair, dict) and pair["low"] == "f16"
    for wrong in (["f16"], ["f16", "f16"], 3):
        broken = json.loads(json.dumps(account))
        broken["conversion"]["low"] = wrong
        assert not validator.is_valid(broken), wrong


def test_explanation_names_the_levels_that_a_node_might_have() -> None:
    plan = three_levels()
    high, low = plan.by_name["sm"], plan.by_name["a"]
    assert suggest_change(high, plan.lows) == (("--include", "sm"), "asks for bf16 or f8e4m3fn in spite of the rule")
    assert suggest_change(low, plan.lows) == (("--exclude", "a"), "keeps 'a' out of bf16 or f8e4m3fn")
    assert "allow, the policy wants it in f8e4m3fn" in show(report_chain([low], plan.lows))
    assert "deny, high whatever its neighbours run in" in show(report_chain([high], plan.lows))


def test_island_is_freed_into_any_of_the_levels() -> None:
    plan = three_levels()
    node = plan.by_name["sm"]
    island = Island(
        nodes=(node,),
        alike=1,
        rule=node.rule,
        because=node.because,
        decided_by=node,
        holders=(node,),
        is_legal=True,
        activations_bytes=0,
        multiply_adds=0,
    )
    assert free(island, plan).effect.startswith("runs this MatMul in bf16 or f8e4m3fn in spite of the rule")


def test_difference_of_plans_names_their_levels() -> None:
    found = compare_plans(make_plan(), three_levels()).settings
    said = {setting.name: (setting.first, setting.second) for setting in found}
    assert said["low precision"] == ("f16", None) and said["levels"] == (None, "bf16, f32, f8e4m3fn")
    turned = PrecisionLine((uniform(F32), uniform(BF16), uniform(FP8)))
    nodes = three_levels().nodes
    other = Plan(
        line=turned,
        dialect="onnx",
        version=None,
        settings=three_levels().settings,
        edits=(),
        limits=(),
        notes=(),
        make_nodes=lambda: nodes,
        make_fingerprint=lambda: "fingerprint",
    )
    assert [setting.name for setting in compare_plans(three_levels(), other).settings] == ["levels"]


def test_picture_draws_each_level_with_a_sign_of_its_own() -> None:
    shares = tuple(
        Share(dtype=dtype, nodes=nodes, weights_bytes=0, activations_bytes=0, multiply_adds=0)
        for dtype, nodes in ((BF16, 1), (FP8, 0), (F32, 1), (F16, 1))
    )
    text = show(
        report_picture(
            Layout.PLAIN,
            Picture(shares=shares, casts=0, casts_bytes=0, uncounted=0, is_nominal=False, islands=(), levels=3),
        ),
        width=120,
    )
    assert "# bf16  = f8e4m3fn  . f32  +" in text
    assert "#" * 10 + "." * 10 + "+" * 10 in text


def test_picture_names_every_level_and_of_others_those_that_the_model_has() -> None:
    shares = tuple(
        Share(dtype=dtype, nodes=nodes, weights_bytes=0, activations_bytes=0, multiply_adds=0)
        for dtype, nodes in ((BF16, 1), (FP8, 1), (F32, 0), (F16, 0))
    )
    legend = show(
        report_picture(
            Layout.PLAIN,
            Picture(shares=shares, casts=0, casts_bytes=0, uncounted=0, is_nominal=False, islands=(), levels=3),
        ),
        width=120,
    )
    assert "# bf16  = f8e4m3fn  . f32" in legend and "f16 " not in legend.replace("bf16", "")


@pytest.mark.parametrize(
    ("levels", "drawn"), [(2, "#.++++"), (3, "#=.+++"), (4, "#=*.++"), (5, "#=**.+"), (6, "#=***.")]
)
def test_signs_of_levels_past_those_there_are_repeat(levels: int, drawn: str) -> None:
    parts = tuple((dtype, 5) for dtype in (BF16, FP8, F16, DType.FLOAT8E5M2, DType.FLOAT4E2M1, F32))
    assert show([Bar(parts, True, levels)]).strip() == "".join(sign * 5 for sign in drawn)
