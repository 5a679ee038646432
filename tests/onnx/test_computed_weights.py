"""Weights that are computed from smaller constants run as integers; what stays in floats is stored as it was."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from sweeps import swept

import mezzo
from mezzo.conversion.recall import read_record
from mezzo.plugins import discovery
from mezzo.report.layout.names import spell_precision

# Of nodes in a result, with their names, scales of one number and zero points; columns have a scale and a zero point.
_BYTES_A_NODE, _BYTES_A_COLUMN = 300, 5
_TEXT = """<ir_version: 10, opset_import: ["" : 17]>
g (float[N,64] x) => (float[N,64] y)
<float[1,64] s = {SCALES}, float[1,64] t = {SCALES}, int64[2] dims = {64,64}>
{
   [ca] c = Cast<to = 1>(q)
   [mu] w = Mul(c, s)
   [first] h = MatMul(x, w)
   [cb] d = Cast<to = 1>(p)
   [mv] v = Mul(d, t)
   [second] y = MatMul(h, v)
}"""


def of_two_products(scaling: str = "[mu] w = Mul(c, s)") -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    text = _TEXT.replace("SCALES", ",".join(["0.01"] * 64)).replace("[mu] w = Mul(c, s)", scaling)
    model = onnx.parser.parse_model(text)
    for name in ("q", "p"):
        array = rng.integers(-127, 128, (64, 64)).astype(np.int8)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_weight_of_a_product_in_integers_is_folded_and_another_is_left_as_it_was() -> None:
    data = {"x": np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)}
    result = mezzo.convert(of_two_products(), to="int8", target="onnxruntime-cpu", data=data, check=False,
                           correct="none", exclude=("first",))  # fmt: skip
    assert (
        mezzo.show(result.model)
        == """input  x: f32[N,64]
weight v_quantized: i8[64,64]
weight v_scale: f32[64]
weight v_zero_point: i8[64]
weight h_scale: f32[]
weight h_zero_point: u8[]
weight q: i8[64,64]
weight s: f32[1,64]
v_dequantized: f32[64,64] = DequantizeLinear(v_quantized, v_scale, v_zero_point){axis=1}
w_Cast: f32[64,64] = Cast(q){to=f32}
w: f32[64,64] = Mul(w_Cast, s)
h: f32[N,64] = MatMul(x, w)
h_quantized: u8[N,64] = QuantizeLinear(h, h_scale, h_zero_point)
h_dequantized: f32[N,64] = DequantizeLinear(h_quantized, h_scale, h_zero_point)
y: f32[N,64] = MatMul(h_dequantized, v_dequantized)
output y
"""
    )


@pytest.mark.parametrize(
    "step", ["e = Sub(c, s)", "e = Div(c, s)", "e = Reshape(c, dims)", "e = Expand(c, dims)", "e = Abs(c)"]
)
def test_record_of_a_result_lists_every_operator_that_computes_a_weight(step: str) -> None:
    model = of_two_products(f"[step] {step} [mu] w = Mul(e, s)")
    data = {"x": np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)}
    result = mezzo.convert(model, to="int8", target="onnxruntime-cpu", data=data, check=False,
                           correct="none", exclude=("first",))  # fmt: skip
    source = discovery.frontend_of(result.model).open(result.model, trust_external_paths=False, progress=None)
    record, fault = read_record(source)
    assert fault is None
    op = step.removeprefix("e = ").partition("(")[0]
    assert record is not None and {"h_quantize", f"w_{op}"} < {*record.provenance.added}


def spelled(seed: int) -> onnx.ModelProto:
    """Products whose weights are stored in eight bits, and computed in one way or another."""
    rng = np.random.default_rng(seed)
    width, made = int(rng.choice([48, 160])), "x"
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {"axes": np.array([width, width], np.int64)}

    def add(op: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], name=f"{op}_{len(nodes)}", **attributes))
        return str(nodes[-1].output[0])

    for place in range(int(rng.integers(1, 4))):
        kind = rng.choice([np.int8, np.uint8])
        numbers = rng.integers(-127, 128, (width, width)) + (128 if kind is np.uint8 else 0)
        weights[f"q{place}"] = numbers.astype(kind)
        columns = (width,) if rng.random() < 0.5 else (1, width) if rng.random() < 0.5 else ()
        weights[f"s{place}"] = rng.uniform(0.5, 2, columns).astype(np.float32) / 500
        weights[f"z{place}"] = np.float32(128 if kind is np.uint8 else 0)
        weight = add("Cast", f"q{place}", to=TensorProto.FLOAT)
        weight = add("Sub", weight, f"z{place}") if kind is np.uint8 else weight
        weight = add("Mul", weight, f"s{place}")
        if rng.random() < 0.3:
            weight = add("Transpose", weight, perm=[1, 0])
        if rng.random() < 0.3:
            weight = add("Reshape", add("Reshape", weight, "flat"), "axes")
        made = add("MatMul", made, weight) if rng.random() < 0.7 else add("Gemm", made, weight)
    weights["flat"] = np.array([-1], np.int64)
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name in ("x", made)]
    graph = helper.make_graph(nodes, "spelled", ports[:1], ports[1:], initializers)
    opset = int(rng.choice([11, 13, 17]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("seed", range(swept(16)))
def test_result_is_no_larger_than_the_model_whatever_stays_in_floats(seed: int) -> None:
    rng, model = np.random.default_rng(seed + 100), spelled(seed)
    products = [node.name for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    excluded = [name for name in products if rng.random() < 0.4][: len(products) - 1]
    width = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    data = {"x": rng.standard_normal((64, width)).astype(np.float32)}
    target = str(rng.choice(["onnxruntime-cpu", "openvino-cpu"]))
    result = mezzo.convert(model, to="int8", target=target, data=data, check=False, correct="none",
                           exclude=tuple(excluded), provenance=False)  # fmt: skip
    integers = {node.name for node in result.plan.nodes if spell_precision(node.precision) == "int8"} & {*products}
    assert integers == {*products} - {*excluded}, f"seed {seed}"
    allowed = _BYTES_A_NODE * len(result.model.graph.node) + _BYTES_A_COLUMN * width * len(products)
    assert result.model.ByteSize() <= model.ByteSize() + allowed, f"seed {seed}"
    again = mezzo.convert(model, plan=result.plan, check=False, provenance=False)
    assert again.model.SerializeToString() == result.model.SerializeToString(), f"seed {seed}"
