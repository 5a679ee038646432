"""What no row of a target, policy or schema allows for a format is refused: a format that mezzo learns lets nothing
through that nobody has allowed in it.

The laws hold mezzo's tables, and files of users, against two formats that it does not convert to, as if it had just
learned them.
"""

import onnx
import onnx.defs
import onnx.parser
import pytest

import mezzo
from mezzo.formats import dtypes
from mezzo.formats.dtypes import HALF_FORMATS, QUANTIZED, DType, Format, narrow_formats
from mezzo.onnx.schema.contrib import CONTRIB
from mezzo.onnx.schema.schema import find_schema, solve
from mezzo.onnx.schema.types import parse_type_string
from mezzo.plugins import discovery
from mezzo.tables.facts import OpFacts
from mezzo.tables.files.policyfile import read_policy
from mezzo.tables.files.targetfile import read_target
from mezzo.tables.ops import dialects, op_facts
from mezzo.tables.policy import Category, Policy, rule
from mezzo.tables.target import KernelListing, Target, kernels

FP6, INT2 = DType.FLOAT6E3M2, DType.INT2
# As their rows in the table of formats would be; INT2 stands for whole numbers that are scaled.
LEARNED = {
    "fp6": Format(
        dtype=FP6, size_bytes=1, max_finite=28.0, smallest_normal=2.0**-2, smallest_subnormal=2.0**-4, eps=2.0**-2
    ),
    "int2": Format(dtype=INT2, size_bytes=1, max_finite=1.0, smallest_normal=1.0, smallest_subnormal=1.0, eps=1.0),
}
OPERATORS: list[tuple[tuple[str, str], OpFacts | None]] = [
    *(((dialect, op), row) for dialect in dialects() for op, row in op_facts(dialect).items()),
    (("onnx", "Unheard"), None),
    (("org.example", "Softmax"), None),
]
MODEL = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[4,4] x, bool c) => (float[4,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, int64[2] shape = {4, 4}>
{
   [mm] h = MatMul(x, w)
   [sin] s = Sin(h)
   [if] z = If(c)<
      then_branch = a () => (float[4,4] p) { [relu] p = Relu(s) },
      else_branch = b () => (float[4,4] q) { [id] q = Identity(s) }
   >
   [move] r = Reshape(z, shape)
   [sm] y = Softmax<axis=-1>(r)
}
"""
# Rows of every kind that a user may write, none of which names a format.
POLICY = """
base = "{base}"
allow = ["MatMul", "Sin", "Softmax", "If"]
infer = ["Relu"]
clear = ["Reshape", "Identity"]
otherwise = "allow"
unlisted = "allow"

[[rule]]
gives = "allow"
node = "block/*"

[[rule]]
gives = "allow"
region = "block"

[[rule]]
gives = "allow"
op = "Softmax"
attribute = {{ axis = -1 }}
"""
TARGET = """
base = "{base}"

[[refuse]]
op = "Gemm"

[[gain]]
format = "fp16"
faster = true
because = "it is"
"""


@pytest.fixture(params=LEARNED)
def learned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A format that mezzo has just learned, by the word of `--to`."""
    held = LEARNED[request.param]
    monkeypatch.setitem(dtypes.LOW_DTYPES, request.param, held.dtype)
    monkeypatch.setitem(dtypes.LEVEL_DTYPES, request.param, held.dtype)
    monkeypatch.setitem(dtypes.FORMATS, held.dtype, held)
    return str(request.param)


def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(MODEL)
    for node in parsed.graph.node:
        node.name = f"block/{node.name}"
    return parsed


def low_nodes(plan: mezzo.Plan) -> list[str]:
    return [node.name for node in plan.nodes if node.precision.compute is not plan.high]


def targets() -> list[Target]:
    """Every shipped target, and files of users on each of them and on none."""
    shipped = [discovery.built_in_targets()[name] for name in sorted(discovery.built_in_targets())]
    files = [read_target(TARGET.format(base=target.name), f"on {target.name}", discovery.target) for target in shipped]
    return [*shipped, *files, read_target("", "bare", discovery.target), Target(name="python", summary="")]


def policies() -> list[Policy]:
    """Every preset, and files of users on each of them and on none."""
    table = discovery.policies()
    presets = [table[name] for name in sorted(table)]
    files = [read_policy(POLICY.format(base=preset.name), f"on {preset.name}", discovery.policy) for preset in presets]
    alone = read_policy(POLICY.format(base="").replace('base = ""', ""), "alone", discovery.policy)
    everything = Policy(
        name="all",
        summary="",
        rules=(rule("all", Category.ALLOW, "all"),),
        findings=frozenset(),
        otherwise=Category.ALLOW,
    )
    return [*presets, *files, alone, everything]


@pytest.mark.parametrize("held", LEARNED.values(), ids=LEARNED)
@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_target_runs_nothing_in_a_format_that_it_does_not_name(target: Target, held: Format) -> None:
    for (dialect, op), _ in OPERATORS:
        for version in (1, 13, 28):
            refusal = target.refusal(dialect, op, version, {}, held.dtype)
            assert refusal is not None and str(held.dtype) in refusal.because
            assert target.may_refuse(dialect, op, version, held.dtype)


@pytest.mark.parametrize("held", LEARNED.values(), ids=LEARNED)
@pytest.mark.parametrize("policy", policies(), ids=lambda policy: policy.name)
def test_policy_allows_nothing_in_a_format_that_it_does_not_name(policy: Policy, held: Format) -> None:
    for key, row in OPERATORS:
        for lifts in (False, True):
            assert policy.judge(key, row, held.dtype, lifts=lifts).category is Category.DENY
        for one in policy.rules:
            assert one.category is Category.DENY or not one.fires(key, row, held.dtype, policy.formats)


def _operators() -> list[tuple[str, str, int]]:
    schemas = [(s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()]
    return sorted({*schemas, *((domain, op, 1) for domain, op in CONTRIB)})


def test_schemas_let_no_group_hold_a_format_that_the_reader_does_not_know(learned: str) -> None:
    solve.cache_clear()
    seen = 0
    for domain, op, opset in _operators():
        schema = find_schema(domain, op, opset)
        assert schema is not None
        inputs = []
        for variable in schema.inputs:
            held = sorted(schema.allowed.get(variable, {variable}))
            text = next((text for text in held if text == "tensor(float)"), held[0])
            inputs.append(None if "map" in text or "opaque" in text else parse_type_string(text))
        signature = solve(domain, op, opset, tuple(inputs), len(schema.outputs), None).signature
        known = HALF_FORMATS | QUANTIZED | {DType.FLOAT32, DType.FLOAT64}
        assert signature.legal <= known, (domain, op, opset)
        seen += bool(signature.legal & HALF_FORMATS)
    assert seen > 300  # the law has something to hold
    solve.cache_clear()


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: policy.name)
def test_conversion_to_a_format_that_nobody_names_changes_nothing(policy: Policy, learned: str) -> None:
    for strategy in sorted(discovery.strategies()):
        plan = mezzo.plan(model(), to=learned, policy=policy, target="any", strategy=strategy, io="follow")
        assert (low_nodes(plan), plan.edits) == ([], ())


def test_user_cannot_force_what_no_row_allows(learned: str) -> None:
    forced = {"include": ["op:*"], "io": "low", "fix_region": {"block": learned}}
    for name, value in forced.items():
        plan = mezzo.plan(model(), to=learned, target="any", policy="aggressive", **{name: value})  # type: ignore[arg-type]
        assert [node for node in low_nodes(plan) if not node.startswith(("input", "output"))] == []


def test_format_without_a_usual_target_asks_for_one(learned: str) -> None:
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(model(), to=learned)
    assert str(caught.value) == f"no target is the usual one for {learned}; name one with target"


def test_reasons_name_the_format(learned: str) -> None:
    plan = mezzo.plan(model(), to=learned, target="any", policy="tvm")
    node = plan.by_name["block/sm"]
    assert (node.rule, node.because) == (
        "unknown-format",
        f"no rule of the policy speaks of it in {LEARNED[learned].dtype}",
    )


def test_rows_that_name_a_format_are_heeded_in_it() -> None:
    judging = Policy(
        name="p",
        summary="",
        rules=(rule("r", Category.ALLOW, "r", ops=["MatMul"], formats=[FP6]),),
        findings=frozenset(),
    )
    assert judging.judge(("onnx", "MatMul"), None, FP6).category is Category.ALLOW
    assert judging.judge(("onnx", "Sin"), None, FP6).rule == "unknown-format"
    assert judging.judge(("onnx", "MatMul"), None, DType.FLOAT16).category is Category.DENY
    running = Target(
        name="t",
        summary="",
        listings=(
            KernelListing(dtype=FP6, kernels=kernels("onnx", "MatMul"), because="none", source="table", since=""),
        ),
    )
    assert running.refusal("onnx", "MatMul", 13, {}, FP6) is None
    assert running.refusal("onnx", "Sin", 13, {}, FP6) is not None
    assert running.refusal("onnx", "MatMul", 13, {}, INT2) is not None


def test_formats_of_a_whole_policy_or_target_may_be_named() -> None:
    plain = Policy(
        name="p", summary="", rules=(rule("r", Category.ALLOW, "r"),), findings=frozenset(), formats=frozenset({FP6})
    )
    assert plain.judge(("onnx", "Sin"), None, FP6).category is Category.ALLOW
    assert plain.judge(("onnx", "Sin"), None, DType.FLOAT16).category is Category.DENY
    assert Target(name="t", summary="", formats=frozenset({FP6})).refusal("onnx", "Sin", 7, {}, FP6) is None


def test_files_name_the_formats_they_speak_of() -> None:
    target = read_target('formats = "bf16"', "npu", discovery.target)
    refusal = target.refusal("onnx", "Sin", 7, {}, DType.FLOAT16)
    assert refusal is not None and refusal.because == "its table says nothing of f16"
    assert target.refusal("onnx", "Sin", 7, {}, DType.BFLOAT16) is None
    on_top = read_target('base = "any"\nformats = []', "npu", discovery.target)
    assert on_top.formats == frozenset()
    policy = read_policy('base = "aggressive"\nformats = ["fp16"]', "mine", discovery.policy)
    assert policy.judge(("onnx", "Sin"), None, DType.BFLOAT16).rule == "unknown-format"
    for read, finds in ((read_target, discovery.target), (read_policy, discovery.policy)):
        with pytest.raises(mezzo.InputError, match="formats is 'fp9'; choose one of fp16, bf16"):
            read('formats = ["fp16", "fp9"]', "mine", finds)  # type: ignore[operator]


def test_region_fixed_low_runs_only_what_the_target_runs() -> None:
    target = read_target('[[refuse]]\nop = "Softmax"', "npu", discovery.target)
    plan = mezzo.plan(model(), target=target, fix_region={"block": "fp16"})
    assert "block/mm" in low_nodes(plan) and "block/sm" not in low_nodes(plan)
    assert "node 'block/sm' cannot run in f16 here, so it stays f32" in plan.notes


def test_rule_about_overflow_asks_for_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    assert narrow_formats() & HALF_FORMATS == {DType.FLOAT16}
    monkeypatch.setitem(dtypes.FORMATS, FP6, LEARNED["fp6"])
    assert narrow_formats() == {DType.FLOAT16, FP6}
