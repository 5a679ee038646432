"""Rotary embeddings and attention in small operators become one operator: in every spelling, and nothing else does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from spellings.draft import FLOAT, Draft

import mezzo
from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.search import BY_TARGET, raised_in
from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_LAST = 1 << 62


class Exporter(Draft):
    """Spells what moves and multiplies as exporters do."""

    def table(self, values: np.ndarray) -> str:
        if self.choose("initializer", "Constant") == "Constant":
            return self.op("Constant", value=onnx.numpy_helper.from_array(values, "value"))
        return self.initializer(values)

    def number(self, value: float) -> str:
        return self.table(np.float32(value))

    def swapped(self, op: str, *operands: str) -> str:
        return self.op(op, *self.rng.sample(operands, len(operands)))

    def negative(self, value: str) -> str:
        if self.choose("Neg", "Mul by -1") == "Mul by -1":
            return self.swapped("Mul", value, self.number(-1))
        return self.op("Neg", value)

    def times(self, value: str, factor: float) -> str:
        if self.choose("Mul", "Div") == "Div":
            return self.op("Div", value, self.number(1 / factor))
        return self.swapped("Mul", value, self.number(factor))

    def slice(self, x: str, start: int, end: int, step: int = 1) -> str:
        last = self.integers(self.rng.choice([-1, 3]))
        steps = [self.integers(step)] if step > 1 or self.happens(0.5) else []
        return self.op("Slice", x, self.integers(start), self.integers(end), last, *steps)

    def halves(self, x: str, width: int) -> list[str]:
        match self.choose("Slice", "Slice to the end", "Split", "sizes of Shape"):
            case "Split":
                sizes = self.integers(width // 2, width // 2)
                return self.ops("Split", [x, sizes], 2, axis=self.rng.choice([-1, 3]))
            case "sizes of Shape":
                size = self.op("Gather", self.op("Shape", x), self.initializer(np.int64(3)))
                half = self.unsqueeze(self.op("Div", size, self.initializer(np.int64(2))), 0)
                axis, zero, end = self.integers(3), self.integers(0), self.integers(_LAST)
                return [self.op("Slice", x, zero, half, axis), self.op("Slice", x, half, end, axis)]
            case "Slice":
                return [self.slice(x, 0, width // 2), self.slice(x, width // 2, width)]
            case _:
                return [self.slice(x, 0, -(width // 2)), self.slice(x, width // 2, _LAST)]

    def neighbours(self, x: str, shape: Sequence[int]) -> list[str]:
        """The even and the odd lanes."""
        *leading, width = shape
        choice = self.choose("strided Slice", "Reshape and Gather", "Reshape and Split")
        if choice == "strided Slice":
            return [self.slice(x, first, _LAST, 2) for first in (0, 1)]
        pairs = self.op("Reshape", x, self.integers(*leading, width // 2, 2))
        if choice == "Reshape and Gather":
            return [self.op("Gather", pairs, self.initializer(np.int64(n)), axis=-1) for n in (0, 1)]
        parts = self.ops("Split", [pairs, self.integers(1, 1)], 2, axis=-1)
        return [self.squeeze(part, -1) for part in parts]

    def interleaved(self, even: str, odd: str, shape: Sequence[int]) -> str:
        stacked = self.op("Concat", self.unsqueeze(even, -1), self.unsqueeze(odd, -1), axis=-1)
        sizes = (0, 0, 0, -1) if len(shape) == 4 and self.happens(0.5) else shape
        return self.op("Reshape", stacked, self.integers(*sizes))


def _angles(w: Exporter, shape: Sequence[int], lanes: int, *, is_interleaved: bool, is_whole: bool) -> list[str]:
    """Cosines and sines by position: of each lane, or of each pair, in four axes or fewer."""
    batch, _, positions, _ = shape
    leading = w.rng.choice([(1, 1, positions), (batch, 1, positions), (positions,), (1, positions)])
    angles = w.weights(*leading, lanes // 2, scale=2.0)
    if w.choose("tables", "computed") == "computed":
        pairs = w.input("angles", FLOAT, angles.shape, lambda r: angles)
        if is_whole and is_interleaved:
            pairs = w.interleaved(pairs, pairs, (*leading, lanes))
        elif is_whole:
            pairs = w.op("Concat", pairs, pairs, axis=-1)
        return [w.times(w.op(function, pairs), 1.0) for function in ("Cos", "Sin")]
    if is_whole:
        angles = np.repeat(angles, 2, -1) if is_interleaved else np.concatenate([angles, angles], -1)
    return [w.table(np.cos(angles)), w.table(np.sin(angles))]


def rotary(w: Exporter) -> tuple[str, tuple[int, ...]]:
    shape = (w.rng.randint(1, 2), w.rng.randint(1, 3), w.rng.randint(2, 4), w.rng.choice([4, 6, 8]))
    x = whole = w.op("Neg", w.normal(*shape))
    lanes, is_partial = shape[-1], w.choose("all lanes", "some lanes") == "some lanes"
    if is_partial:
        lanes = 2 * w.rng.randint(1, shape[-1] // 2 - 1)
        x = w.slice(whole, 0, lanes)
    turned = (*shape[:-1], lanes)
    is_interleaved = w.choose("halves", "neighbours") == "neighbours"
    is_whole = w.choose("x turned", "pairs") == "x turned"
    cosines, sines = _angles(w, shape, lanes, is_interleaved=is_interleaved, is_whole=is_whole)
    first, second = w.neighbours(x, turned) if is_interleaved else w.halves(x, lanes)

    def joined(left: str, right: str) -> str:
        return w.interleaved(left, right, turned) if is_interleaved else w.op("Concat", left, right, axis=-1)

    if is_whole:
        other = joined(w.negative(second), first)
        result = w.swapped("Add", w.swapped("Mul", x, cosines), w.swapped("Mul", other, sines))
    else:
        real = w.op("Sub", w.swapped("Mul", first, cosines), w.swapped("Mul", second, sines))
        result = joined(real, w.swapped("Add", w.swapped("Mul", second, cosines), w.swapped("Mul", first, sines)))
    if is_partial:
        result = w.op("Concat", result, w.slice(whole, lanes, _LAST), axis=-1)
    return w.op("Abs", result), shape


def attention(w: Exporter) -> tuple[str, tuple[int, ...]]:
    batch, heads, rows, keys, width = (w.rng.randint(1, 3) for _ in range(5))
    shapes = {"x": (batch, heads, rows, width), "k": (batch, heads, keys, width), "v": (batch, heads, keys, 2)}
    query, key, value = (w.op("Neg", w.normal(*shape, name=name)) for name, shape in shapes.items())
    scale = width**-0.5
    place = w.choose("scores", "query", "keys", "both")
    if place in ("query", "both"):
        query = w.times(query, scale if place == "query" else scale**0.5)
    if place in ("keys", "both"):
        key = w.times(key, scale if place == "keys" else scale**0.5)
    match w.choose("heads first", "rows first", "three axes"):
        case "heads first":
            turned = w.op("Transpose", key, perm=[0, 1, 3, 2])
        case "rows first":
            turned = w.op("Transpose", w.op("Transpose", key, perm=[0, 2, 1, 3]), perm=[0, 2, 3, 1])
        case _:
            flat = w.op("Reshape", key, w.integers(-1, keys, width))
            turned = w.op("Transpose", flat, perm=[0, 2, 1])
            turned = w.op("Reshape", turned, w.integers(batch, heads, width, keys))
    scores = w.op("MatMul", query, turned)
    scores = w.times(scores, scale) if place == "scores" else scores
    if w.choose("no mask", "mask") == "mask":
        mask = w.rng.choice([(rows, keys), (batch, 1, rows, keys), (1, heads, rows, keys), (heads, rows, keys)])
        mask = w.rng.choice([mask, (batch, 1, 1, keys)])
        scores = w.swapped("Add", scores, w.table(w.weights(*mask)))
        weights = w.op("Softmax", scores, axis=-1)
    else:
        weights = w.op("Softmax", scores, axis=w.rng.choice([-1, 3]))
        if w.choose("no guard", "guard") == "guard":
            weights = w.op("Where", w.op("IsNaN", weights), w.number(0), weights)
    return w.op("Abs", w.op("MatMul", weights, value)), (batch, heads, rows, 2)


_OPERATORS: dict[str, Callable[[Exporter], tuple[str, tuple[int, ...]]]] = {
    "RotaryEmbedding": rotary,
    "Attention": attention,
}


def _written(op: str, seed: int) -> tuple[onnx.ModelProto, Exporter]:
    w = Exporter(seed, opset=18)
    result, shape = _OPERATORS[op](w)
    output = onnx.helper.make_tensor_value_info(result, FLOAT, shape)
    # Sizes that are known; what else is followed is in the exports of architectures.
    ports = [onnx.helper.make_tensor_value_info(p.info.name, FLOAT, p.sample(w.numbers).shape) for p in w.ports]
    graph = onnx.helper.make_graph(w.nodes, "g", ports, [output], w.initializers)
    opset = onnx.helper.make_opsetid("", w.opset)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), w


def _raised(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Replacement]]:
    opened = open_model(model)
    reading = opened.read(DType.FLOAT16)
    view = FusionView(reading.graph, rows_of(reading.graph))

    def read(value: int) -> Any:
        return next((array for _, array in opened.weights(reading, [value])), None)

    found = raised_in(view, lambda op, since, attributes: op in BY_TARGET, (), read)
    return (opened.raised(reading, found, 23).original if found else model), found  # type: ignore[return-value]


def _answer(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    result: np.ndarray = session.run(None, feeds)[0]
    return result


@pytest.mark.parametrize("op", _OPERATORS)
@pytest.mark.parametrize("part", range(2))
def test_every_spelling_is_raised_and_answers_the_same(op: str, part: int) -> None:
    for seed in range(part * 40, part * 40 + 40):
        model, w = _written(op, seed)
        raised, found = _raised(model)
        assert [each.op for each in found] == [op], (seed, w.notes)
        onnx.checker.check_model(raised, full_check=True)
        feeds = {port.info.name: port.sample(np.random.default_rng(seed)) for port in w.ports}
        # 16 eps of FP32: sums of a few numbers, in another order.
        np.testing.assert_allclose(
            _answer(raised, feeds), _answer(model, feeds), rtol=2e-6, atol=2e-6, err_msg=str(w.notes)
        )


_ROTARY = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1,2,3,4] x, float[1,2,3,4] u) => (float[1,2,3,4] y{outputs})
<float[1,1,3,4] c = {{1,2,1,2, 3,4,3,4, 5,6,5,6}}, float[1,1,3,4] s = {{1,2,1,2, 3,4,3,4, 5,6,5,6}},
 float[1,1,3,4] odd = {{1,2,1,3, 3,4,3,4, 5,6,5,6}}, float[1,2,1,4] heads = {{1,2,1,2, 3,4,3,4}},
 int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] last = {{-1}}>
{{ a = Slice({x}, zero, {half}, last)  b = Slice(x, {half}, four, last)  n = Neg({b})
   r = Concat<axis = -1>(n, {a})  p = Mul({u}, {c})  q = Mul(r, {s})  y = Add(p, q) }}"""


