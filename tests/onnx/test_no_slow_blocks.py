"""A weight in blocks is read by a kernel for blocks in the runtime's own graph, whatever is around its readers.

What a runtime does not fuse it dequantizes, at each run or in memory.
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

_BLOCK_OPS = frozenset({"GatherBlockQuantized", "MatMulNBits"})
_COMPRESSED = frozenset({"FullyConnectedCompressed", "GatherCompressed"})

# Weights are named in capitals: their shapes.
_GRAPHS = {
    "relu between": ("a = MatMul (x, A) b = Relu (a) y = MatMul (b, B)", {"A": (256, 256), "B": (256, 256)}),
    "bias and relu between": (
        "a = MatMul (x, A) c = Add (a, v) b = Relu (c) y = MatMul (b, B)",
        {"A": (256, 256), "v": (256,), "B": (256, 256)},
    ),
    "residual": ("a = MatMul (x, A) y = Add (a, x)", {"A": (256, 256)}),
    "one reads both": (
        "a = MatMul (x, A) b = MatMul (x, B) s = Sigmoid (a) y = Mul (s, b)",
        {"A": (256, 256), "B": (256, 256)},
    ),
    # No runtime joins their matmuls after conversion, so their storages need not agree: a kernel for each is counted.
    "query, key and value": (
        "q = MatMul (x, A) k = MatMul (x, B) v = MatMul (x, C) t = Transpose <perm = [TURNED]> (k) s = MatMul (q, t)"
        " p = Softmax (s) y = MatMul (p, v)",
        {"A": (256, 256), "B": (256, 256), "C": (256, 256)},
    ),
    "gate and up": (
        "a = MatMul (x, A) s = Sigmoid (a) g = Mul (a, s) b = MatMul (x, B) h = Mul (g, b) y = MatMul (h, C)",
        {"A": (256, 512), "B": (256, 512), "C": (512, 256)},
    ),
    "through a transpose": ("t = Transpose <perm = [1, 0]> (A) y = MatMul (x, t)", {"A": (256, 256)}),
    "through an identity": ("t = Identity (A) y = MatMul (x, t)", {"A": (256, 256)}),
    "cast behind": ("a = MatMul (x, A) c = Cast <to = 10> (a) y = Cast <to = 1> (c)", {"A": (256, 256)}),
    "softmax behind": ("a = MatMul (x, A) y = Softmax (a)", {"A": (256, 256)}),
    "norm between": (
        "a = MatMul (x, A) n = LayerNormalization (a, v) y = MatMul (n, B)",
        {"A": (256, 256), "v": (256,), "B": (256, 256)},
    ),
    "two read one": ("a = MatMul (x, A) b = Relu (a) y = MatMul (b, A)", {"A": (256, 256)}),
    "tied head": (
        "i = ArgMax <axis = -1, keepdims = 0> (x) e = Gather (A, i) t = Transpose <perm = [1, 0]> (A)"
        " y = MatMul (e, t)",
        {"A": (256, 256)},
    ),
}
_MATRICES = {
    "gemm": ("y = Gemm (x, A, v)", {"A": (256, 256), "v": (256,)}),
    "transposed gemm": ("y = Gemm <transB = 1> (x, A, v)", {"A": (256, 256), "v": (256,)}),
    "transposed gemm, relu, gemm": (
        "a = Gemm <transB = 1> (x, A) b = Relu (a) y = Gemm (b, B)",
        {"A": (256, 256), "B": (256, 256)},
    ),
    "tied head by gemm": (
        "i = ArgMax <axis = -1, keepdims = 0> (x) e = Gather (A, i) y = Gemm <transB = 1> (e, A)",
        {"A": (256, 256)},
    ),
    "conv beside": (
        "r = Reshape (x, image) c = Conv <pads = [1, 1, 1, 1]> (r, C) f = Flatten (c) y = MatMul (f, A)",
        {"C": (4, 4, 3, 3), "A": (256, 256)},
    ),
}
_ALL = [
    *((dims, *graph) for dims, graph in itertools.product(("n,256", "2,n,256"), _GRAPHS.values())),
    *(("n,256", *graph) for graph in _MATRICES.values()),
]
_NAMES = [*(f"{name}, {rank}" for rank, name in itertools.product((2, 3), _GRAPHS)), *_MATRICES]


def _model(dims: str, body: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{dims}] x) => (float[{dims}] y)'
    body = body.replace("TURNED", "0, 2, 1" if dims.count(",") == 2 else "1, 0")
    model = onnx.parser.parse_model(f"{head} <int64[4] image = {{-1, 4, 8, 8}}> {{ {body} }}")
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        numbers = (rng.standard_normal(shape) / 16).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(numbers, name))
    return model


def _reads(result: onnx.ModelProto) -> int:
    """How often the file's operators read weights in blocks."""
    blocks = {
        node.output[0]
        for node in result.graph.node
        if node.op_type == "DequantizeLinear" and any(attribute.name == "block_size" for attribute in node.attribute)
    }
    return sum(node.op_type in _BLOCK_OPS or any(name in blocks for name in node.input) for node in result.graph.node)


@pytest.mark.parametrize("to", ["int4", "int8w", "int4,fp16"])
@pytest.mark.parametrize(("dims", "body", "shapes"), _ALL, ids=_NAMES)
def test_onnx_runtime_fuses_every_weight(
    dims: str, body: str, shapes: dict[str, tuple[int, ...]], to: str, tmp_path: Path
) -> None:
    result = mezzo.convert(_model(dims, body, shapes), to=to, target="onnxruntime-cpu", check=False)
    assert len(result.plan.in_blocks) == sum(len(shape) == 2 for shape in shapes.values())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(result.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ops = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert sum(op in _BLOCK_OPS for op in ops) == _reads(result.model) >= len(result.plan.in_blocks)
    assert "DequantizeLinear" not in ops


@pytest.mark.parametrize("to", ["int4", "int8w", "int4,bf16"])
@pytest.mark.parametrize(("dims", "body", "shapes"), _ALL, ids=_NAMES)
def test_openvino_fuses_every_weight(dims: str, body: str, shapes: dict[str, tuple[int, ...]], to: str) -> None:
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    result = mezzo.convert(_model(dims, body, shapes), to=to, target="openvino-cpu", check=False)
    assert len(result.plan.in_blocks) == sum(len(shape) == 2 for shape in shapes.values())
    core = openvino.Core()
    settings = {"EXECUTION_MODE_HINT": "ACCURACY", "PERF_COUNT": True}
    model = core.read_model(result.model.SerializeToString())
    call = core.compile_model(model, "CPU", settings).create_infer_request()
    call.infer([np.ones([2 if dim == "n" else int(dim) for dim in dims.split(",")], np.float32)])
    ran = [kernel.node_type for kernel in call.get_profiling_info() if kernel.status.name == "EXECUTED"]
    assert sum(kind in _COMPRESSED for kind in ran) == _reads(result.model) >= len(result.plan.in_blocks)
