"""INT8 on CPUs without VNNI, which add the products of two neighbours in INT16: weights have scales for that."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import mezzo
from mezzo.common.errors import InputError
from mezzo.common.machine import Machine
from mezzo.numerics.measures import Ruling
from mezzo.onnx.profile import onnxruntime as onnxruntime_driver
from mezzo.onnx.profile import openvino as openvino_driver
from mezzo.onnx.profile.loaded import LoadOptions
from mezzo.plugins.discovery import target as find_target
from mezzo.tables.sums import VNNI

_PLAIN, _SERVER = Machine("x86_64", ("avx2",)), Machine("x86_64", ("avx2", "avx512_vnni"))
_CHANNELS = 24
_KINDS = ("conv", "groups", "gemm", "matmul", "values")
# The largest sum of two weights whose products with U8 fit INT16.
_MOST = ((1 << 15) - 1) // 255


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights near the ends of their range, most of one sign: neighbours' products add up."""
    signs = rng.choice([-1.0, 1.0], shape, p=[0.1, 0.9])
    return (signs * rng.uniform(0.9, 1.0, shape)).astype(np.float32)


def _model(kind: str, rng: np.random.Generator) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A product or two, and inputs near the ends of theirs."""
    n = _CHANNELS
    weights: dict[str, np.ndarray]
    if kind == "conv":
        shape, body = "B,24,6,6", "c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) y = Conv(r, v)"
        weights = {"w": _weights(rng, n, n, 3, 3), "v": _weights(rng, n, n, 1, 1)}
    elif kind == "groups":
        shape, body = "B,24,6,6", "y = Conv<group=6>(x, w)"
        weights = {"w": _weights(rng, n, n // 6, 3, 3)}
    elif kind == "gemm":
        shape, body = "B,24", "g = Gemm<transB=1>(x, w, b) r = Relu(g) y = MatMul(r, v)"
        weights = {"w": _weights(rng, n, n), "v": _weights(rng, n, 7), "b": _weights(rng, n)}
    elif kind == "matmul":
        shape, body = "B,5,24", "g = MatMul(x, w) t = Tanh(g) y = MatMul(t, v)"
        weights = {"w": _weights(rng, n, 33), "v": _weights(rng, 33, 8)}
    else:  # the product of two values, each of a product
        shape, body = "B,5,24", "q = MatMul(x, w) k = MatMul(x, v) t = Transpose<perm=[0,2,1]>(k) y = MatMul(q, t)"
        weights = {"w": _weights(rng, n, 16), "v": _weights(rng, n, 16)}
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[{shape}] x) => (float[] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, None))
    model.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in weights.items())
    sizes = [8, *map(int, shape.split(",")[1:])]
    batches = [{"x": rng.uniform(0.0, 1.0, sizes).astype(np.float32) ** 0.1} for _ in range(4)]
    return model, batches


def _pairs(model: onnx.ModelProto) -> dict[str, int]:
    """By INT8 weight, the largest sum of two neighbours of one sign along what is summed."""
    sums = {}
    for tensor in model.graph.initializer:
        integers = numpy_helper.to_array(tensor).astype(int)
        if tensor.data_type != onnx.TensorProto.INT8 or integers.ndim < 2:
            continue
        # [outputs, what is summed]; of convolutions in either order of a kernel's memory
        matrix = integers if tensor.name.startswith("w") else integers.T
        orders = [integers, np.moveaxis(integers, 1, -1)] if integers.ndim == 4 else [matrix]
        rows = [ordered.reshape(len(ordered), -1) for ordered in orders]
        sums[tensor.name] = max(
            int((np.maximum(part[:, 1:], 0) + np.maximum(part[:, :-1], 0)).max(initial=0))
            for row in rows
            for part in (row, -row)
        )
    return sums


@pytest.mark.parametrize("calibrator", ["minmax", "none"])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_onnx_runtime_answers_as_the_emulation(kind: str, calibrator: str, seed: int, tmp_path: Path) -> None:
    _check_on("onnxruntime-cpu", onnxruntime_driver.load, "CPUExecutionProvider", kind, calibrator, seed, tmp_path)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_openvino_answers_as_the_emulation(kind: str, seed: int, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    _check_on("openvino-cpu", openvino_driver.load, None, kind, "minmax", seed, tmp_path)


def _check_on(
    target: str,
    load: Callable[..., object],
    provider: str | None,
    kind: str,
    calibrator: str,
    seed: int,
    folder: Path,
) -> None:
    model, batches = _model(kind, np.random.default_rng(seed))
    given = {"to": "int8", "target": target, "reduce_range": "yes", "calibrator": calibrator}
    data = {} if calibrator == "none" else {"data": batches}
    result = mezzo.convert(model, **given, **data).model  # type: ignore[call-overload]
    onnx.save(result, folder / "result.onnx")
    loaded = load(folder / "result.onnx", batches[0], folder, LoadOptions(provider=provider))
    native = loaded.answer(batches[0])["y"]  # type: ignore[attr-defined]
    emulated = mezzo.emulate(result, batches[0])["y"]
    # A value between two integers may become either: a step of 1/255 of its range, here and there. What saturates is
    # off by a tenth of it and more.
    assert np.abs(native - emulated).max() <= 2 / 255 * np.abs(emulated).max()


@pytest.mark.parametrize("correct", ["none", "weights"])
def test_no_pair_of_weights_can_saturate(correct: str) -> None:
    """Also of those that GPTQ rounds to the other neighbour, and when the plan is replayed."""
    rng = np.random.default_rng(0)
    model, _ = _model("gemm", rng)
    mixing = rng.standard_normal((6, _CHANNELS))  # what GPTQ gains by
    batches = [{"x": (rng.standard_normal((64, 6)) @ mixing).astype(np.float32)} for _ in range(6)]
    for tensor in model.graph.initializer:
        drawn = rng.standard_normal(tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))
    made = mezzo.convert(model, to="int8", target="onnxruntime-cpu", data=batches, reduce_range="yes", correct=correct)
    assert any(how.turned for _, how in made.plan.quantized) is (correct == "weights")
    pairs = _pairs(made.model)
    assert len(pairs) == 2
    assert all(125 <= largest <= _MOST for largest in pairs.values())
    again = mezzo.convert(model, plan=made.plan)
    assert _pairs(again.model) == pairs


@pytest.mark.parametrize(
    ("asked", "machine", "is_reduced"),
    [
        ("auto", _PLAIN, True),
        ("auto", _SERVER, False),
        ("auto", Machine("AMD64", None), True),  # Windows lists no features
        ("auto", Machine("aarch64", None), False),
        ("auto", Machine("arm64", ("asimdhp", "i8mm")), False),
        ("yes", _SERVER, True),
        ("no", _PLAIN, False),
    ],
)
def test_this_machine_decides_unless_told(
    asked: str, machine: Machine, is_reduced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzo.planner.choices.reduced_range.find_machine", lambda: machine)
    monkeypatch.setattr("mezzo.tuning.repair.runtime_check.find_runtime", lambda profiler, target: None)
    model, batches = _model("conv", np.random.default_rng(0))
    made = mezzo.convert(model, to="int8", target="onnxruntime-cpu", data=batches, reduce_range=asked)
    assert (max(_pairs(made.model).values()) <= _MOST) is is_reduced
    assert dict(made.plan.settings)["reduce_range"] == ("yes" if is_reduced else asked)
    told = [note for note in made.summary.notes if "added in pairs in INT16" in note]
    assert len(told) == (machine == _PLAIN or (machine.features is None and is_reduced))
    assert all(("may be wrong" in note) is (asked == "no") for note in told)


@pytest.mark.parametrize("asked", ["yes", "no"])
def test_a_replayed_plan_keeps_its_scales_and_is_told_where_they_saturate(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzo.planner.choices.reduced_range.find_machine", lambda: _SERVER)
    model, batches = _model("conv", np.random.default_rng(0))
    made = mezzo.convert(model, to="int8", target="onnxruntime-cpu", data=batches, reduce_range=asked)
    monkeypatch.setattr("mezzo.planner.choices.reduced_range.find_machine", lambda: _PLAIN)
    again = mezzo.convert(model, plan=made.plan)
    assert _pairs(again.model) == _pairs(made.model)
    assert any("results on this machine may be wrong" in note for note in again.summary.notes) is (asked == "no")


def test_only_int8_and_its_targets_are_concerned() -> None:
    model, batches = _model("conv", np.random.default_rng(0))
    wanted = "reduce_range is 'yes', and the INT8 kernels of target 'tensorrt' sum in INT32; leave it out"
    with pytest.raises(InputError) as caught:
        mezzo.convert(model, to="int8", target="tensorrt", data=batches, reduce_range="yes")
    assert str(caught.value) == wanted
    assert dict(mezzo.plan(model, to="fp16").settings)["reduce_range"] == "auto"


def test_targets_of_cpus_say_where_sums_saturate() -> None:
    for name in ("onnxruntime-cpu", "openvino-cpu", "torch-cpu"):
        sums = find_target(name).pair_sum
        assert sums is not None and sums.unless == VNNI, name


# Files of other tools: weights `w` in INT8, and how the product is written.
_OTHERS = {
    "QDQ": "h = QuantizeLinear(x, s, z) i = DequantizeLinear(h, s, z) v = DequantizeLinear(w, s, o) y = MatMul(i, v)",
    "QDQ of a convolution": """n = Constant<value_ints=[2]>() e = Unsqueeze(x, n) h = QuantizeLinear(e, s, z)
        i = DequantizeLinear(h, s, z) v = DequantizeLinear(w, s, o) c = Conv(i, v) y = Squeeze(c, n)""",
    "QLinear": "h = QuantizeLinear(x, s, z) p = QLinearMatMul(h, s, z, w, s, o, t, m) y = DequantizeLinear(p, t, m)",
    "integers": """h, d, u = DynamicQuantizeLinear(x) p = MatMulInteger(h, w, u) f = Cast<to=1>(p) g = Mul(f, d)
        y = Mul(g, s)""",
}
_PRODUCTS = ("MatMul", "Conv", "QLinearMatMul", "MatMulInteger")


def _of_another_tool(form: str, pair: tuple[int, int]) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A product of FP32, and the same with weights in INT8, two neighbours of which are this pair."""
    integers = np.random.default_rng(0).integers(-60, 61, (6, 4), np.int8)
    integers[:, 1] = (0, 0, *pair, 0, 0)
    head = '<ir_version: 10, opset_import: ["" : 21]> g (float[N,6] x) => (float[N,4] y)'
    high = onnx.parser.parse_model(f"{head} {{ y = MatMul(x, w) }}")
    high.graph.initializer.append(numpy_helper.from_array(integers * np.float32(0.01), "w"))
    constants = "<float s = {0.01}, float t = {0.04}, uint8 z = {0}, uint8 m = {128}, int8 o = {0}>"
    low = onnx.parser.parse_model(f"{head} {constants} {{ {_OTHERS[form]} }}")
    for node in low.graph.node:
        node.name = "product" if node.op_type in _PRODUCTS else ""
    stored = integers.T[:, :, None] if "convolution" in form else integers
    low.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(stored), "w"))
    return high, low


