"""Payloads of integers: as QuantizeLinear makes them, whole or in pieces, in memory or on their way to a file."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import pytest
from onnx import helper
from quantized_cases import carry_out, open_model
from sweeps import swept

import mezzo
from mezzo.common.errors import ContractError
from mezzo.contracts.plans import Edit, Quantize, Rewire
from mezzo.formats.dtypes import DType, integer_span
from mezzo.formats.quantization import Quantization
from mezzo.onnx.files.blobs import CHUNK_BYTES
from mezzo.onnx.files.quantized_payloads import payload_of, read_payload
from mezzo.onnx.run.session import Engine, native_session
from mezzo.quantize.arithmetic.arithmetic import quantize

_I8, _U8, _I32 = DType.INT8, DType.UINT8, DType.INT32
_F8 = (DType.FLOAT8E4M3FN, DType.FLOAT8E5M2)
_ONNX = {
    _I8: onnx.TensorProto.INT8, _U8: onnx.TensorProto.UINT8, _F8[0]: onnx.TensorProto.FLOAT8E4M3FN,
    _F8[1]: onnx.TensorProto.FLOAT8E5M2,
}  # fmt: skip


def quantization(rng: np.random.Generator, dtype: DType, count: int | None, axis: int | None = None) -> Quantization:
    """Parameters drawn from a seed: scales of several binades, zero points of the whole span."""
    span = integer_span(dtype) or (0, 0)
    scales = np.exp(rng.uniform(-9, 3, count or 1)).astype(np.float32)
    zeros = np.zeros(count or 1, int) if dtype is _I32 else rng.integers(span[0], span[1] + 1, count or 1)
    return Quantization(dtype=dtype, scales=tuple(scales.tolist()), zero_points=tuple(zeros.tolist()), axis=axis)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Numbers of all sizes, ties between two steps and what saturates among them."""
    values = rng.standard_normal(shape) * np.exp(rng.uniform(-3, 6, shape))
    ties = (rng.integers(-200, 200, shape) + 0.5) * scale
    return np.where(rng.random(shape) < 0.3, ties, values).astype(np.float32)


def quantizer(how: Quantization, shape: tuple[int, ...]) -> onnx.ModelProto:
    """QuantizeLinear alone, as a model."""
    scales = np.array(how.scales, np.float32).reshape(() if how.axis is None else (-1,))
    zeros = np.array(how.zero_points, helper.tensor_dtype_to_np_dtype(_ONNX[how.dtype])).reshape(scales.shape)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=1 if how.axis is None else how.axis)
    ports = helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("y", _ONNX[how.dtype], shape)
    weights = [onnx.numpy_helper.from_array(scales, "s"), onnx.numpy_helper.from_array(zeros, "z")]
    graph = helper.make_graph([node], "g", [ports[0]], [ports[1]], weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 19)])


@pytest.mark.parametrize("seed", range(swept(20)))
@pytest.mark.parametrize("dtype", [_I8, _U8, *_F8])
def test_payloads_are_those_of_quantize_linear(dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, 4).tolist())
    axis = None if seed % 3 == 0 else int(rng.integers(4))
    how = quantization(rng, dtype, None if axis is None else shape[axis], axis)
    x = numbers(rng, shape, how.scales[0])
    got = payload_of(how, shape, "x").quantize(x.reshape(-1)).reshape(shape)
    model = quantizer(how, shape)
    (reference,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(got, reference, f"seed {seed}")
    if dtype is not DType.FLOAT8E5M2:  # ONNX Runtime 1.31 hands none out to Python
        native = native_session(model, Engine.ONNXRUNTIME).run({"x": x})["y"]
        assert got.dtype == native.dtype
        np.testing.assert_array_equal(got, native, f"seed {seed}")


@pytest.mark.parametrize("dtype", [_I8, _U8, _I32, *_F8])
@pytest.mark.parametrize("seed", range(8))
def test_files_hold_what_calibration_has_weighed(dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, 3).tolist())
    axis = None if seed % 3 == 0 else int(rng.integers(3))
    how = quantization(rng, dtype, None if axis is None else shape[axis], axis)
    x = numbers(rng, shape, how.scales[0])
    x.reshape(-1)[:2] = np.nan, np.inf
    got = payload_of(how, shape, "x").quantize(x.reshape(-1)).reshape(shape)
    wanted = quantize(x, how)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got.astype(float), wanted.astype(float), f"seed {seed}")


def test_what_is_no_number_saturates() -> None:
    how = Quantization(dtype=_U8, scales=(0.5,), zero_points=(7,))
    x = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, -0.0], np.float32)
    got = payload_of(how, x.shape, "x").quantize(x)
    assert got.tolist() == [255, 0, 0, 255, 0, 7, 7]
    native = native_session(quantizer(how, x.shape), Engine.ONNXRUNTIME).run({"x": x})["y"]
    assert got.tolist() == native.tolist()


