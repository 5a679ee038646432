"""Quantizing what mezzo quantized changes nothing more, under every policy that quantizes, in every mode."""

import random

import numpy as np
import onnx
import pytest
from random_models import random_model
from sweeps import swept

import mezzo

# Under seed 10 a constant has one reader left once others read its quantized form, and could be multiplied into.
SEEDS = (10, 1, 4)[: swept(3)]


def batches(model: onnx.ModelProto, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    fed = {port.name: port.type.tensor_type for port in model.graph.input}

    def draw(kind: onnx.TypeProto.Tensor) -> np.ndarray:
        shape = [dim.dim_value or 8 for dim in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            return rng.standard_normal(shape).astype(np.float32)
        return rng.integers(0, 2, shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))

    return [{name: draw(kind) for name, kind in fed.items()} for _ in range(6)]


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("policy", ["balanced", "aggressive"])
@pytest.mark.parametrize("mode", ["smart", "full"])
def test_quantizing_twice_changes_nothing_more(mode: str, policy: str, target: str) -> None:
    quantized = 0
    for seed in SEEDS:
        model = random_model(random.Random(seed), 14, is_tame=True)
        asked = {"to": "int8", "target": target, "policy": policy, "quantize_mode": mode, "data": batches(model, seed)}
        asked["check"] = False
        once = mezzo.convert(model, **asked).model
        twice = mezzo.convert(once, **asked).model
        assert twice.graph == once.graph, f"seed {seed}"
        assert twice.opset_import == once.opset_import, f"seed {seed}"
        quantized += sum(node.op_type == "DequantizeLinear" for node in once.graph.node)
    assert quantized or mode == "smart", "nothing was quantized"
