"""A law of quantized units over random models: no cast comes between a dequantizer and the product that reads it."""

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from random_models import random_model
from sweeps import swept

import mezzo
from mezzo.plugins.discovery import policies

_PRODUCTS = ("Conv", "Gemm", "MatMul")
_MODELS = swept(40)
_FEWEST = swept(20)  # products that make a law worth its name
# A convolution and a product between quantizers, and two products that hand on floats, with an activation behind one.
_HALF = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3,8,8] x) => (float[2,5] y)
<float s = {0.05}, uint8 z = {128}, int8[8,3,3,3] w1, int8[8,6] w2, int8[6,7] w3, int8[7,5] w4, float ws = {0.01},
 int8 wz = {0}, float[6] b2, float half = {0.5}, float one = {1.0}, float root = {1.41421}>
{
    q1 = QuantizeLinear(x, s, z)
    d1 = DequantizeLinear(q1, s, z)
    v1 = DequantizeLinear(w1, ws, wz)
    c = Conv(d1, v1)
    r = Relu(c)
    q2 = QuantizeLinear(r, s, z)
    d2 = DequantizeLinear(q2, s, z)
    mean = GlobalAveragePool(d2)
    q3 = QuantizeLinear(mean, s, z)
    d3 = DequantizeLinear(q3, s, z)
    flat = Flatten(d3)
    v2 = DequantizeLinear(w2, ws, wz)
    m = MatMul(flat, v2)
    h = Add(m, b2)
    scaled = Div(h, root)
    erf = Erf(scaled)
    more = Add(erf, one)
    twice = Mul(h, more)
    gelu = Mul(twice, half)
    q4 = QuantizeLinear(gelu, s, z)
    d4 = DequantizeLinear(q4, s, z)
    v3 = DequantizeLinear(w3, ws, wz)
    k = MatMul(d4, v3)
    t = Tanh(k)
    q5 = QuantizeLinear(t, s, z)
    d5 = DequantizeLinear(q5, s, z)
    v4 = DequantizeLinear(w4, ws, wz)
    y = MatMul(d5, v4)
}
"""
_INTEGER = ("QLinear", "MatMulInteger", "QGemm")


def quantize_factors(model: onnx.ModelProto, rng: random.Random, share: float) -> set[str]:
    """Put quantizers before factors of products of the main graph, in place. Returns the results of those products
    all of whose factors have one.
    """
    graph, nodes, results = model.graph, [], set()
    graph.initializer.append(numpy_helper.from_array(np.float32(0.05), "scale"))
    graph.initializer.append(numpy_helper.from_array(np.uint8(128), "zero"))
    for number, node in enumerate(graph.node):
        if node.op_type in _PRODUCTS and node.domain == "":
            chosen = [operand for operand in range(2) if rng.random() < share]
            for operand in chosen:
                name = f"factor {number} {operand}"
                nodes.append(helper.make_node("QuantizeLinear", [node.input[operand], "scale", "zero"], [f"{name} q"]))
                nodes.append(helper.make_node("DequantizeLinear", [f"{name} q", "scale", "zero"], [name]))
                node.input[operand] = name
            if len(chosen) == 2:
                results.add(node.output[0])
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return results


def makers(model: onnx.ModelProto) -> Mapping[str, onnx.NodeProto]:
    return {name: node for node in model.graph.node for name in node.output}


@pytest.mark.parametrize("to", ["fp16", "bf16"])
@pytest.mark.parametrize("policy", [*policies()])
def test_no_cast_comes_between_a_dequantizer_and_its_product(to: str, policy: str) -> None:
    units = 0
    for seed in range(_MODELS // 2):
        model = random_model(random.Random(seed), 12)
        results = quantize_factors(model, random.Random(seed), 0.9)
        onnx.checker.check_model(model)
        converted = mezzo.convert(model, to=to, policy=policy).model
        found = makers(converted)
        for result in results:
            factors = [found[name].op_type for name in found[result].input[:2]]
            assert factors == ["DequantizeLinear"] * 2, f"seed {seed}: {result!r} reads {factors}"
            units += 1
    assert units >= _FEWEST // 2, "the random models hold too few products"


def test_other_products_run_low_beside_quantized_ones() -> None:
    low = 0
    for seed in range(_MODELS):
        model = random_model(random.Random(seed), 12)
        quantize_factors(model, random.Random(seed), 0.3)
        converted = mezzo.convert(model, to="bf16").model
        found = makers(converted)
        for node in converted.graph.node:
            if node.op_type in _PRODUCTS:
                low += any(name in found and found[name].op_type == "Cast" for name in node.input[:2])
    assert low >= _FEWEST, "nothing runs low beside quantized products"


def half_quantized() -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(_HALF)
    rng = np.random.default_rng(1)
    for port in model.graph.value_info:  # weights of which the text gives no numbers
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        is_whole = port.type.tensor_type.elem_type == onnx.TensorProto.INT8
        numbers = rng.integers(-100, 100, shape).astype(np.int8) if is_whole else rng.standard_normal(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(numbers, port.name))
    del model.graph.value_info[:]
    return model


def integer_kernels(model: onnx.ModelProto, path: Path) -> int:
    """How many nodes of the graph that ONNX Runtime makes compute in integers."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return sum(node.op_type.startswith(_INTEGER) for node in onnx.load(path).graph.node)


@pytest.mark.parametrize("policy", [*policies()])
def test_integer_kernels_of_the_runtime_are_kept_under_every_policy(policy: str, tmp_path: Path) -> None:
    model = half_quantized()
    before = integer_kernels(model, tmp_path / "before.onnx")
    assert before >= 3, "the network as it came runs in integers"
    converted = mezzo.convert(model, to="fp16", policy=policy).model
    assert integer_kernels(converted, tmp_path / "after.onnx") >= before
