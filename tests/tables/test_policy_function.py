"""A policy that is a function of each node: what it is asked, what it may answer, and where its answers stand."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import onnx.parser
import pytest
from toy_dialect import DIALECT

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.ir.selectors import Site
from mezzo.plugins import discovery
from mezzo.tables.policy import Category, Policy
from mezzo.tables.policy_function import policy_of

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x) => (float[2,4] y, int64[2] n)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [relu] r = Relu(h)
   [sm] s = Softmax<axis=-1>(r)
   [mm2] y = MatMul(s, w)
   [shape] n = Shape(y)
}
"""
_VERBS: dict[str, Callable[..., mezzo.Plan]] = {
    "plan": mezzo.plan,
    "convert": lambda model, **options: mezzo.convert(model, **options).plan,
}


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL)


def only_softmax(site: Site) -> str:
    return "allow" if site.op == "Softmax" else "deny"


def test_answer_decides_and_its_function_is_the_rule() -> None:
    for verb in _VERBS.values():
        plan = verb(model(), policy=only_softmax)
        told = {node.name: (str(node.precision.compute), node.rule) for node in plan.nodes if node.kind == "op"}
        assert told == {
            "mm": ("f32", "only_softmax"), "relu": ("f32", "only_softmax"), "sm": ("f16", "only_softmax"),
            "mm2": ("f32", "only_softmax"),
        }  # fmt: skip
        assert mezzo.explain(plan, "mm")[0].because == "only_softmax gives deny"
        assert dict(plan.settings)["policy"] == "only_softmax"


@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_function_is_asked_of_each_operator_that_computes_floats(to: str) -> None:
    asked: list[tuple[str, str, str, object]] = []

    def note(site: Site, word: str) -> None:
        asked.append((site.name, site.op, word, site.attribute("axis")))
        assert site.dialect == "onnx" and site.shape(0) is not None

    plan = mezzo.plan(model(), policy=note, to=to, target="any")
    assert set(asked) == {
        ("mm", "MatMul", to, None), ("relu", "Relu", to, None), ("sm", "Softmax", to, -1), ("mm2", "MatMul", to, None),
    }  # fmt: skip
    usual = mezzo.plan(model(), to=to, target="any")  # it left everything to balanced
    assert [node[:-3] for node in plan.nodes] == [node[:-3] for node in usual.nodes]


@pytest.mark.parametrize("answer", ["allow", Category.ALLOW, ("allow", None, None), ["allow", "fp16", DType.FLOAT16]])
def test_ways_to_say_allow(answer: object) -> None:
    plan = mezzo.plan(model(), policy=lambda site: answer if site.op == "Softmax" else "deny")
    assert str(plan.by_name["sm"].precision.compute) == "f16"


@pytest.mark.parametrize(
    ("accumulate", "output", "spelled"),
    [
        ("fp32", "fp32", ("f16", "f32", "f32")),
        ("float32", "float16", ("f16", "f32", "f16")),
        (DType.FLOAT32, None, ("f16", "f32", "f16")),
        (None, "fp32", ("f16", "f16", "f32")),
    ],
)
def test_answer_says_in_what_sums_and_results_are(accumulate: object, output: object, spelled: tuple[str, ...]) -> None:
    def mixed(site: Site) -> object:
        return ("allow", accumulate, output) if site.op == "MatMul" else "deny"

    converted = mezzo.convert(model(), policy=mixed)
    assert tuple(map(str, converted.plan.by_name["mm"].precision)) == spelled
    onnx.checker.check_model(converted.model, full_check=True)


def test_answers_stand_against_structure_and_promotion_but_not_against_the_user() -> None:
    plan = mezzo.plan(model(), policy=lambda site: "infer", target="any")
    assert not any(node.rule == "untroubled" for node in plan.nodes)
    assert mezzo.plan(model(), policy=only_softmax, exclude=["sm"]).by_name["sm"].rule == "exclude"
    assert mezzo.plan(model(), policy=only_softmax, include=["mm"]).by_name["mm"].rule == "include"


def test_target_and_schema_hold_against_an_answer() -> None:
    plan = mezzo.plan(model(), policy=lambda site: "allow", to="bf16", target="onnxruntime-cpu")
    assert {node.rule for node in plan.nodes if node.kind == "op"} == {"target"}


WRONG: list[tuple[object, str]] = [
    ("alow", "it gave 'alow'; return allow, infer, clear, deny, a tuple (category, accumulate, output), or None"),
    (True, "it gave True; return allow, infer"),
    (("allow", "fp32"), "it gave ('allow', 'fp32'); return allow, infer"),
    ((None, None, None), "it gave (None, None, None); return allow, infer"),
    (("allow", "bf16", None), "accumulate is 'bf16'; return fp32, fp16 or None"),
    (("allow", None, 32), "output is 32; return fp32, fp16 or None"),
    (("allow", None, ["fp32"]), "output is ['fp32']; return fp32, fp16 or None"),
    ({"allow"}, "it gave {'allow'}; return allow, infer"),
    ([["allow"], None, None], "it gave [['allow'], None, None]; return allow"),
]


