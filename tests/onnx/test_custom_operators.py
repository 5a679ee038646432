"""Operators that ONNX does not define: ONNX Runtime's, in whichever of its domains they are written, and anybody's."""

from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.parser
import pytest
from loading import loads
from onnx import TensorProto, helper

import mezzo
from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import DType
from mezzo.onnx.schema.contrib import CONTRIB
from mezzo.onnx.schema.custom_operators import is_undefined, with_private_domain
from mezzo.onnx.schema.types import TO_ONNX, parse_type_string
from mezzo.plugins import discovery
from mezzo.tables.files.targetfile import read_target

_OPSET = 13
# Their ports hold floats of known types only as sparse tensors, or none at all.
_UNTYPED = {"SparseToDenseMatMul"}


def _element(allowed: frozenset[str]) -> int:
    """FP32 where a port may hold it, else any type that it may."""
    held = "tensor(float)" if "tensor(float)" in allowed else min(allowed)
    dtype = parse_type_string(held)
    assert isinstance(dtype, DType)
    return TO_ONNX[dtype]


def _model(domain: str, op: str) -> onnx.ModelProto:
    """A product before and behind the operator, which has all its ports."""
    row = next(CONTRIB[home, op] for home in ("com.microsoft", "") if (home, op) in CONTRIB)
    allowed = row.allowed()
    ports = [[port.rstrip("*") for port in side] for side in (row.inputs, row.outputs)]
    elements = [[_element(allowed.get(port, frozenset({port}))) for port in side] for side in ports]
    names = [[f"{prefix}{at}" for at in range(len(side))] for prefix, side in zip("io", ports, strict=True)]
    inputs = [helper.make_tensor_value_info(n, e, ["N", 4]) for n, e in zip(names[0], elements[0], strict=True)]
    outputs = [helper.make_tensor_value_info(n, e, None) for n, e in zip(names[1], elements[1], strict=True)]
    operands = list(names[0])
    nodes = []
    if elements[0][0] == TensorProto.FLOAT:
        nodes.append(helper.make_node("MatMul", ["i0", "w"], ["before"], "before"))
        operands[0] = "before"
    nodes.append(helper.make_node(op, operands, names[1], "node", domain=domain))
    if elements[1][0] == TensorProto.FLOAT:
        nodes.append(helper.make_node("MatMul", ["o0", "w"], ["after"], "after"))
        outputs.append(helper.make_tensor_value_info("after", TensorProto.FLOAT, None))
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.eye(4, dtype=np.float32).ravel())
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _has_tensors_only(op: str) -> bool:
    return op not in _UNTYPED and not onnx.defs.has(op, _OPSET, "")


@pytest.mark.parametrize("policy", ["balanced", "aggressive"])
@pytest.mark.parametrize("op", sorted({op for _, op in CONTRIB if _has_tensors_only(op)}))
def test_operator_of_the_runtime_plans_alike_in_both_of_its_domains(op: str, policy: str) -> None:
    """Whichever it is registered in: producers mix them up, and runtimes other than ONNX Runtime take either."""
    plans = [mezzo.plan(_model(domain, op), to="fp16", policy=policy, opset="keep") for domain in ("", "com.microsoft")]
    told = [[(n.name, n.op, n.precision, n.category, n.rule) for n in plan.nodes] for plan in plans]
    assert told[0] == told[1]
    assert any(name == "node" for name, *_ in told[0]) or "custom" not in str(told[0])


def test_every_operator_that_onnxruntime_adds_to_the_domain_of_onnx_is_known() -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state", reason="onnxruntime is not installed")
    added = {s.name for s in state.get_all_operator_schema() if not s.domain and not onnx.defs.has(s.name, 1, "")}
    firsts = {name for name in added if any(s.name == name and s.since_version == 1 for s in _schemas(state))}
    assert firsts - {op for domain, op in CONTRIB if not domain} == set()


def _schemas(state: Any) -> list[Any]:
    return [s for s in state.get_all_operator_schema() if not s.domain]


