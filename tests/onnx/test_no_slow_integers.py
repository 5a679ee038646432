"""A product whose weight is stored in INT8 runs as a kernel of integers in ONNX Runtime's own graph.

What it does not fuse it computes in floats, from weights that it dequantizes at each run.
"""

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import mezzo

_PRODUCTS = {
    "matmul": "a = MatMul (x, A)",
    "matmul and bias": "m = MatMul (x, A) a = Add (m, v)",
    "gemm": "a = Gemm (x, A, v)",
    "transposed gemm": "a = Gemm <transB = 1> (x, A, v)",
}
_BEHIND = {
    "relu": "b = Relu (a)",
    "clip": "b = Clip (a, zero, six)",
    "nothing": "b = Identity (a)",
    "relu and sigmoid": "r = Relu (a) b = Sigmoid (r)",
}
_READERS = {
    "an output": "y = Identity (b)",
    "a float matmul": "[last] y = MatMul (b, B)",
    "a quantized matmul": "y = MatMul (b, B)",
}


@pytest.mark.parametrize(
    ("product", "behind", "reader"), [*itertools.product(_PRODUCTS, _BEHIND, _READERS)], ids=lambda name: str(name)
)
def test_no_weight_is_dequantized_at_each_run(product: str, behind: str, reader: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>'
        f"g (float[n,64] x) => (float[n,64] y) {{ {_PRODUCTS[product]} {_BEHIND[behind]} {_READERS[reader]} }}"
    )
    rng = np.random.default_rng(5)
    for name, shape in (("A", (64, 64)), ("B", (64, 64)), ("v", (64,))):
        array = rng.standard_normal(shape).astype(np.float32) / np.float32(8)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for name, number in (("zero", 0.0), ("six", 6.0)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    data = {"x": rng.standard_normal((512, 64)).astype(np.float32)}
    exclude = ("last",) if "[last]" in _READERS[reader] else ()
    path = tmp_path / "low.onnx"
    mezzo.convert(
        model, path, to="int8", target="onnxruntime-cpu", data=data, exclude=exclude, correct="none", check=False
    )
    stored = {tensor.name for tensor in onnx.load(path).graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = f"{tmp_path}/run.onnx", 4
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    graph = onnx.load(f"{tmp_path}/run.onnx").graph
    ran = {node.op_type for node in graph.node}
    dequantized = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    assert "A_quantized" in stored and ran & {"MatMulIntegerToFloat", "QGemm", "QLinearMatMul"}
    assert not dequantized & stored