def _rotary(**parts: str) -> str:
    usual = {"x": "x", "half": "two", "b": "b", "a": "a", "u": "x", "c": "c", "s": "s", "outputs": ""}
    return _ROTARY.format_map(usual | parts)


_ATTENTION = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2,{h},3,4] x, float[2,2,{t},4] k, float[2,{vh},{t},5] v, float[{mask}] m) => (float[2,2,3,5] y{outputs})
<float half = {{0.5}}, float minus = {{-0.5}}, float nought = {{0}}, float[3,1] rows = {{1,2,3}}>
{{ t = Transpose<perm = [{perm}]>(k)  a = MatMul(x, t)  b = Mul(a, {scale})  {c}
   p = Softmax<axis = {axis}>(c)  y = MatMul({p}, v) }}"""


def _attention(**parts: str) -> str:
    usual = {"h": "2", "t": "6", "vh": "2", "mask": "3,6", "outputs": "", "perm": "0,1,3,2", "scale": "half"}
    usual |= {"c": "c = Add(b, m)", "axis": "-1", "p": "p"}
    return _ATTENTION.format_map(usual | parts)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_rotary(x="u"), id="halves of two values"),
        pytest.param(_rotary(u="u"), id="cosines by another value"),
        pytest.param(_rotary(b="a", a="b"), id="turned backwards"),
        pytest.param(_rotary(half="one"), id="not halves"),
        pytest.param(_rotary(c="odd"), id="cosines differ in a pair"),
        pytest.param(_rotary(s="odd"), id="sines differ in a pair"),
        pytest.param(_rotary(c="heads"), id="angles by head"),
        pytest.param(_rotary(outputs=", float[1,2,3,4] q"), id="product is an output"),
        pytest.param(_attention(axis="2"), id="softmax over rows"),
        pytest.param(_attention(scale="minus"), id="negative scale"),
        pytest.param(_attention(scale="rows"), id="scale by row"),
        pytest.param(_attention(c="c = Add(b, b)"), id="scores twice"),
        pytest.param(_attention(outputs=", float[2,2,3,6] p"), id="weights are an output"),
        pytest.param(_attention(h="1"), id="queries of one head"),
        pytest.param(_attention(vh="1"), id="values of one head"),
        pytest.param(_attention(c="n = IsNaN(p)  w = Where(n, nought, p)  c = Add(b, m)", p="w"), id="guard"),
    ],
)
def test_what_computes_something_else_stays(text: str) -> None:
    _raised_model, found = _raised(onnx.parser.parse_model(text))
    assert not found, found


@pytest.mark.parametrize(
    ("text", "target", "op"),
    [
        (_rotary(), "onnxruntime-cpu", "RotaryEmbedding"),
        (_rotary(), "onnxruntime-cuda", "RotaryEmbedding"),
        (_rotary(), "openvino-cpu", None),
        (_rotary(), "tensorrt", None),
        (_rotary(), "any", None),
        (_attention(), "onnxruntime-cuda", "Attention"),
        (_attention(), "onnxruntime-cpu", None),
        (_attention(), "openvino-cpu", None),
    ],
)
def test_targets_that_gain_raise(text: str, target: str, op: str | None) -> None:
    converted = mezzo.convert(onnx.parser.parse_model(text), to="fp16", target=target)
    assert isinstance(converted.model, onnx.ModelProto)
    ops = {node.op_type for node in converted.model.graph.node}
    assert ops & set(BY_TARGET) == ({op} if op else set())
    assert converted.model.opset_import[0].version == (23 if op else 20)


@pytest.mark.parametrize(("text", "target"), [(_rotary(), "onnxruntime-cpu"), (_attention(), "onnxruntime-cuda")])
def test_plan_of_a_raised_model_is_replayed(text: str, target: str, tmp_path: Path) -> None:
    source = onnx.parser.parse_model(text)
    converted = mezzo.convert(source, to="fp16", target=target)
    mezzo.save_plan(converted.plan, tmp_path / "plan.json")
    assert mezzo.convert(source, plan=tmp_path / "plan.json").model == converted.model


def test_the_opset_stays_where_a_kernel_would_be_lost() -> None:
    text = _attention().replace("y = MatMul(p, v)", "w = MatMul(p, v)  y = MaxPool<kernel_shape = [1, 1]>(w)")
    converted = mezzo.convert(onnx.parser.parse_model(text), to="fp16", target="onnxruntime-cuda", opset="auto")
    assert isinstance(converted.model, onnx.ModelProto)
    assert converted.model.opset_import[0].version == 20