@pytest.mark.parametrize("dtype", [_I8, _U8, _I32, *_F8])
@pytest.mark.parametrize("seed", range(swept(12)))
def test_pieces_make_the_whole(dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, 3).tolist())
    axis = None if seed % 4 == 0 else int(rng.integers(3))
    how = quantization(rng, dtype, None if axis is None else shape[axis], axis)
    x = numbers(rng, shape, how.scales[0]).reshape(-1)
    laid = payload_of(how, shape, "x")
    whole = laid.quantize(x)
    edges = [0, *sorted(rng.integers(0, x.size, 3).tolist()), x.size]
    pieces = [laid.quantize(x[first:last], first) for first, last in pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole, f"seed {seed}, edges {edges}")
    assert read_payload(laid.to_text()) == laid


def large_model(path: Path, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """A model file with two equal weights of several pieces and a small one; returns the large and the small."""
    rng = np.random.default_rng(3)
    w = numbers(rng, (613, 1021) if axis else (1021, 613), 0.01)
    b = numbers(rng, (w.shape[1],), 0.01)
    assert w.nbytes > 2 * CHUNK_BYTES, "the weight comes in pieces"
    text = f"""<ir_version: 10, opset_import: ["" : 13]>
        g (float[1,{w.shape[0]}] x) => (float[1,{w.shape[1]}] y)
        {{ [a] h = MatMul(x, w)  [a2] h2 = MatMul(x, w2)  [b] k = Add(h, b)  [c] y = Add(k, h2) }}"""
    model = onnx.parser.parse_model(text)
    for name, array in (("w", w), ("w2", w), ("b", b)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")
    held = onnx.load(path, load_external_data=False)
    first, second, _ = held.graph.initializer
    del second.external_data[:]
    second.external_data.extend(first.external_data)
    path.write_bytes(held.SerializeToString())
    return w, b


@pytest.mark.parametrize("dtype", [_I8, *_F8])
@pytest.mark.parametrize("axis", [0, 1])
def test_streamed_weights_are_those_made_in_memory(tmp_path: Path, axis: int, dtype: DType) -> None:
    w, b = large_model(tmp_path / "m.onnx", axis)
    rng = np.random.default_rng(5)
    hows = {"w": quantization(rng, dtype, w.shape[axis], axis), "b": quantization(rng, _I32, b.size, 0)}
    hows["w2"] = hows["w"]
    if dtype in _F8:
        hows["b"] = quantization(rng, dtype, b.size, 0)
    level = hows["w"].format
    model = open_model(tmp_path / "m.onnx")
    reading = model.read(level, version=19)
    graph = reading.graph
    values = {value.name: number for number, value in enumerate(graph.values)}
    edits: list[Edit] = [Quantize(values[name], how, takes_over=False) for name, how in hows.items()]
    readers = (("a", "w"), ("a2", "w2"), ("b", "b"))
    edits += [Rewire(graph.by_name[node], 1, values[name], level) for node, name in readers]
    result = model.apply(reading, edits)
    assert model.fault(graph, result) is None
    assert model.store is not None
    size_bytes = model.store.write(result, tmp_path / "out.onnx", overwrite=False)
    assert size_bytes < w.nbytes / 2, "equal integers are stored once"
    written = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "out.onnx").graph.initializer}
    held = {t.name: onnx.numpy_helper.to_array(t) for t in model.materialize(result).graph.initializer}
    for name, array in (("w", w), ("w2", w), ("b", b)):
        whole = payload_of(hows[name], array.shape, name).quantize(array.reshape(-1)).reshape(array.shape)
        for stored in (written, held):
            assert stored[f"{name}_quantized"].dtype == whole.dtype
            np.testing.assert_array_equal(stored[f"{name}_quantized"], whole)
        assert name not in written
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)


