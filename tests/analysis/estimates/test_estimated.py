"""What estimates say of a plan: findings about makers and readers in words, what data may do about them, and notes."""

import onnx
import onnx.parser
import pytest

from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.estimated import RULES, notes_of
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of
from mezzo.planner.verdicts.findings import lift_rules
from mezzo.plugins.discovery import policy
from mezzo.tables.policy import Category, Evidence, Finding, Lifting, NodeVerdict

_X = "float[4,4] x"
_OFFSET = "[off] c = Add(x, hundred) [mid] m = ReduceMean(c, last) [sub] y = Sub(c, m)"
_COARSE = "'c', about 100 in size, is off by 0.024 in f16 where {!r} tolerates 0.0023"


def view(body: str, inputs: str = _X, low: DType = DType.FLOAT16, **given: tuple[float, float]) -> StructureView:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y) <float hundred = {{100}}, '
        f"int64[1] last = {{-1}}, float most = {{60000}}, float[1] past = {{1e6}}> {{ {body} }}"
    )
    graph = open_model(model).read(low).graph
    limited = frozenset(v for v in graph.constants if graph.values[v].name == "past")
    return StructureView(graph=graph, rows=rows_of(graph), low=FORMATS[low], limited=limited, assumed=given)


def overflows(seen: StructureView) -> list[Finding]:
    return list(RULES[0].findings(seen))


def coarse(seen: StructureView) -> list[Finding]:
    return list(RULES[1].findings(seen))


def told(seen: StructureView, findings: list[Finding]) -> list[tuple[str, str, str | None, Lifting | None]]:
    nodes = seen.graph.nodes
    return [
        (nodes[f.node].name, f.because, None if f.cause is None else nodes[f.cause].name, f.lifting) for f in findings
    ]


def test_who_makes_and_who_reads_what_may_overflow_is_told_the_size() -> None:
    seen = view("[sq] a = Mul(x, x) [neg] y = Neg(a)", x=(0.0, 300.0))
    size = "'a' may reach 9e+04, past f16's 65504"
    read = "reads 'a', which may reach 9e+04, past f16's 65504"
    rest = "'y' may reach 9e+04, past f16's 65504"
    assert told(seen, overflows(seen)) == [
        ("sq", size, None, None), ("neg", read, "sq", None), ("neg", rest, None, None),
    ]  # fmt: skip
    assert {finding.rule for finding in overflows(seen)} == {"may-overflow"}


@pytest.mark.parametrize(("top", "count"), [(255.9, 0), (256.0, 2)])
def test_a_value_overflows_from_where_it_rounds_to_infinity(top: float, count: int) -> None:
    seen = view("[sq] a = Mul(x, x) [tan] y = Tanh(a)", x=(0.0, top))
    assert len(overflows(seen)) == count


def test_what_runs_over_in_a_constant_or_an_input_is_told_to_readers_alone() -> None:
    seen = view("[tan] y = Tanh(x)", x=(-1e5, 0.0))
    assert told(seen, overflows(seen)) == [
        ("tan", "reads 'x', which may reach 1e+05, past f16's 65504", None, None),
    ]  # fmt: skip


def test_a_constant_that_is_stored_within_bounds_overflows_nothing() -> None:
    assert not overflows(view("[add] a = Add(x, past) [tan] y = Tanh(a)"))


def test_who_makes_and_who_reads_what_is_too_coarse_is_told_what_it_errs_by() -> None:
    seen = view(_OFFSET, x=(-1.0, 1.0))
    found = told(seen, coarse(seen))
    assert ("off", _COARSE.format("sub"), "sub", None) in found
    assert ("sub", _COARSE.format("sub"), "off", None) in found
    assert {finding.rule for finding in coarse(seen)} == {"too-coarse"}