@pytest.mark.parametrize("form", _OTHERS)
@pytest.mark.parametrize(("pair", "is_safe"), [((64, 64), True), ((64, 65), False), ((127, -128), True)])
def test_exact_sums_judge_no_file_whose_pairs_may_saturate_here(
    form: str, pair: tuple[int, int], is_safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    high, low = _of_another_tool(form, pair)
    data = {"x": np.random.default_rng(0).uniform(0, 2.5, (16, 6)).astype(np.float32)}
    monkeypatch.setattr("mezzo.api.compare.find_machine", lambda: _SERVER)
    assert mezzo.compare(high, low, data).verdict.is_same
    monkeypatch.setattr("mezzo.api.compare.find_machine", lambda: _PLAIN)
    verdict = mezzo.compare(high, low, data).verdict
    assert verdict.is_same is is_safe
    if not is_safe:
        assert verdict.ruling is Ruling.UNKNOWN and verdict.because == (
            "'product': without amx_int8 or avx512_vnni or avx_vnni, as on this machine, INT8 products are added in"
            ' pairs in INT16, which may saturate with these weights; run="native" runs them here, and weights in a'
            " reduced range are right on every CPU"
        )
        assert mezzo.compare(high, low, data, run="native").verdict.ruling is not Ruling.UNKNOWN


def test_weights_that_a_runtime_multiplies_in_floats_saturate_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    high, low = _of_another_tool("QDQ", (127, 127))
    del low.graph.node[:2]
    low.graph.node[1].input[0] = "x"
    monkeypatch.setattr("mezzo.api.compare.find_machine", lambda: _PLAIN)
    data = {"x": np.random.default_rng(0).uniform(0, 2.5, (16, 6)).astype(np.float32)}
    assert mezzo.compare(high, low, data).verdict.is_same


def test_a_file_that_is_wrong_in_exact_sums_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    high, low = _of_another_tool("QDQ", (127, 127))
    low.graph.initializer[0].float_data[:] = [0.02]
    monkeypatch.setattr("mezzo.api.compare.find_machine", lambda: _PLAIN)
    data = {"x": np.random.default_rng(0).uniform(0, 2.5, (16, 6)).astype(np.float32)}
    assert mezzo.compare(high, low, data).verdict.ruling is Ruling.DIFFERENT
