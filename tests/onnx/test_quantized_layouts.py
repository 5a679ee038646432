"""INT8 of products whose weights and biases lie in every way that ONNX has, with all corrections tried."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import mezzo


class Layout(NamedTuple):
    """Shapes of data, weights and bias, 8 samples being the axis "N"; which of the first two is the constant."""

    op: str
    data: tuple[int | str, ...]
    weights: tuple[int, ...]
    bias: tuple[int, ...] | None = None
    attributes: Mapping[str, Any] = {}
    is_weight_first: bool = False


LAYOUTS = {
    "convolution of one axis, in groups": Layout("Conv", ("N", 4, 12), (6, 2, 3), (6,), {"group": 2}),
    "convolution of three axes, per channel": Layout(
        "Conv", ("N", 4, 5, 5, 5), (8, 1, 3, 3, 2), (8,), {"group": 4, "strides": [2, 1, 1]}
    ),
    "padded as sizes ask": Layout("Conv", ("N", 4, 6, 6), (6, 4, 3, 3), (6,), {"auto_pad": "SAME_UPPER"}),
    "Gemm": Layout("Gemm", ("N", 8), (8, 5), (5,)),
    "Gemm, a row as bias": Layout("Gemm", ("N", 8), (8, 5), (1, 5)),
    "Gemm, a bias per sample and channel": Layout("Gemm", (8, 8), (8, 8), (8, 8)),
    "Gemm, a bias per sample": Layout("Gemm", (8, 8), (8, 8), (8, 1)),
    "Gemm, one number as bias": Layout("Gemm", ("N", 8), (8, 5), (1,)),
    "Gemm, weights transposed": Layout("Gemm", ("N", 8), (5, 8), (5,), {"transB": 1}),
    "Gemm, data transposed": Layout("Gemm", (8, "N"), (8, 5), (5,), {"transA": 1}),
    "MatMul of rows of sequences": Layout("MatMul", ("N", 6, 8), (8, 5)),
    "MatMul of a matrix for each head": Layout("MatMul", ("N", 3, 6, 8), (3, 8, 5)),
    "MatMul of one row": Layout("MatMul", (256,), (256, 64)),
    "MatMul by one column": Layout("MatMul", ("N", 8), (8,)),
    "MatMul, weights first": Layout("MatMul", (8, "N"), (5, 8), is_weight_first=True),
}


def network(layout: Layout, opset: int) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    spread = np.sqrt(np.prod(layout.weights[1:]) or 1)
    held = {"w": rng.standard_normal(layout.weights) / spread}
    if layout.bias is not None:
        held["b"] = rng.standard_normal(layout.bias)
    inputs = ["w", "x"] if layout.is_weight_first else ["x", "w"]
    node = helper.make_node(layout.op, [*inputs, *[*held][1:]], ["y"], "product", **layout.attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, layout.data)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(numbers.astype(np.float32), name) for name, numbers in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_quantized_and_corrected(name: str, target: str) -> None:
    layout = LAYOUTS[name]
    rng = np.random.default_rng(1)
    shape = [8 if size == "N" else int(size) for size in layout.data]
    data = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(6)]
    for opset in (12, 17):
        result = mezzo.convert(
            network(layout, opset), to="int8", target=target, data=data, correct="smooth,weights,bias", check=False
        )
        assert result.measured is not None and result.measured.comparison is not None
        (output,) = result.measured.comparison.outputs
        # 8 bits of data and weights each err by a hundredth or so of what they hold.
        assert output.relative_l2.estimate < 0.05, f"opset {opset}"
        runs_none = target == "openvino-cpu" and layout.is_weight_first
        count = sum(node.op_type == "DequantizeLinear" for node in result.model.graph.node)
        assert (count >= 2) is not runs_none, f"opset {opset}"
