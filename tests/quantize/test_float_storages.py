"""FP8 with a scale: Quantize and Dequantize are ONNX's, bit for bit, and what rounding costs is what is summed up."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator
from quant_laws import LAW

from mezzo.contracts.calibrator import Grid, Range
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.plugins.discovery import calibrator
from mezzo.quantize.arithmetic.arithmetic import dequantize, quantize, round_trip
from mezzo.quantize.arithmetic.choosing import choose_range
from mezzo.quantize.arithmetic.parameters import parameters_for
from mezzo.quantize.arithmetic.squares import squared_error_to
from mezzo.quantize.arithmetic.weights import weight_parameters
from mezzo.quantize.observers.collector import Collector

_ONNX = {DType.FLOAT8E4M3FN: TensorProto.FLOAT8E4M3FN, DType.FLOAT8E5M2: TensorProto.FLOAT8E5M2}
_NUMPY = {DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, DType.FLOAT8E5M2: ml_dtypes.float8_e5m2}
_LARGEST = {DType.FLOAT8E4M3FN: 448.0, DType.FLOAT8E5M2: 57344.0}
EVERY_STORAGE = pytest.mark.parametrize("dtype", _ONNX, ids=str)
SCALES = st.floats(2.0**-100, 2.0**100, width=32)
HOSTILE = st.sampled_from([np.nan, np.inf, -np.inf, 3.4028234663852886e38, -3.4028234663852886e38, 1e-45, -0.0])


def every_number(dtype: DType) -> np.ndarray:
    """All 256 of a storage."""
    return np.arange(256, dtype=np.uint8).view(_NUMPY[dtype])


def places(dtype: DType) -> np.ndarray:
    """Every number, every tie between two, and what lies beside those."""
    numbers = every_number(dtype).astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    ties = (numbers[:-1] + numbers[1:]) / 2
    largest = np.float32(_LARGEST[dtype])
    beyond = np.float32([largest * 1.03, largest * 1.04, largest * 1.2, 2 * largest, 1e9])
    there = np.concatenate([numbers, ties, beyond, -beyond])
    return np.concatenate([there, *(np.nextafter(there, np.float32(end)) for end in (-np.inf, np.inf))])


def model(operator: str, how: Quantization) -> ModelProto:
    kind, shape = _ONNX[how.dtype], [] if how.axis is None else [len(how.scales)]
    given_kind, made_kind = (TensorProto.FLOAT, kind) if operator == "QuantizeLinear" else (kind, TensorProto.FLOAT)
    nodes = [helper.make_node(operator, ["x", "scale", "point"], ["y"], axis=0)]
    ports = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("x", given_kind), ("y", made_kind))]
    tensors = [
        helper.make_tensor("scale", TensorProto.FLOAT, shape, how.scales),
        helper.make_tensor("point", kind, shape, how.zero_points),
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def by_reference(operator: str, x: np.ndarray, how: Quantization) -> np.ndarray:
    with np.errstate(all="ignore"):
        (y,) = ReferenceEvaluator(model(operator, how)).run(None, {"x": x})
    return np.asarray(y)


def by_onnx_runtime(x: np.ndarray, how: Quantization) -> np.ndarray:
    """There and back, each operator as it stands."""
    both = model("QuantizeLinear", how)
    both.graph.node.add(op_type="DequantizeLinear", input=["y", "scale", "point"], output=["z"])
    both.graph.node[1].attribute.append(helper.make_attribute("axis", 0))
    both.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(both.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal bit for bit, but for which NaN it is."""
    left, right = (side.astype(np.float32) for side in (left, right))
    return np.array_equal(left, right, equal_nan=True) and np.array_equal(np.signbit(left), np.signbit(right))


def held(dtype: DType, *scales: float) -> Quantization:
    axis = None if len(scales) == 1 else 0
    return Quantization(dtype=dtype, scales=scales, zero_points=(0,) * len(scales), axis=axis)


@EVERY_STORAGE
def test_every_tie_goes_to_even_and_what_is_beyond_saturates(dtype: DType) -> None:
    x, how = places(dtype), held(dtype, 1.0)
    ours = quantize(x, how)
    assert ours.dtype == _NUMPY[dtype]
    assert same(ours, np.clip(x, -_LARGEST[dtype], _LARGEST[dtype]).astype(_NUMPY[dtype]))
    assert same(ours, by_reference("QuantizeLinear", x, how))