def test_no_data_lifts_what_is_said_of_whole_numbers() -> None:
    seen = view("[cast] f = Cast<to = 1>(i) [sin] y = Sin(f)", "int64[4] i", i=(0.0, 4000.0))
    assert [(name, lifting) for name, _, _, lifting in told(seen, coarse(seen))] == [("sin", Lifting.NEVER)]


def test_no_data_lifts_what_is_said_of_loop_state() -> None:
    seen = view(
        "n = Constant<value_int = 3000>() y = Loop(n, , x) <body = b (int64 i, bool go, float[4,4] s) => "
        "(bool more, float[4,4] t) <float c = {0.125}> { more = Identity(go) t = Add(s, c) }>"
    )
    found = told(seen, coarse(seen))
    assert found and all(lifting is Lifting.NEVER for *_, lifting in found), found


def test_notes_name_some_inputs_and_operators_and_count_the_rest() -> None:
    inputs = ", ".join(f"float[4,4] {name}" for name in "abcdef")
    seen = view("d = Det(a) e = Det(b) f1 = DFT(q) y = Add(d, e)", inputs + ", float[2,4,2] q")
    taken, strange = notes_of(seen)
    listed = ", ".join(f"{name!r} unit scale (-4 to 4)" for name in "abcd")
    assert taken == (
        f"where no data shows it, inputs are taken to hold: {listed} and 3 more; --assume NAME=LO..HI says otherwise"
    )
    assert strange == ("sizes are not followed through DFT, Det (2): what they make is neither suspected nor cleared")


def test_rules_are_lifted_of_operators_that_fit_and_of_no_others() -> None:
    graph = view("[one] a = Exp(x) [two] b = Exp(a) [three] c = Relu(b) [shape] n = Shape(c) y = Cast<to = 1>(n)").graph
    plain = NodeVerdict(category=Category.DENY, rule="exponential", because="grows fast")
    verdicts = [plain] * len(graph.nodes)
    fits, tight = Evidence("holds 0 to 2", fits=True), Evidence("holds 0 to 1e6", fits=False)
    lifted = {"gone": fits, "one": fits, "two": tight, "three": fits, "shape": fits, "input x": fits}
    lift_rules(graph, verdicts, policy("balanced"), DType.FLOAT16, lifted)
    changed = {node.name: v for node, v in zip(graph.nodes, verdicts, strict=True) if v is not plain}
    assert set(changed) == {"one"} and graph.nodes[graph.by_name["one"]].kind is Kind.OP
    assert changed["one"].category is not Category.DENY
    assert changed["one"].lift is not None and changed["one"].lift.because == "holds 0 to 2"


def test_notes_of_a_model_without_inputs_tell_what_was_not_followed() -> None:
    assert notes_of(view("c = Identity(hundred) y = Neg(c)", "")) == ()
    (strange,) = notes_of(view("c = Expand(hundred, k) d = Det(c) y = Neg(d)".replace("k", "last"), ""))
    assert strange.startswith("sizes are not followed through Det:")


def test_ranges_lift_what_may_overflow_and_outputs_what_is_too_coarse() -> None:
    assert [(rule.name, rule.lifting) for rule in RULES] == [
        ("may-overflow", Lifting.BY_RANGES), ("too-coarse", Lifting.BY_OUTPUTS),
    ]  # fmt: skip


def test_an_output_that_vanishes_is_said_and_no_other() -> None:
    """1e-9 of unit size is a sixtieth of FP16's smallest step, of 6e-8; 1e-5 is 168 of them, and BF16 holds both."""
    fading = "c = Constant<value_float = {}>() y = Mul(x, c)"
    said = [note for note in notes_of(view(fading.format("0.000000001"))) if "'y'" in note]
    assert said == [
        "'y' seems to be about 1e-09 in size, of which f16 keeps next to nothing; whether it is so, data shows"
    ]
    for scale, low in (("0.00001", DType.FLOAT16), ("0.000000001", DType.BFLOAT16)):
        assert not [note for note in notes_of(view(fading.format(scale), low=low)) if "'y'" in note]