@pytest.mark.parametrize(("answer", "because"), WRONG, ids=[repr(answer) for answer, _ in WRONG])
@pytest.mark.parametrize("verb", _VERBS)
def test_wrong_answer_names_the_node_and_what_is_wanted(verb: str, answer: object, because: str) -> None:
    def colour(site: Site, to: str) -> object:
        return answer if site.op == "Softmax" else None

    with pytest.raises(mezzo.InputError) as caught:
        _VERBS[verb](model(), policy=colour)
    assert str(caught.value).startswith(f"policy function 'colour', node 'sm' (Softmax): {because}")
    assert "\n" not in str(caught.value)


def test_function_that_fails_names_the_node() -> None:
    def colour(site: Site) -> str:
        return {"MatMul": "allow"}[site.op]

    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(model(), policy=colour)
    assert str(caught.value) == (
        "policy function 'colour', node 'relu' (Relu): it failed, KeyError: 'Relu'; mend it"
    )  # fmt: skip


def test_function_of_other_arguments_is_refused_before_it_is_called() -> None:
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(model(), policy=nothing)
    assert str(caught.value) == (
        "policy function 'nothing' cannot be called: too many positional arguments; write it of a node, or of a node "
        "and a format"
    )


def nothing() -> str:
    return "deny"


class Colours:
    """An object that is called as a function is."""

    def __call__(self, site: Site, to: str) -> str:
        return "deny"


@pytest.mark.parametrize(
    ("function", "name"),
    [(Colours(), "Colours"), (partial(only_softmax), "only_softmax"), (lambda s: "deny", "<lambda>")],
)
def test_whatever_can_be_called_has_a_name(function: Callable[..., object], name: str) -> None:
    assert {node.rule for node in mezzo.plan(model(), policy=function).nodes if node.kind == "op"} <= {name}


def test_plan_of_a_function_replays_and_the_function_does_not(tmp_path: Path) -> None:
    converted = mezzo.convert(model(), policy=only_softmax)
    mezzo.save_plan(converted.plan, tmp_path / "plan.json")
    assert '"policy": "only_softmax"' in (tmp_path / "plan.json").read_text()
    again = mezzo.convert(model(), plan=tmp_path / "plan.json")
    assert mezzo.show(again.model) == mezzo.show(converted.model)
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.convert(model(), plan=tmp_path / "plan.json", policy=only_softmax)
    assert str(caught.value) == (
        "policy is the function 'only_softmax' beside a plan, which tells what was decided and not by which code; "
        "leave policy out, or plan anew without the plan"
    )


def test_converting_twice_with_a_function_is_as_converting_once() -> None:
    once = mezzo.convert(model(), policy=only_softmax)
    assert mezzo.show(mezzo.convert(once.model, policy=only_softmax).model) == mezzo.show(once.model)


def test_function_of_the_same_name_that_says_something_else_is_asked_anew() -> None:
    def colour(site: Site) -> str:
        return only_softmax(site)

    once = mezzo.convert(model(), policy=colour)

    def other(site: Site) -> str:
        return "allow"

    other.__name__ = other.__qualname__ = "colour"
    again = mezzo.convert(once.model, policy=other)
    assert str(again.plan.by_name["mm"].precision.compute) == "f16"
    assert any("the policy asks the function 'colour', whose code no file tells" in note for note in again.plan.notes)


def test_verdict_stands_in_the_account(tmp_path: Path) -> None:
    from mezzo.report.records.account import describe_conversion

    converted = mezzo.convert(model(), policy=only_softmax)
    account = describe_conversion("in", "out", converted.plan, converted.summary)
    assert "only_softmax gives deny" in json.dumps(account, default=str)


def test_other_verbs_take_a_function() -> None:
    import numpy as np

    rows = mezzo.compare_strategies(model(), policy=only_softmax)
    assert {row.low_nodes for row in rows if row.strategy == "mincut"} == {1}
    data = [{"x": np.ones((2, 4), np.float32)}]
    assert mezzo.convert(model(), policy=only_softmax, data=data).plan.by_name["mm"].rule == "only_softmax"
    assert mezzo.sensitivity(model(), data=data, policy=only_softmax) is not None


def test_function_on_another_base() -> None:
    policy = policy_of(lambda site: None, discovery.policy("off"), "quiet")
    assert isinstance(policy, Policy) and policy.name == "quiet"
    assert not any(node.precision.compute is not DType.FLOAT32 for node in mezzo.plan(model(), policy=policy).nodes)


def test_format_that_the_function_was_not_written_for_is_denied() -> None:
    policy = policy_of(lambda site: "allow", discovery.policy("balanced"))
    assert policy.judge((DIALECT, "product"), None, DType.FLOAT8E4M3FN).category is Category.DENY
