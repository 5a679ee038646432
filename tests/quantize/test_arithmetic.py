"""Quantize and Dequantize are ONNX's, bit for bit."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from quant_laws import LAW

from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.arithmetic import dequantize, quantize, round_trip

_TYPES = {
    DType.UINT8: TensorProto.UINT8, DType.INT8: TensorProto.INT8, DType.UINT16: TensorProto.UINT16,
    DType.INT16: TensorProto.INT16, DType.UINT4: TensorProto.UINT4, DType.INT4: TensorProto.INT4,
}  # fmt: skip
_BYTES = (DType.UINT8, DType.INT8)
NORMAL = st.floats(2.0**-126, 2.0**100, width=32)
HOSTILE = st.sampled_from([np.nan, np.inf, -np.inf, 3.4028234663852886e38, -3.4028234663852886e38, 1e-45, -0.0])
HOSTILE_ROW = np.float32([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.5, 1.5, -0.5])


@st.composite
def parameters(draw: st.DrawFn, axis: int | None, dtypes: tuple[DType, ...] = tuple(_TYPES)) -> Quantization:
    slices = 1 if axis is None else 3
    dtype = draw(st.sampled_from(dtypes))
    low, high = Quantization(dtype=dtype, scales=(1.0,), zero_points=(0,)).span
    scales = draw(st.lists(NORMAL, min_size=slices, max_size=slices))
    points = draw(st.lists(st.integers(low, high), min_size=slices, max_size=slices))
    return Quantization(dtype=dtype, scales=tuple(scales), zero_points=tuple(points), axis=axis)


def numbers_for(how: Quantization) -> st.SearchStrategy[np.ndarray]:
    """Halves of steps, where rounding ties are, far beyond what integers hold, and whatever else FP32 has."""
    scale = np.float32(how.scales[0])
    ties = st.integers(-600, 600).map(lambda halves: float(np.float32(halves / 2) * scale))
    anything = ties | HOSTILE | st.floats(width=32)
    return arrays(
        np.float32, (2, len(how.scales) if how.axis is not None else 3, 2), elements=anything.filter(_is_fp32)
    )


def _is_fp32(number: float) -> bool:
    with np.errstate(over="ignore"):
        return not np.isfinite(number) or float(np.float32(number)) == number


@st.composite
def cases(draw: st.DrawFn, dtypes: tuple[DType, ...] = tuple(_TYPES)) -> tuple[np.ndarray, Quantization]:
    axis = draw(st.sampled_from([None, 1]))
    how = draw(parameters(axis, dtypes))
    return draw(numbers_for(how)), how


def model(operator: str, how: Quantization) -> onnx.ModelProto:
    kind = _TYPES[how.dtype]
    shape = [] if how.axis is None else [len(how.scales)]
    given_kind, made_kind = (TensorProto.FLOAT, kind) if operator == "QuantizeLinear" else (kind, TensorProto.FLOAT)
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "scale", "point"], ["y"], axis=1)],
        "g",
        [helper.make_tensor_value_info("x", given_kind, None)],
        [helper.make_tensor_value_info("y", made_kind, None)],
        [
            helper.make_tensor("scale", TensorProto.FLOAT, shape, how.scales),
            helper.make_tensor("point", kind, shape, how.zero_points),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def by_reference(operator: str, x: np.ndarray, how: Quantization) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        (y,) = ReferenceEvaluator(model(operator, how)).run(None, {"x": x})
    return np.asarray(y)


@LAW
@given(cases())
def test_quantize_is_the_references(case: tuple[np.ndarray, Quantization]) -> None:
    x, how = case
    scales = np.float32(how.scales).reshape([-1, 1] if how.axis is not None else [])
    # What INT32 cannot hold, the reference leaves to the machine; the next test is about that.
    with np.errstate(all="ignore"):
        x = np.where(np.abs(x / scales) < 2**30, x, np.float32(0))
    assert np.array_equal(quantize(x, how), by_reference("QuantizeLinear", x, how).astype(np.int64))


@LAW
@given(cases(_BYTES))
@example((HOSTILE_ROW, Quantization(dtype=DType.UINT8, scales=(1.0,), zero_points=(3,))))
def test_quantize_is_onnx_runtimes_of_any_number(case: tuple[np.ndarray, Quantization]) -> None:
    x, how = case
    session = onnxruntime.InferenceSession(
        model("QuantizeLinear", how).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, {"x": x})
    ours = quantize(x, how)
    assert ours.dtype == wanted.dtype and np.array_equal(ours, wanted), (x, how)


@LAW
@given(st.data())
def test_dequantize_is_the_references(data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from([None, 1]))
    how = data.draw(parameters(axis, (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)))
    low, high = how.span
    integers = data.draw(arrays(quantize(0.0, _flat(how)).dtype, (2, 3, 2), elements=st.integers(low, high)))
    ours, wanted = dequantize(integers, how), by_reference("DequantizeLinear", integers, how)
    assert ours.dtype == np.float32 and ours.tobytes() == wanted.tobytes()


@LAW
@given(cases())
def test_what_was_quantized_once_stays_as_it_is(case: tuple[np.ndarray, Quantization]) -> None:
    x, how = case
    integers = quantize(x, how)
    back = dequantize(integers, how)
    assert np.array_equal(quantize(back[np.isfinite(back)], _flat(how)), integers[np.isfinite(back)]) or how.axis == 1


def _flat(how: Quantization) -> Quantization:
    return Quantization(dtype=how.dtype, scales=how.scales[:1], zero_points=how.zero_points[:1])


@pytest.mark.parametrize(
    ("number", "held"),
    [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (np.nan, -128), (200.0, 127), (-np.inf, -128)],
)
def test_ties_go_to_even_and_the_rest_saturates(number: float, held: int) -> None:
    assert quantize(number, Quantization(dtype=DType.INT8, scales=(1.0,), zero_points=(0,))) == held


def test_int32_is_held_whole() -> None:
    how = Quantization(dtype=DType.INT32, scales=(0.5,), zero_points=(0,))
    numbers = np.float32([1e9, 3e9, -3e9, 123456.5])
    assert quantize(numbers, how).tolist() == [2_000_000_000, 2**31 - 1, -(2**31), 246913]
    assert dequantize(np.int32([7, -3]), how).tolist() == [3.5, -1.5]


def test_round_trip_is_within_half_a_step() -> None:
    how = Quantization(dtype=DType.INT8, scales=(0.25, 2.0), zero_points=(0, 0), axis=0)
    numbers = np.random.default_rng(0).uniform(-20, 20, (2, 500)).astype(np.float32)
    assert (np.abs(round_trip(numbers, how) - numbers) <= np.float32([[0.125], [1.0]])).all()