@LAW
@given(st.data())
@EVERY_STORAGE
def test_quantize_is_the_references_and_onnx_runtimes(dtype: DType, data: st.DataObject) -> None:
    scales = data.draw(st.lists(SCALES, min_size=1, max_size=3))
    how = held(dtype, *scales)
    near = st.sampled_from(places(dtype).tolist()).map(lambda place: float(np.float32(place) * np.float32(scales[0])))
    x = data.draw(arrays(np.float32, (len(scales), 4), elements=near | HOSTILE | st.floats(width=32)))
    ours = quantize(x, how)
    assert same(ours, by_reference("QuantizeLinear", x, how)), (x, how)
    assert same(dequantize(ours, how), by_onnx_runtime(x, how)), (x, how)


@LAW
@given(st.data())
@EVERY_STORAGE
def test_dequantize_is_the_references(dtype: DType, data: st.DataObject) -> None:
    how = held(dtype, data.draw(SCALES))
    ours, wanted = dequantize(every_number(dtype), how), by_reference("DequantizeLinear", every_number(dtype), how)
    assert ours.dtype == np.float32 and same(ours, wanted)
    # What was quantized once stays as it is.
    assert same(quantize(ours[np.isfinite(ours)], how), every_number(dtype)[np.isfinite(ours)])


@EVERY_STORAGE
def test_a_range_reaches_the_largest_number(dtype: DType) -> None:
    how = parameters_for(Range(-3.0, 7.0), Grid(dtype=dtype, is_symmetric=True))
    assert how == held(dtype, float(np.float32(7.0 / _LARGEST[dtype])))
    assert float(quantize(7.0, how)) == _LARGEST[dtype]


@EVERY_STORAGE
def test_products_of_what_is_stored_are_exact_in_fp32(dtype: DType) -> None:
    """So where sums are of FP32, a product scaled behind it is a product of what was dequantized, but for the order."""
    numbers = every_number(dtype)
    numbers = numbers[np.isfinite(numbers.astype(np.float32))]
    single = np.multiply.outer(*(2 * [numbers.astype(np.float32)]))
    assert np.array_equal(single, np.multiply.outer(*(2 * [numbers.astype(np.float64)])))


@EVERY_STORAGE
def test_squared_errors_are_what_rounding_costs(dtype: DType) -> None:
    """Beside the mean of many even numbers, of which each stands for a part of a step."""
    largest = _LARGEST[dtype]
    for end in (largest * 2.0**-14, largest / 100, largest / 3, 0.97 * largest, 1.4 * largest):
        count = 400_000
        x = (np.arange(count) + 0.5) * (end / count)
        wrong = np.clip(x, -largest, largest).astype(_NUMPY[dtype]).astype(np.float64) - x
        told = float(squared_error_to(np.array([end]), dtype)[0])
        # The middle rule errs by the square of its steps, of which the smallest cells of all have some twenty.
        assert told == pytest.approx(float(np.square(wrong).sum()) * end / count, rel=1e-2)
        assert squared_error_to(np.array([-end]), dtype)[0] == -told
    assert squared_error_to(np.zeros(1), dtype)[0] == 0.0


@EVERY_STORAGE
@pytest.mark.parametrize("shape", ["normal", "cauchy", "one far out"])
def test_mse_finds_the_range_with_the_least_error(dtype: DType, shape: str) -> None:
    rng = np.random.default_rng(5)
    numbers = (rng.standard_cauchy(30_000) if shape == "cauchy" else rng.standard_normal(30_000)).astype(np.float32)
    numbers[0] = 1e4 if shape == "one far out" else numbers[0]
    collector, grid = Collector(None), Grid(dtype=dtype, is_symmetric=True)
    collector.add("x", numbers)
    summary = collector.summary("x")

    def error(range_: Range | None) -> float:
        assert range_ is not None
        back = round_trip(numbers, parameters_for(range_, grid)).astype(np.float64)
        return float(np.square(back - numbers).mean())

    ours = error(choose_range(calibrator("mse"), summary, grid))
    assert summary.extremes is not None
    most = summary.extremes.largest
    tried = [error(Range(-most * part, most * part)) for part in 2.0 ** -np.linspace(0, 10, 200)]
    # Numbers are told in bins; of steps that grow with them, a range is seldom much better than one beside it.
    assert ours <= 1.1 * min(tried) and ours <= error(choose_range(calibrator("minmax"), summary, grid))


@EVERY_STORAGE
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_largest_weight_is_the_largest_number(dtype: DType, axis: int | None) -> None:
    weights = np.random.default_rng(3).standard_normal((5, 4000)).astype(np.float32)[:, :40]
    grid = Grid(dtype=dtype, is_symmetric=True, is_narrow=True)
    plain = weight_parameters(weights, grid, axis)
    tops = np.abs(weights).max(axis=None if axis is None else 1 - axis)
    assert np.float32(plain.scales) == pytest.approx(np.ravel(tops) / _LARGEST[dtype])
