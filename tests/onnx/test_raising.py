"""Norms and activations in small operators become one operator: in every spelling, and nothing else does."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from spellings.phrases import Writer

import mezzo
from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.search import BY_TARGET, raised_in
from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_SHAPE = (3, 5, 16)
_EPSILON = 1e-5


class Exporter(Writer):
    """Spells as exporters do: constants are constants, means are reductions, and no node does nothing."""

    def noise(self, value: str) -> str:
        return value

    def constant(self, values: Any) -> str:
        array = np.asarray(values, np.float32)
        if self.choose("initializer", "Constant") == "Constant":
            return self.op("Constant", value=onnx.numpy_helper.from_array(array, "value"))
        return self.initializer(array)

    def add(self, a: str, b: str) -> str:
        match self.choose("Add", "Add swapped", "Sum"):
            case "Add swapped":
                return self.op("Add", b, a)
            case "Sum":
                return self.op("Sum", a, b)
            case _:
                return self.op("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        if self.choose("Sub", "Add of Neg") == "Add of Neg":
            return self.op("Add", a, self.op("Neg", b))
        return self.op("Sub", a, b)

    def square(self, x: str) -> str:
        match self.choose("Mul(x, x)", "Pow 2", "Mul(x, Identity(x))"):
            case "Pow 2":
                return self.op("Pow", x, self.constant(2))
            case "Mul(x, Identity(x))":
                return self.op("Mul", x, self.op("Identity", x))
            case _:
                return self.op("Mul", x, x)

    def moments(self, values: Sequence[str]) -> list[str]:
        """Means over the last axis, which is kept, or lost and given back."""
        match self.choose("ReduceMean", "ReduceSum", "Unsqueeze", "Reshape", "axis from the front"):
            case "ReduceSum":
                return [self.times(self.reduce("ReduceSum", value, -1), 1 / _SHAPE[-1]) for value in values]
            case "Unsqueeze":
                return [self.unsqueeze(self.reduce("ReduceMean", value, -1, keeps=False), -1) for value in values]
            case "Reshape":
                means = [self.reduce("ReduceMean", value, -1, keeps=False) for value in values]
                return [self.op("Reshape", mean, self.integers(*_SHAPE[:-1], 1)) for mean in means]
            case "axis from the front":
                return [self.reduce("ReduceMean", value, len(_SHAPE) - 1) for value in values]
            case _:
                return [self.reduce("ReduceMean", value, -1) for value in values]

    def vector(self) -> str:
        values = self.weights(_SHAPE[-1], offset=1.0, scale=0.3)
        return self.constant(values.reshape((1, 1, -1)) if self.happens(0.3) else values)


def _variance(w: Exporter, x: str) -> tuple[str, str]:
    """The variance over the last axis, and the mean."""
    if w.choose("around the mean", "of moments") == "of moments":
        mean, squares = w.moments([x, w.square(x)])
        variance = w.sub(squares, w.square(mean))
        if w.happens(0.5):
            zero = w.constant(0)
            variance = w.op("Max", *w.rng.sample([variance, zero], 2))
        return variance, mean
    (mean,) = w.moments([x])
    (variance,) = w.moments([w.square(w.sub(x, mean))])
    return variance, mean


def layer_norm(w: Exporter, x: str) -> str:
    variance, mean = _variance(w, x)
    guarded = w.plus(variance, _EPSILON)
    has_scale, has_shift = w.happens(0.8), w.happens(0.8)
    match w.choose("by parts", "scale into the root", "batch norm"):
        case "scale into the root" if has_scale:
            result = w.mul(w.sub(x, mean), w.over_root(w.vector(), guarded))
        case "batch norm" if has_scale:
            factor = w.over_root(w.vector(), guarded)
            return w.add(w.mul(x, factor), w.sub(w.vector(), w.mul(mean, factor)))
        case _:
            result = w.over_root(w.sub(x, mean), guarded)
            result = w.mul(result, w.vector()) if has_scale else result
    return w.add(result, w.vector()) if has_shift else result


def rms_norm(w: Exporter, x: str) -> str:
    (moment,) = w.moments([w.square(x)])
    result = w.over_root(x, w.plus(moment, _EPSILON))
    return w.mul(w.vector(), result) if w.happens(0.8) else result


def gelu(w: Exporter, x: str) -> str:
    match w.choose("erf", "tanh"):
        case "tanh":
            inner = w.add(x, w.times(_cube(w, x), 0.044715))
            core = w.op("Tanh", w.times(inner, float(np.sqrt(2 / np.pi))))
        case _:
            core = w.op("Erf", w.times(x, float(np.sqrt(0.5))))
    shifted = w.plus(core, 1)
    match w.choose("half of x", "half of the sum", "half of the product"):
        case "half of x":
            return w.mul(w.times(x, 0.5), shifted)
        case "half of the sum":
            return w.mul(x, w.times(shifted, 0.5))
        case _:
            return w.times(w.mul(x, shifted), 0.5)


def _cube(w: Exporter, x: str) -> str:
    return w.op("Pow", x, w.constant(3)) if w.choose("Mul", "Pow 3") == "Pow 3" else w.mul(w.op("Mul", x, x), x)


def hard_swish(w: Exporter, x: str) -> str:
    match w.choose("Clip", "HardSigmoid"):
        case "HardSigmoid":
            return w.mul(x, w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        case _:
            clipped = w.op("Clip", w.plus(x, 3), w.scalar(0), w.scalar(6))
    if w.choose("gate first", "product first") == "product first":
        return w.times(w.mul(x, clipped), 1 / 6)
    return w.mul(x, w.times(clipped, 1 / 6))


_OPERATORS: dict[str, Callable[[Exporter, str], str]] = {
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "Gelu": gelu,
    "HardSwish": hard_swish,
}


def _written(op: str, seed: int) -> tuple[onnx.ModelProto, list[str]]:
    """A model in which one operator, between two others, is written out; and how it is spelled."""
    w = Exporter(seed)
    x = w.op("Neg", w.normal(*_SHAPE))
    y = w.op("Abs", _OPERATORS[op](w, x))
    graph = onnx.helper.make_graph(
        w.nodes,
        "g",
        [port.info for port in w.ports],
        [onnx.helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, list(_SHAPE))],
        w.initializers,
    )
    opset = onnx.helper.make_opsetid("", w.opset)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), w.notes


def _raised(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Replacement]]:
    """The model at opset 23 with all that can be raised there, whatever the target."""
    opened = open_model(model)
    reading = opened.read(DType.FLOAT16)
    view = FusionView(reading.graph, rows_of(reading.graph))

    def accepts(op: str, since: int, attributes: Mapping[str, object]) -> bool:
        return op not in BY_TARGET and since <= 23

    found = raised_in(view, accepts, (), lambda value: None)
    return (opened.raised(reading, found, 23).original if found else model), found  # type: ignore[return-value]


def _answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    result: np.ndarray = session.run(None, {"x": x})[0]
    return result


@pytest.mark.parametrize("op", _OPERATORS)
@pytest.mark.parametrize("part", range(2))
def test_every_spelling_is_raised_and_answers_the_same(op: str, part: int) -> None:
    for seed in range(part * 15, part * 15 + 15):
        model, notes = _written(op, seed)
        raised, found = _raised(model)
        assert [each.op for each in found] == [op], notes
        assert [node.op_type for node in raised.graph.node if node.op_type != "Constant"] == ["Neg", op, "Abs"], notes
        onnx.checker.check_model(raised, full_check=True)
        x = np.random.default_rng(seed).standard_normal(_SHAPE).astype(np.float32)
        # 16 eps of FP32: sums of 16 numbers, whose order differs, and a root and quotient after them.
        np.testing.assert_allclose(_answer(raised, x), _answer(model, x), rtol=2e-6, atol=2e-6, err_msg=str(notes))


_HEAD = '<ir_version: 10, opset_import: ["" : 18]>\ng (float[3,16] x, float[3,16] u) => (float[3,16] y{more})\n'
_CONSTANTS = (
    "<float one = {1}, float two = {2}, float half = {0.5}, float root = {1.4142135}, float eps = {1e-5},"
    " int64[1] last = {-1}, int64[1] first = {0}, float n = {15}, float minus = {-0.5},"
    " float[3,1] rows = {1, 2, 3}, float[1,1,1] high = {1e-5}>\n"
)
_NORM = """
{{ m = ReduceMean{keeps}(x, last)  c = Sub(x, m)  s = Mul(c, {c})  v = {mean}  e = Add(v, {eps})
   r = Sqrt(e)  {y} }}"""
_GELU = "{{ d = Div(x, {root})  e = Erf(d)  p = Add(e, {one})  h = Mul({x}, {half})  y = Mul(h, p) {more} }}"


def _norm(**parts: str) -> str:
    usual = {"keeps": "", "c": "c", "mean": "ReduceMean(s, last)", "eps": "eps", "y": "y = Div(c, r)"}
    return _CONSTANTS + _NORM.format_map(usual | parts)


def _gelu(**parts: str) -> str:
    usual = {"root": "root", "one": "one", "x": "x", "half": "half", "more": ""}
    return _CONSTANTS + _GELU.format_map(usual | parts)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        pytest.param(_norm(mean="ReduceMean(s, first)"), "", id="variance over another axis"),
        pytest.param(_norm(c="u"), "", id="covariance with another value"),
        pytest.param(_norm(eps="minus"), "", id="negative epsilon"),
        pytest.param(_norm(eps="rows"), "", id="epsilon by row"),
        pytest.param(_norm(y="y = Div(u, r)"), "", id="another value scaled"),
        pytest.param(_norm(y="y = Mul(c, r)"), "", id="times the deviation"),
        pytest.param(_norm(), ", float[3,1] r", id="deviation is an output"),
        pytest.param(_gelu(root="two"), "", id="another slope"),
        pytest.param(_gelu(one="two"), "", id="another shift"),
        pytest.param(_gelu(half="one"), "", id="not halved"),
        pytest.param(_gelu(half="rows"), "", id="scaled by row"),
        pytest.param(_gelu(x="u"), "", id="gates another value"),
        pytest.param(_gelu(more="z = Neg(p)"), ", float[3,16] z", id="part read elsewhere"),
    ],
)
def test_what_computes_something_else_stays(body: str, outputs: str) -> None:
    model = onnx.parser.parse_model(_HEAD.replace("{more}", outputs) + body)
    raised, found = _raised(model)
    assert not found, found
    assert raised is model


def test_scale_that_varies_by_row_stays_behind_the_norm() -> None:
    model = onnx.parser.parse_model(
        _HEAD.replace("{more}", "") + _norm(y="q = Div(c, r)  y = Mul(q, rows)").replace("first", "front")
    )
    raised, _found = _raised(model)
    assert [node.op_type for node in raised.graph.node] == ["LayerNormalization", "Mul"]
    (scale,) = [t for t in raised.graph.initializer if t.name == raised.graph.node[0].input[1]]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(scale), np.ones(16, np.float32))


_MODEL = _HEAD.replace("{more}", "") + _norm(y="[end] y = Div(c, r)")


@pytest.mark.parametrize(
    ("options", "is_raised"),
    [
        ({}, True),
        ({"fuse": "operators"}, True),
        ({"fuse": "none"}, False),
        ({"exclude": ("end",)}, False),
        ({"include": ("end",)}, False),
        ({"policy": "off"}, False),
        ({"policy": "tvm"}, False),
        ({"to": "int8", "calibrator": "none"}, False),
        ({"target": "any"}, True),
    ],
)
def test_options_that_raise(options: dict[str, Any], is_raised: bool) -> None:
    converted = mezzo.convert(onnx.parser.parse_model(_MODEL), **{"to": "fp16", **options})
    ops = {node.op_type for node in converted.model.graph.node}  # type: ignore[union-attr]
    assert ("LayerNormalization" in ops) is is_raised


def test_a_shift_that_is_named_stays_behind_the_norm() -> None:
    text = _HEAD.replace("{more}", "") + _norm(y="q = Div(c, r)  [shift] y = Add(q, u)")
    model = onnx.parser.parse_model(
        text.replace("Add(q, u)", "Add(q, gain)").replace(
            "float n", "float[16] gain = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float n"
        )
    )
    whole, part = (mezzo.convert(model, to="fp16", exclude=exclude) for exclude in ((), ("shift",)))
    assert [node.op_type for node in whole.model.graph.node if node.op_type != "Cast"] == ["LayerNormalization"]  # type: ignore[union-attr]
    assert [node.op_type for node in part.model.graph.node if node.op_type != "Cast"] == ["LayerNormalization", "Add"]  # type: ignore[union-attr]


_RMS = (
    _HEAD.replace("{more}", "")
    + _CONSTANTS
    + "{ s = Mul(x, x)  v = ReduceMean(s, last)  e = Add(v, eps)  r = Sqrt(e)  y = Div(x, r) }"
)


@pytest.mark.parametrize(
    ("target", "opset", "wanted"),
    [
        ("tensorrt", "auto", 23),
        ("tensorrt", "keep", 18),
        ("any", "auto", 23),
        ("openvino-cpu", "auto", 23),
        ("onnxruntime-web", "auto", 18),
    ],
)
def test_opset_rises_for_an_operator_that_the_target_has(target: str, opset: str, wanted: int) -> None:
    converted = mezzo.convert(onnx.parser.parse_model(_RMS), to="fp16", target=target, opset=opset)
    model = converted.model
    assert isinstance(model, onnx.ModelProto)
    assert model.opset_import[0].version == converted.summary.opset_after == wanted
    assert any(node.op_type == "RMSNormalization" for node in model.graph.node) is (wanted == 23)


@pytest.mark.parametrize(("text", "target"), [(_MODEL, "onnxruntime-cpu"), (_RMS, "tensorrt")])
def test_plan_of_a_raised_model_is_replayed(text: str, target: str, tmp_path: Path) -> None:
    source = onnx.parser.parse_model(text)
    converted = mezzo.convert(source, to="fp16", target=target)
    mezzo.save_plan(converted.plan, tmp_path / "plan.json")
    again = mezzo.convert(source, plan=tmp_path / "plan.json")
    assert again.model == converted.model


def test_a_plan_keeps_the_parts_of_operators(tmp_path: Path) -> None:
    """A replay raises them; other tools are told of the nodes that the model has, of a norm in FP32."""
    plan = mezzo.plan(onnx.parser.parse_model(_MODEL), to="fp16")
    mezzo.save_plan(plan, tmp_path / "plan.json")
    loaded = mezzo.load_plan(tmp_path / "plan.json")
    names = ("ReduceMean:m", "Sub:c", "Mul:s", "ReduceMean:v", "Add:e", "Sqrt:r")
    assert loaded.parts == plan.parts == tuple((name, "end") for name in names)
    assert [node.name for node in mezzo.explain(plan, "v")] == ["end"]
    excluded = json.loads(mezzo.export_plan(loaded, "modelopt"))["autocast"]["nodes_to_exclude"]
    assert excluded == [f"{name}$" for name in (*names, "end")]
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('"Sub:c": "end"', '"Sub:c": "nowhere"'))
    with pytest.raises(mezzo.InputError, match="parts names 'nowhere', and no node is called so"):
        mezzo.load_plan(tmp_path / "plan.json")