_NCHWC = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]>
g (float[1,8,4,4] x) => (float[1,8,4,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
{
   [m1] a = MatMul(x, w)
   [blocks] b = com.microsoft.nchwc.ReorderInput(a)
   [relu] r = Relu(b)
   [back] c = com.microsoft.nchwc.ReorderOutput <channels = 8> (r)
   [m2] y = MatMul(c, w)
}
"""


def test_runtime_tells_types_that_the_model_does_not_state() -> None:
    model = onnx.parser.parse_model(_NCHWC)
    if not loads(model):
        pytest.skip("this ONNX Runtime has no blocked layout")
    made = mezzo.convert(model, to="fp16", target="any", opset="keep")
    precisions = {node.name: str(node.precision.compute) for node in made.plan.nodes if node.kind == "op"}
    assert precisions == {"m1": "f16", "blocks": "f32", "relu": "f32", "back": "f32", "m2": "f16"}
    assert loads(made.model)
    x = np.random.default_rng(0).normal(size=(1, 8, 4, 4)).astype(np.float32)
    assert mezzo.compare(
        model, made.model, {"x": x}, max_error=4 * 2**-11
    ).verdict.is_same  # two products, rounded twice each


def test_note_names_what_nobody_defines_and_what_to_do() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[2,2] x) => (float[2,2] y) { [p] a = Plug(x) y = Relu(a) }'
    )
    made = mezzo.convert(onnx.parser.parse_model(text), to="fp16")
    notes = [note for note in made.summary.notes if "no schema defines" in note]
    assert notes == ["no schema defines operator Plug (1: 'p'), so it stays in f32; include=\"op:Plug\" runs it low"]


def test_row_of_a_target_lets_a_custom_operator_follow_its_neighbours() -> None:
    target = read_target('[[custom]]\nop = "acme:Plug"\nformat = "fp16"\nsource = "2.1"', "box", discovery.target)
    text = """
    <ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
    g (float[2,2] x) => (float[2,2] y)
    <float[2,2] w = {1,2,3,4}, float[2,2] b>
    { [m1] a = MatMul(x, w) [p] b = acme.Plug(a) [m2] y = MatMul(b, w) }
    """
    model = onnx.parser.parse_model(text)
    for to, held in (("fp16", ("f16", "untroubled")), ("bf16", ("f32", "custom-operator"))):
        plug = next(node for node in mezzo.plan(model, to=to, target=target).nodes if node.name == "p")
        assert (str(plug.precision.compute), plug.rule) == held


def test_all_but_undefined_operators_is_checked_as_ever() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]>\ng (float[2,2] x) => (float[2,2] y) '
    model = onnx.parser.parse_model(text + "{ a = Plug(x) y = Relu<alpha=1.0>(a) }")
    with pytest.raises(ModelError, match="Unrecognized attribute: alpha for operator Relu"):
        mezzo.convert(model)
    model = onnx.parser.parse_model(text + "{ a = Plug(x) y = Concat<axis=0>(a, z) }")
    with pytest.raises(ModelError, match="'z'"):
        mezzo.convert(model)


def test_private_domain_takes_no_operator_that_is_defined_or_a_function() -> None:
    assert is_undefined("", "Plug", 17) and is_undefined("ai.onnx.ml", "Plug", 3)
    assert not is_undefined("", "Relu", 17) and not is_undefined("acme", "Plug", 1)
    assert is_undefined("", "Gelu", 19) and not is_undefined("", "Gelu", 20)
    text = """
    <ir_version: 8, opset_import: ["" : 17, "f" : 1]>
    g (float[2,2] x) => (float[2,2] y) { a = f.Own(x) y = Relu(a) }
    <domain: "f", opset_import: ["" : 17]>
    Own (x) => (y) { y = Plug(x) }
    """
    moved = with_private_domain(onnx.parser.parse_model(text))
    assert moved is not None
    assert [node.domain for node in moved.functions[0].node] == ["mezzo.custom"]
    assert [node.domain for node in moved.graph.node] == ["f", ""]
    onnx.checker.check_model(moved)
