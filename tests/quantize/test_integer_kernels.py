"""Integer kernels of numpy, held to ONNX's reference evaluator and to ONNX Runtime, bit for bit."""

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from integer_kernels import (
    ADDS_PAIRS,
    Style,
    Window,
    conv_sums,
    dynamic_quantize,
    factor,
    matmul_sums,
    requantize,
)
from onnx import TensorProto, helper
from sweeps import swept

from mezzo.formats.dtypes import DType

_ELEMENTS = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8,
             np.dtype(np.int32): TensorProto.INT32, np.dtype(np.float32): TensorProto.FLOAT}  # fmt: skip
_KINDS = {DType.UINT8: np.uint8, DType.INT8: np.int8}
_OPSET = 21


def answers(op: str, feeds: dict[str, np.ndarray], outputs: dict[str, type], **attributes: object) -> tuple[list, list]:
    """What the reference evaluator and ONNX Runtime make of one operator."""
    node = helper.make_node(op, list(feeds), list(outputs), **attributes)
    ports = [helper.make_tensor_value_info(n, _ELEMENTS[held.dtype], held.shape) for n, held in feeds.items()]
    results = [helper.make_tensor_value_info(n, _ELEMENTS[np.dtype(kind)], None) for n, kind in outputs.items()]
    graph = helper.make_graph([node], "one", ports, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return onnx.reference.ReferenceEvaluator(model).run(None, feeds), session.run(None, feeds)


def weights(rng: np.random.Generator, kind: type, shape: tuple[int, ...]) -> np.ndarray:
    """Integers of the whole span; signed ones of half of it where ONNX Runtime adds two products in INT16."""
    drawn = integers(rng, kind, shape)
    return drawn // 2 if ADDS_PAIRS and kind is np.int8 else drawn


def integers(rng: np.random.Generator, kind: type, shape: tuple[int, ...]) -> np.ndarray:
    """Integers of the whole span, both ends often."""
    span = np.iinfo(kind)
    held = rng.integers(span.min, span.max + 1, shape)
    ends = rng.choice([span.min, span.max], shape)
    return np.where(rng.random(shape) < 0.2, ends, held).astype(kind)


def scale(rng: np.random.Generator, low: float = -8, high: float = 0) -> np.ndarray:
    """A scale; one in three a power of two, which makes ties between steps."""
    power = rng.uniform(low, high)
    return np.array(2.0 ** (np.round(power) if rng.random() < 0.35 else power), np.float32)


def zero(rng: np.random.Generator, kind: type) -> np.ndarray:
    span = np.iinfo(kind)
    return np.array(rng.integers(span.min, span.max + 1), kind)


@pytest.mark.parametrize("seed", range(swept(40)))
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("u8", "u8"), ("i8", "i8")])
def test_matmul_is_that_of_the_reference_and_of_onnxruntime(left: str, right: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = {"u8": np.uint8, "i8": np.int8}
    rows, inner, columns = rng.integers(1, 40, 3).tolist()
    a, b = integers(rng, kinds[left], (rows, inner)), weights(rng, kinds[right], (inner, columns))
    za, zb, zy = zero(rng, a.dtype.type), zero(rng, b.dtype.type), zero(rng, a.dtype.type)
    sa, sb, sy = scale(rng), scale(rng), scale(rng, -2, 6)
    sums = matmul_sums(a, b, za, zb)
    reference, native = answers("MatMulInteger", {"a": a, "b": b, "za": za, "zb": zb}, {"y": np.int32})
    np.testing.assert_array_equal(sums, reference[0], f"seed {seed}")
    np.testing.assert_array_equal(sums, native[0], f"seed {seed}")
    feeds = {"a": a, "sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy, "zy": zy}
    reference, native = answers("QLinearMatMul", feeds, {"y": a.dtype.type})
    dtype = DType.UINT8 if left == "u8" else DType.INT8
    by = factor(sa, sb, sy)
    np.testing.assert_array_equal(requantize(sums, by, dtype, int(zy), Style.REFERENCE), reference[0], f"seed {seed}")
    np.testing.assert_array_equal(requantize(sums, by, dtype, int(zy), Style.ONNXRUNTIME), native[0], f"seed {seed}")


@pytest.mark.parametrize("seed", range(swept(40)))
def test_convolution_is_that_of_the_reference_and_of_onnxruntime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, filters = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    x = integers(rng, np.uint8, (int(rng.integers(1, 3)), channels, *rng.integers(6, 11, 2).tolist()))
    w = weights(rng, np.int8, (filters, channels // groups, *rng.integers(1, 4, 2).tolist()))
    window = Window(
        strides=rng.integers(1, 3, 2).tolist(), pads=rng.integers(0, 3, 4).tolist(),
        dilations=rng.integers(1, 3, 2).tolist(), groups=groups,
    )  # fmt: skip
    zx, zw = zero(rng, np.uint8), np.zeros(filters, np.int8)
    sx, sw, sy = scale(rng), np.array([scale(rng) for _ in range(filters)]), scale(rng, -2, 6)
    bias = rng.integers(-50_000, 50_000, filters).astype(np.int32)
    attributes = {
        "strides": window.strides, "pads": window.pads, "dilations": window.dilations, "group": window.groups
    }  # fmt: skip
    sums = conv_sums(x, w, window, int(zx), zw)
    reference, native = answers("ConvInteger", {"x": x, "w": w, "zx": zx}, {"y": np.int32}, **attributes)
    np.testing.assert_array_equal(sums, reference[0], f"seed {seed}")
    np.testing.assert_array_equal(sums, native[0], f"seed {seed}")
    zy = zero(rng, np.uint8)
    feeds = {"x": x, "sx": sx, "zx": zx, "w": w, "sw": sw, "zw": zw, "sy": sy, "zy": zy, "b": bias}
    reference, native = answers("QLinearConv", feeds, {"y": np.uint8}, **attributes)
    sums = sums + bias.reshape(-1, 1, 1)
    by = factor(sx, sw, sy).reshape(-1, 1, 1)
    np.testing.assert_array_equal(
        requantize(sums, by, DType.UINT8, int(zy), Style.ONNXRUNTIME), native[0], f"seed {seed}"
    )
    np.testing.assert_array_equal(
        requantize(sums, by, DType.UINT8, int(zy), Style.REFERENCE), reference[0], f"seed {seed}"
    )


@pytest.mark.parametrize("seed", range(swept(40)))
def test_ranges_at_run_time_are_those_of_the_reference_and_of_onnxruntime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(rng.integers(1, 60)) * 10.0 ** rng.uniform(-6, 6)).astype(np.float32)
    x = {0: x, 1: np.abs(x), 2: -np.abs(x), 3: x + np.float32(3)}[seed % 4]
    for style, found in zip(Style, answers("DynamicQuantizeLinear", {"x": x}, _DYNAMIC), strict=True):
        made, held, zero_point = dynamic_quantize(x, style)
        assert (held, zero_point) == (found[1], int(found[2])), f"seed {seed}"
        np.testing.assert_array_equal(made, found[0], f"seed {seed}")


_DYNAMIC = {"y": np.uint8, "s": np.float32, "z": np.uint8}


def test_a_range_of_nothing_is_handled_as_each_does() -> None:
    x = np.zeros(4, np.float32)
    for style, found in zip(Style, answers("DynamicQuantizeLinear", {"x": x}, _DYNAMIC), strict=True):
        made, held, zero_point = dynamic_quantize(x, style)
        assert (held, zero_point) == (found[1], int(found[2]))
        assert made.tolist() == found[0].tolist() == [0] * 4


def test_sums_wrap_around() -> None:
    a = np.full((1, 40_000), 255, np.uint8)
    b = np.full((40_000, 1), -128, np.int8)
    exact = -255 * 128 * 40_000 * 2
    sums = matmul_sums(np.tile(a, (1, 2)), np.tile(b, (2, 1)))
    assert sums.item() == (exact + 2**31) % 2**32 - 2**31


def test_styles_part_at_ties() -> None:
    """Half a step with an odd zero point: rounding before it is added, and after."""
    sums, by = np.array([1, 3], np.int32), np.float32(0.5)
    assert requantize(sums, by, DType.UINT8, 1, Style.REFERENCE).tolist() == [2, 2]
    assert requantize(sums, by, DType.UINT8, 1, Style.ONNXRUNTIME).tolist() == [1, 3]