_SMALL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x) => (float[2,4] y)
<float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
{ [a] h = MatMul(x, w)  [b] y = Neg(h) }
"""


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("further w i8 1,2,3 0,0,0 1", "value 'w' cannot be quantized: 3 scales do not fit its axis 1 of 4; take one"),
        ("further w i8 1,2 0,0 2", "value 'w' cannot be quantized: it has no axis 2, as it has 2; name one"),
        ("further x u8 1,2 0,0 1", "value 'x' cannot be quantized: 2 scales do not fit its axis 1 of 3; take one"),
        ("over h u8 1,2 0,0 0 ", None),
        ("further w i8 1 128", "value 'w' cannot be quantized: its zero points are not all from -128 to 127, what i8"),
        (
            "further w i16 1 0",
            "value 'w' cannot be quantized: i16 holds no quantized numbers; choose one of",
        ),
        (
            "further w i32 1 4",
            "value 'w' cannot be quantized: i32 is dequantized without a zero point; let",
        ),
        (
            "further w f8e4m3fn 1 4",
            "value 'w' cannot be quantized: f8e4m3fn is dequantized without a zero point; let",
        ),
        ("over h i32 1 0", "value 'h' cannot be quantized: i32 holds constants alone; take i8 or u8"),
    ],
)
def test_parameters_that_do_not_fit_are_told(edit: str, message: str | None) -> None:
    model = onnx.parser.parse_model(_SMALL)
    if message is None:
        carry_out(model, edit)
        return
    with pytest.raises(ContractError, match=re.escape(message)):
        carry_out(model, edit)


def test_stated_types_follow() -> None:
    """What a graph states of its values is complete, and nothing is stated of what went."""
    text = _SMALL.replace("<float[3,4] w", "<float[2,4] h, float[3,4] w")
    model = onnx.parser.parse_model(text)
    model.graph.value_info.append(helper.make_tensor_value_info("w", 1, [3, 4]))
    result = carry_out(model, "further x u8 1 0\nread a 0 x\nfurther w i8 1 0\nread a 1 w\nover h i8 1 0")
    stated = {info.name: info for info in result.graph.value_info}
    assert sorted(stated) == [
        "h", "h_float", "h_quantized", "w_dequantized", "x_dequantized", "x_quantized"
    ]  # fmt: skip
    types = {name: info.type.tensor_type.elem_type for name, info in stated.items()}
    assert types == {
        "h": 1, "h_float": 1, "h_quantized": _ONNX[_I8], "w_dequantized": 1, "x_dequantized": 1,
        "x_quantized": _ONNX[_U8],
    }  # fmt: skip
    assert [dim.dim_value for dim in stated["w_dequantized"].type.tensor_type.shape.dim] == [3, 4]


def test_older_models_are_raised_to_where_axes_are_known() -> None:
    model = onnx.parser.parse_model(_SMALL.replace('"" : 21', '"" : 11'))
    opened = open_model(model)
    reading = opened.read(DType.QUANTIZED8)
    node = reading.graph.by_name["a"]
    assert DType.QUANTIZED8 not in reading.graph.nodes[node].signature.legal
    assert opened.next_version(reading, {DType.QUANTIZED8: [node]}, None) == 13
    raised = opened.read(DType.QUANTIZED8, version=13)
    assert DType.QUANTIZED8 in raised.graph.nodes[node].signature.legal
    assert opened.least_version(raised, reading, {DType.QUANTIZED8: [node]}) == 13


_CONSTANTS = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (bool c, float[2] x, float[2] d) => (float[2] y, float[2] z)
<float[2] w = {1,2}, float16[2] h = {15360, 16384}, int64[1] n = {3}, float[2] d = {8, 9}, float[2,2] s = {0,5,0,6}>
{
   [i] y = If (c) <
      then_branch = t () => (float[2] p) { [k] u = Constant <value_floats = [3.0, 4.0]>() [ta] p = Add(x, u) },
      else_branch = e () => (float[2] r) { [ea] r = Add(x, w) }
   >
   [f] z = local.block(x)
}
<domain: "local", opset_import: ["" : 21]>
block (p) => (r) { [k] v = Constant <value = float[2] {7, 8}>() [a] r = Add(p, v) }
"""


def test_constants_are_read_in_their_shapes_wherever_they_stand() -> None:
    from quantized_cases import make_sparse, values_of

    model = onnx.parser.parse_model(_CONSTANTS)
    make_sparse(model.graph, "s")
    opened = open_model(model)
    reading = opened.read(DType.BFLOAT16)
    names = {number: name for name, number in values_of(reading.graph).items()}
    found = {names[value]: numbers for value, numbers in opened.weights(reading, range(len(reading.graph.values)))}
    assert {name: numbers.tolist() for name, numbers in found.items()} == {
        "w": [1, 2], "h": [1, 2], "s": [[0, 5], [0, 6]], "i/then/u": [3, 4], "f/v": [7, 8]
    }  # fmt: skip
    assert {numbers.dtype for numbers in found.values()} == {np.dtype(np.float32)}


def test_large_constants_are_read_from_where_they_are(tmp_path: Path) -> None:
    w, b = large_model(tmp_path / "m.onnx", 0)
    model = open_model(tmp_path / "m.onnx")
    reading = model.read(DType.QUANTIZED8)
    values = {value.name: number for number, value in enumerate(reading.graph.values)}
    wanted = [values["b"], values["x"], values["w"]]
    (first, one), (second, other) = model.weights(reading, wanted)
    assert (first, second) == (values["b"], values["w"])
    np.testing.assert_array_equal(one, b)
    np.testing.assert_array_equal(other, w)
    assert isinstance(mezzo.show(tmp_path / "m.onnx"), str)
