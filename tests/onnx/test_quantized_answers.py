"""What quantized files answer: natively as integer kernels of numpy, emulated with what is low beside them rounded."""

from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest
from integer_kernels import ADDS_PAIRS, Style, Window, conv_sums, factor, matmul_sums, requantize
from quantized_cases import carry_out

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Engine, native_session
from mezzo.quantize.arithmetic.arithmetic import quantize, round_trip

_CONV = """<ir_version: 10, opset_import: ["" : 17]>
g (float[2,{inner},9,9] x) => (float[2,{columns},9,9] y)
{{ [a] h = Conv<pads=[1,1,1,1]>(x, w, b) [r] y = Relu(h) }}"""
_GEMM = """<ir_version: 10, opset_import: ["" : 17]>
g (float[7,{inner}] x) => (float[7,{columns}] y)
{{ [a] h = Gemm(x, w, b) [r] y = Relu(h) }}"""


class Unit(NamedTuple):
    """A product with bias and Relu, quantized on all sides; what it is fed, and the integers that it makes."""

    model: onnx.ModelProto
    x: np.ndarray
    y_scale: np.float32
    wanted: np.ndarray


def unit(seed: int, *, is_conv: bool) -> Unit:
    rng = np.random.default_rng(seed)
    inner, columns = rng.integers(3, 40, 2).tolist()
    text = (_CONV if is_conv else _GEMM).format(inner=inner, columns=columns)
    x = rng.standard_normal((2, inner, 9, 9) if is_conv else (7, inner)).astype(np.float32)
    w = rng.standard_normal((columns, inner, 3, 3) if is_conv else (inner, columns)).astype(np.float32)
    b = rng.standard_normal(columns).astype(np.float32)
    model = onnx.parser.parse_model(text)
    for name, array in (("w", w), ("b", b)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    axis = 0 if is_conv else 1
    of_x = Quantization(dtype=DType.UINT8, scales=(float(np.float32(np.ptp(x) / 255)),), zero_points=(117,))
    tops = np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i != axis))
    largest = 64 if ADDS_PAIRS else 127
    of_w = _symmetric(DType.INT8, (tops / largest).astype(np.float32), axis)
    of_b = _symmetric(DType.INT32, np.float32(of_x.scales[0]) * np.array(of_w.scales, np.float32), 0)
    y_scale = np.float32(np.sqrt(inner * (9 if is_conv else 1)) * 4 / 255)
    edits = "\n".join(_further(name, how) for name, how in (("x", of_x), ("w", of_w), ("b", of_b)))
    reads = "".join(f"\nread a {operand} {name}" for operand, name in enumerate("xwb"))
    result = carry_out(model, f"{edits}{reads}\nover y u8 {float(y_scale)!r} 0")
    left, right = quantize(x, of_x), quantize(w, of_w)
    window = Window(strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1])
    sums = conv_sums(left, right, window, 117) if is_conv else matmul_sums(left, right, 117)
    shape = (-1, 1, 1) if is_conv else (-1,)
    by = factor(of_x.scales[0], of_w.scales, y_scale).reshape(shape)
    sums = sums + quantize(b, of_b).reshape(shape)
    return Unit(result, x, y_scale, requantize(sums, by, DType.UINT8, 0, Style.ONNXRUNTIME))


def _symmetric(dtype: DType, scales: np.ndarray, axis: int) -> Quantization:
    return Quantization(dtype=dtype, scales=tuple(scales.tolist()), zero_points=(0,) * len(scales), axis=axis)


def _further(name: str, how: Quantization) -> str:
    scales, zeros = ",".join(map(repr, how.scales)), ",".join(map(str, how.zero_points))
    return f"further {name} {how.dtype} {scales} {zeros} {'' if how.axis is None else how.axis}"


@pytest.mark.parametrize("is_conv", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_onnxruntime_runs_the_kernels_and_answers_as_they_do(seed: int, is_conv: bool, tmp_path: Path) -> None:
    case = unit(seed, is_conv=is_conv)
    for level, kernel in (("ORT_DISABLE_ALL", None), ("ORT_ENABLE_ALL", "QLinearConv" if is_conv else "QGemm")):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath, options.log_severity_level = f"{tmp_path}/{level}.onnx", 4
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), options)
        steps = np.rint(session.run(None, {"x": case.x})[0] / case.y_scale).astype(int)
        # Taken by its letter the file rounds FP32 sums, so where it is close to a tie the next step is as right.
        assert np.abs(steps - case.wanted).max() <= (0 if kernel else 1), f"seed {seed} at {level}"
        run = {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}
        assert kernel is None or kernel in run


def test_emulation_rounds_what_is_low_and_keeps_what_is_quantized() -> None:
    """The border form: a region in BF16, Casts, and a unit typed FP32 between quantizers."""
    text = """<ir_version: 10, opset_import: ["" : 22]>
        g (float[4,6] x) => (float[4,5] y)
        { [a] r = Relu(x) [b] h = MatMul(r, w) [c] y = Neg(h) }"""
    rng = np.random.default_rng(7)
    w = rng.standard_normal((6, 5)).astype(np.float32)
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    edits = """cast x bf16\nread a 0 x bf16\nretype r bf16\ncast r f32\nfurther r u8 0.0137 3\nread b 0 r
        further w i8 0.0213 0\nread b 1 w\nover h i8 0.117 5\ncast h bf16\nread c 0 h bf16\nretype y bf16\ncast y f32
        show y y f32"""
    result = carry_out(model, edits, DType.BFLOAT16)
    x = rng.standard_normal((4, 6)).astype(np.float32)

    def low(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    r = round_trip(np.maximum(low(x), 0), Quantization(dtype=DType.UINT8, scales=(0.0137,), zero_points=(3,)))
    held = round_trip(w, Quantization(dtype=DType.INT8, scales=(0.0213,), zero_points=(0,)))
    h = round_trip(r @ held, Quantization(dtype=DType.INT8, scales=(0.117,), zero_points=(5,)))
    np.testing.assert_array_equal(emulated_session(result).run({"x": x})["y"], -low(h))


def test_what_took_over_is_read_past_a_cast_that_changes_nothing() -> None:
    """Exporters leave such Casts; both products run quantized, and what is between them is handed on as integers."""
    text = """<ir_version: 10, opset_import: ["" : 17]>
        g (float[4,8] x) => (float[4,8] y)
        { [a] h = MatMul(x, w) [r] k = Relu(h) [c] l = Cast<to=1>(k) [b] m = MatMul(l, w) [s] y = Softmax(m) }"""
    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), "w"))
    feeds = {"x": rng.standard_normal((4, 8)).astype(np.float32)}
    for target in ("openvino-cpu", "onnxruntime-cpu"):
        result = mezzo.convert(model, to="int8", target=target, data=[feeds])
        assert [row.precision.compute for row in result.plan.nodes if row.op == "MatMul"] == [DType.QUANTIZED8] * 2
        native_session(result.model, Engine.ONNXRUNTIME).run(feeds)
