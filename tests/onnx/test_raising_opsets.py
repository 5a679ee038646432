"""The opset rises around an operator that is raised: other nodes are converted, and stay where they were."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mezzo

_GELU = """<ir_version: 8, opset_import: ["" : {opset}]>
g (float[3,3,4,4] x) => (float[3,3,4,4] y)
<float root = {{1.4142135}}, float one = {{1}}, float half = {{0.5}}, int64[1] z = {{0}}, int64[2] r = {{3,-1}}>
{{ d = Div(x, root)  e = Erf(d)  f = Add(e, one)  g = Mul(x, f)  h = Mul(g, half)
   {rest} }}"""


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    converted = mezzo.convert(model, to="fp16").model
    assert isinstance(converted, onnx.ModelProto)
    onnx.checker.check_model(converted, full_check=True)
    return converted


def _gelu(rest: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(_GELU.format(rest=rest, opset=opset))


@pytest.mark.parametrize(
    ("rest", "opset", "wanted"),
    [
        pytest.param("y = Softmax(h)", 12, 20, id="softmax over all axes but the first"),
        pytest.param("y = Clip<min = -0.1>(h)", 10, 20, id="bounds"),
        pytest.param("b, k = Dropout(h)  y = Relu(b)  n = Identity(k)", 11, 11, id="mask, which gets another type"),
    ],
)
def test_nodes_around_an_operator_keep_their_meaning(rest: str, opset: int, wanted: int) -> None:
    model = _gelu(rest, opset)
    converted = _converted(model)
    assert converted.opset_import[0].version == wanted
    assert ("Gelu" in {node.op_type for node in converted.graph.node}) is (wanted == 20)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 3, 4, 4), np.float32)}
    theirs, ours = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, feeds)[0] for each in (model, converted)
    )
    np.testing.assert_allclose(ours, theirs, atol=4e-3)  # 4 eps of FP16, of numbers up to 1


def test_attention_is_along_the_last_axis() -> None:
    """A softmax before opset 13 is over all axes behind the first, if no other is stated."""
    text = """<ir_version: 8, opset_import: ["" : 12]>
    g (float[2,2,3,4] x, float[2,2,6,4] k, float[2,2,6,5] v) => (float[2,2,3,5] y)
    { t = Transpose<perm = [0,1,3,2]>(k)  a = MatMul(x, t)  p = Softmax(a)  y = MatMul(p, v) }"""
    for axis, is_raised in (("", False), ("<axis = 3>", True)):
        model = onnx.parser.parse_model(text.replace("Softmax", f"Softmax{axis}"))
        plan = mezzo.plan(model, to="fp16", target="onnxruntime-cuda")
        assert bool(plan.parts) is is_raised


def test_products_of_old_opsets_are_not_read_as_new_ones() -> None:
    """Before opset 7 they broadcast along an axis that a node names."""
    text = """<ir_version: 3, opset_import: ["" : 6]>
    g (float[4,4] x, float[4] w) => (float[4,4] y)
    { s = HardSigmoid<alpha = 0.16666667>(x)  y = Mul(x, s) }"""
    assert not mezzo.plan(onnx.parser.parse_model(text), to="fp16").parts
    assert mezzo.plan(onnx.parser.parse_model(text.replace(": 6]", ": 7]")), to="fp16").parts


def test_a_stated_shape_that_the_opset_of_an_operator_refutes_is_mended() -> None:
    model = _gelu("s = Shape(h)  a = Gather<axis=0>(s, z)  b = Concat<axis=0>(a, r)  y = Reshape(h, b)", 12)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, "length"]))
    onnx.checker.check_model(model, full_check=True)
    converted = _converted(model)
    assert "Gelu" in {node.op_type for node in converted.graph.node}
    assert len(converted.graph.output[0].type.tensor_type.shape.dim) == 3


_OWN_NORM = """m = ReduceMean<axes = [-1]>(h)  c = Sub(h, m)  s = Mul(c, c)  v = ReduceMean<axes = [-1]>(s)
  p = Add(v, half)  r = Sqrt(p)  n = Div(c, r)  a = Elu(x)  y = Add(n, a)"""


def test_nodes_stay_in_order() -> None:
    """Means get their axes as an operand at opset 18; those of a norm are gone, and move no other node."""
    converted = _converted(_gelu(_OWN_NORM, 17))
    ops = [node.op_type for node in converted.graph.node if node.op_type != "Cast"]
    assert ops == ["Gelu", "LayerNormalization", "Elu", "Add"]


def test_plan_of_an_opset_past_that_of_its_operators_is_replayed() -> None:
    """The norm takes opset 17, and Elu in BF16 takes 22, which gives means of the norm other operands."""
    source = _gelu(_OWN_NORM, 16)
    converted = mezzo.convert(source, to="bf16", target="any", exclude=["op:Erf"])
    assert converted.plan.version == 22
    assert mezzo.convert(source, plan=converted.plan).model == converted.model
