"""Tiled sums follow the stated model in every bit, on integers whose FP32 sums are exact in any order."""

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mezzo.common.errors import ContractError
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import DType
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.runtime import JUDGING
from mezzo.onnx.run.session import Engine, Session

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
_NUMPY = {DType.FLOAT16: np.dtype(np.float16), DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
_ELEMENT = {DType.FLOAT16: TensorProto.FLOAT16, DType.BFLOAT16: TensorProto.BFLOAT16}
_BOTH = pytest.mark.parametrize("dtype", list(_NUMPY))
_KNOWN = pytest.mark.parametrize("is_constant", [False, True], ids=["dynamic", "constant"])


def _integers(generator: np.random.Generator, *shape: int) -> np.ndarray:
    # 255 of 8 bits is exact in BF16, and 40 * 255**2 is below 2**24.
    return generator.integers(-255, 256, shape).astype(np.float32)


def _rounded(values: np.ndarray, dtype: DType) -> np.ndarray:
    return values.astype(_NUMPY[dtype]).astype(np.float32)


def _sum(parts: list[np.ndarray], dtype: DType) -> np.ndarray:
    total = np.float32(0)
    for part in parts:
        total = _rounded(np.asarray(total + part), dtype)
    return total


def _model(
    node: onnx.NodeProto, arrays: list[np.ndarray], dtype: DType, is_constant: bool, opset: int = 13
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node in a low type; all operands but the first are constants, or all are fed."""
    constants = node.input[1:] if is_constant else []
    given = dict(zip(node.input, arrays, strict=True))
    inputs = [
        helper.make_tensor_value_info(name, _ELEMENT[dtype], [None] * array.ndim)
        for name, array in given.items()
        if name not in constants
    ]
    weights = [onnx.numpy_helper.from_array(given[name].astype(_NUMPY[dtype]), name) for name in constants]
    output = helper.make_tensor_value_info("y", _ELEMENT[dtype], None)
    graph = helper.make_graph([node], "g", inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model, {port.name: given[port.name] for port in inputs}


@_KNOWN
@_BOTH
@pytest.mark.parametrize(
    ("first", "second"),
    [((3, 40), (40, 5)), ((40,), (40, 5)), ((3, 40), (40,)), ((40,), (40,)), ((2, 1, 3, 40), (4, 40, 5)),
     ((3, 0), (0, 5)), ((3, 7), (7, 5)), ((0, 7), (7, 5))],
)  # fmt: skip
def test_matmul_of_any_rank(first: tuple[int, ...], second: tuple[int, ...], dtype: DType, is_constant: bool) -> None:
    generator = np.random.default_rng(41)
    a, b = _integers(generator, *first), _integers(generator, *second)
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    model, feeds = _model(node, [a, b], dtype, is_constant)
    length, axis = first[-1], max(len(second) - 2, 0)
    for tile in (1, 8, 16, 64):
        cuts = [range(start, min(start + tile, length)) for start in range(0, max(length, 1), tile)]
        expected = _sum([np.asarray(np.take(a, cut, -1) @ np.take(b, cut, axis)) for cut in cuts], dtype)
        got = emulated_session(model, Engine.ONNXRUNTIME, Accumulation(dtype, tile)).run(feeds)["y"]
        np.testing.assert_array_equal(got, expected, f"tile {tile}", strict=True)


def test_tiles_change_what_a_sum_comes_to() -> None:
    """4096 ones: FP16 counts to 2048 one by one, to 4096 in tiles, and in FP32 at once."""
    model, feeds = _model(
        helper.make_node("MatMul", ["a", "b"], ["y"]), [np.ones((1, 4096)), np.ones((4096, 1))], DType.FLOAT16, False
    )
    answers = {1: 2048.0, 2: 4096.0, 4096: 4096.0}
    for tile, expected in answers.items():
        got = emulated_session(model, Engine.ONNXRUNTIME, Accumulation(DType.FLOAT16, tile)).run(feeds)["y"]
        assert got == [[expected]]


@_KNOWN
@_BOTH
@pytest.mark.parametrize("extra", [None, (5,), (3, 5), (1,)])
def test_gemm_scales_and_adds_after_the_sum(dtype: DType, extra: tuple[int, ...] | None, is_constant: bool) -> None:
    generator = np.random.default_rng(42)
    for trans_a, trans_b, alpha, beta in itertools.product((0, 1), (0, 1), (1.0, 0.25), (1.0, 3.0)):
        a, b = _integers(generator, 3, 40), _integers(generator, 40, 5)
        arrays = [a.T if trans_a else a, b.T if trans_b else b]
        if extra is not None:
            arrays.append(_rounded(generator.standard_normal(extra).astype(np.float32) * 1e4, dtype))
        node = helper.make_node(
            "Gemm", ["a", "b", "c"][: len(arrays)], ["y"], transA=trans_a, transB=trans_b, alpha=alpha, beta=beta
        )
        model, feeds = _model(node, arrays, dtype, is_constant)
        total = _sum([a[:, start : start + 7] @ b[start : start + 7] for start in range(0, 40, 7)], dtype)
        expected = total * np.float32(alpha)
        if extra is not None:
            expected = expected + arrays[2] * np.float32(beta)
        got = emulated_session(model, Engine.ONNXRUNTIME, Accumulation(dtype, 7)).run(feeds)["y"]
        np.testing.assert_array_equal(got, _rounded(expected, dtype), strict=True)


_CONVOLUTIONS = [
    ((2, 8, 9, 9), (6, 8, 3, 3), {}),
    ((2, 8, 9, 9), (6, 4, 3, 3), {"group": 2, "pads": [1, 1, 0, 2], "strides": [2, 1]}),
    ((1, 6, 9), (6, 1, 3), {"group": 6}),
    ((2, 8, 9, 9), (4, 8, 3, 3), {"auto_pad": "SAME_UPPER"}),
    ((1, 40, 5, 5), (3, 40, 1, 1), {"kernel_shape": [1, 1]}),
    ((2, 4, 7, 7, 7), (4, 2, 2, 2, 2), {"group": 2, "dilations": [2, 1, 1]}),
    ((0, 8, 9, 9), (6, 8, 3, 3), {}),
]


@_KNOWN
@_BOTH
@pytest.mark.parametrize(("first", "second", "attributes"), _CONVOLUTIONS)
def test_conv_is_cut_along_channels(
    first: tuple[int, ...], second: tuple[int, ...], attributes: dict[str, object], dtype: DType, is_constant: bool
) -> None:
    generator = np.random.default_rng(43)
    x, w = _integers(generator, *first), _integers(generator, *second)
    bias = _rounded(generator.standard_normal(second[0]).astype(np.float32) * 1e4, dtype)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    model, feeds = _model(node, [x, w, bias], dtype, is_constant)
    plain = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * x.ndim) for name in "xwy"]
    graph = helper.make_graph([plain], "g", ports[:2], ports[2:])
    exact_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    exact = Session(exact_model, exact_model.graph.input, Engine.ONNXRUNTIME, JUDGING)
    own, groups, positions = second[1], first[1] // second[1], int(np.prod(second[2:]))
    for tile in (1, 20, 64):
        channels = max(1, tile // positions)
        parts = []
        for start in range(0, own, channels):
            chosen = range(start, min(start + channels, own))
            places = [group * own + place for group in range(groups) for place in chosen]
            parts.append(exact.run({"x": x[:, places], "w": w[:, chosen]})["y"])
        expected = _rounded(_sum(parts, dtype) + bias.reshape(-1, *[1] * (x.ndim - 2)), dtype)
        got = emulated_session(model, Engine.ONNXRUNTIME, Accumulation(dtype, tile)).run(feeds)["y"]
        np.testing.assert_array_equal(got, expected, f"tile {tile}", strict=True)


def test_the_reference_evaluator_agrees_where_onnxruntime_is_not_asked() -> None:
    generator = np.random.default_rng(44)
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    arrays = [_integers(generator, 3, 40), _integers(generator, 40, 5)]
    for is_constant in (False, True):
        model, feeds = _model(node, arrays, DType.BFLOAT16, is_constant)
        first, second = (
            emulated_session(model, engine, Accumulation(DType.BFLOAT16, 16)).run(feeds)["y"] for engine in Engine
        )
        np.testing.assert_array_equal(first, second, strict=True)


def test_an_old_opset_is_raised_for_tiles_or_refused() -> None:
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    arrays = [np.ones((1, 4096)), np.ones((4096, 1))]
    model, feeds = _model(node, arrays, DType.FLOAT16, False, opset=9)
    accumulation = Accumulation(DType.FLOAT16, 1)
    assert emulated_session(model, None, accumulation).run(feeds)["y"] == [[2048]]
    model.graph.node.append(helper.make_node("Dropout", ["a"], ["h", "mask"]))
    model.graph.node.append(helper.make_node("Mul", ["h", "mask"], ["u"]))  # what a mask holds is open before opset 12
    with pytest.raises(ContractError, match=r"^the model has opset 9 and emulating tiled sums in f16 takes opset 13, "):
        emulated_session(model, None, accumulation)
