"""A law of quantized units over random models: no cast comes between a dequantizer and the product that reads it."""

import random
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from random_models import random_model

import mezzo

_PRODUCTS = ("Conv", "Gemm", "MatMul")
_MODELS = 40
_FEWEST = 20  # products that make a law worth its name


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
@pytest.mark.parametrize("policy", ["balanced", "conservative"])
def test_no_cast_comes_between_a_dequantizer_and_its_product(to: str, policy: str) -> None:
    units = 0
    for seed in range(_MODELS):
        model = random_model(random.Random(seed), 12)
        results = quantize_factors(model, random.Random(seed), 0.9)
        onnx.checker.check_model(model)
        converted = mezzo.convert(model, to=to, policy=policy).model
        found = makers(converted)
        for result in results:
            factors = [found[name].op_type for name in found[result].input[:2]]
            assert factors == ["DequantizeLinear"] * 2, f"seed {seed}: {result!r} reads {factors}"
            units += 1
    assert units >= _FEWEST, "the random models hold too few products"


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
