"""Results in ONNX Runtime's own operators: answers stay, what somebody else reads stops a fusion, plans replay. Single
rules with their negatives stand in tests/golden/own.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mezzo
from mezzo.plugins import discovery

Array = npt.NDArray[np.float32]

# Both compute in FP32, some in another order: up to a hundred products of a sum and ten steps behind it round by half
# an eps each, and a mean that is subtracted leaves up to ten times that: 84 eps.
_TOLERANCE = 1e-5
_OWN = "com.microsoft"
_ROWS, _WIDTH = 5, 8


class _Drawing:
    """A graph of [batch, rows, width] that grows piece by piece."""

    def __init__(self, seed: int) -> None:
        self.rng, self.values = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, Array] = {}

    def put(self, op: str, *operands: str | float | Array, **attributes: object) -> str:
        """Add an operator; numbers and arrays become weights."""
        names = []
        for operand in operands:
            if not isinstance(operand, str):
                name = f"w{len(self.held)}"
                self.held[name] = np.asarray(operand, np.float32)
                operand = name
            names.append(operand)
        made = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [made], f"{op}{len(self.nodes)}", **attributes))
        return made

    def normal(self, *shape: int) -> Array:
        return (self.values.normal(size=shape) / 2).astype(np.float32)


def _gelu(draw: _Drawing, x: str) -> str:
    inner = draw.put("Div", x, np.sqrt(2)) if draw.rng.random() < 0.5 else draw.put("Mul", np.sqrt(0.5), x)
    shifted = draw.put("Add", draw.put("Erf", inner), 1.0)
    if draw.rng.random() < 0.5:
        return draw.put("Mul", draw.put("Mul", x, shifted), 0.5)
    return draw.put("Mul", x, draw.put("Mul", shifted, 0.5))


def _biased_gelu(draw: _Drawing, x: str) -> str:
    return _gelu(draw, draw.put("Add", x, draw.normal(_WIDTH)))


def _fast_gelu(draw: _Drawing, x: str) -> str:
    cubic = draw.put("Add", x, draw.put("Mul", draw.put("Pow", x, 3.0), 0.044715))
    shifted = draw.put("Add", draw.put("Tanh", draw.put("Mul", cubic, np.sqrt(2 / np.pi))), 1.0)
    return draw.put("Mul", draw.put("Mul", x, 0.5), shifted)


def _silu(draw: _Drawing, x: str) -> str:
    return draw.put("Mul", x, draw.put("Sigmoid", draw.put("Mul", x, 1.702) if draw.rng.random() < 0.5 else x))


def _skip_norm(draw: _Drawing, x: str) -> str:
    summed = draw.put("Add", x, draw.put("Tanh", x))
    scale, shift = draw.normal(_WIDTH), draw.normal(_WIDTH)
    if draw.rng.random() < 0.5:
        return draw.put("LayerNormalization", summed, scale, shift, axis=-1, epsilon=1e-3)
    centred = draw.put("Sub", summed, draw.put("ReduceMean", summed, axes=[2]))
    variance = draw.put("ReduceMean", draw.put("Pow", centred, 2.0), axes=[-1])
    quotient = draw.put("Div", centred, draw.put("Sqrt", draw.put("Add", variance, 1e-5)))
    return draw.put("Add", draw.put("Mul", quotient, scale), shift)


def _products(draw: _Drawing, x: str) -> str:
    """Scores of rows against rows, and what they weigh: both products take a scale and a transposed operand in."""
    turned = draw.put("Transpose", x, perm=[0, 2, 1])
    scores = draw.put("Mul", draw.put("MatMul", draw.put("Mul", x, 0.5), turned), 0.7)
    return draw.put("Div", draw.put("MatMul", draw.put("Softmax", scores), x), 2.0)


def _matrix(draw: _Drawing, x: str) -> str:
    op = draw.rng.choice(("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh"))
    numbers = {"alpha": 0.3} if op in ("Elu", "LeakyRelu", "Selu") and draw.rng.random() < 0.5 else {}
    flat = draw.put("Reshape", x, "flat")
    if draw.rng.random() < 0.5:
        weight, bias = draw.normal(_WIDTH, _WIDTH), draw.normal(_WIDTH)
        made = draw.put("Gemm", flat, weight, bias, transB=1, alpha=0.5, beta=2.0)
    else:
        made = draw.put("Add", draw.put("MatMul", flat, draw.normal(_WIDTH, _WIDTH)), draw.normal(_WIDTH))
    return draw.put("Reshape", draw.put(op, made, **numbers), "back")


def _image(draw: _Drawing, x: str) -> str:
    op = draw.rng.choice(("Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"))
    weight = draw.normal(_ROWS, _ROWS, 3)
    made = draw.put("Conv", x, weight, draw.normal(_ROWS), pads=[1, 1])
    if draw.rng.random() < 0.5:
        made = draw.put("Add", draw.put("Mul", made, draw.normal(_ROWS, 1)), draw.normal(1, _ROWS, 1))
    bounds = draw.rng.choice(((-0.5, 0.25), (0.0,))) if op == "Clip" else ()
    return draw.put(op, made, *bounds)


_PIECES: dict[str, Callable[[_Drawing, str], str]] = {
    "Gelu": _gelu,
    "BiasGelu": _biased_gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _silu,
    "SkipLayerNormalization": _skip_norm,
    "FusedMatMul": _products,
    "FusedGemm": _matrix,
    "FusedConv": _image,
}


def _draw(seed: int, *pieces: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    draw, value = _Drawing(seed), "x"
    for piece in pieces:
        value = draw.put("Softsign", _PIECES[piece](draw, value))
    draw.nodes[-1].output[0] = "y"
    shape = [2, _ROWS, _WIDTH]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    held = [onnx.numpy_helper.from_array(array, name) for name, array in draw.held.items()]
    for name, sizes in (("flat", [-1, _WIDTH]), ("back", shape)):
        held.append(onnx.numpy_helper.from_array(np.array(sizes, np.int64), name))
    graph = helper.make_graph(draw.nodes, "g", ports[:1], ports[1:], held)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    feeds = {"x": draw.values.normal(size=shape).astype(np.float32)}
    return onnx.shape_inference.infer_shapes(proto), feeds


def _fuse(proto: onnx.ModelProto) -> onnx.ModelProto:
    return mezzo.convert(proto, to="fp16", policy="off", target="onnxruntime-cpu", fuse="onnxruntime").model


def _counts(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in proto.graph.node if node.domain == _OWN)


def _run(proto: onnx.ModelProto, feeds: dict[str, Array], *, optimized: bool) -> list[Array]:
    options, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def _error(one: onnx.ModelProto, other: onnx.ModelProto, feeds: dict[str, Array], *, optimized: bool) -> float:
    pairs = zip(_run(one, feeds, optimized=False), _run(other, feeds, optimized=optimized), strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in pairs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op", sorted(_PIECES))
def test_each_operator_is_written_and_answers_as_what_it_stands_for(op: str, seed: int) -> None:
    proto, feeds = _draw(seed, op)
    before = proto.SerializeToString(deterministic=True)

    result = _fuse(proto)

    onnx.checker.check_model(result, full_check=True)
    assert set(_counts(result)) == {op}, f"seed {seed}"
    assert {(opset.domain, opset.version) for opset in result.opset_import} == {("", 17), (_OWN, 1)}
    for optimized in (False, True):
        assert _error(proto, result, feeds, optimized=optimized) <= _TOLERANCE, f"seed {seed}"
    assert proto.SerializeToString(deterministic=True) == before, "the source is not changed"
    read = {name for node in result.graph.node for name in node.input}
    assert {tensor.name for tensor in result.graph.initializer} - {"flat", "back"} <= read


def test_every_operator_of_the_table_is_tried_here() -> None:
    rows = discovery.target("onnxruntime-cpu").own_operators
    assert {(row.dialect, row.op) for row in rows} == {(_OWN, op) for op in _PIECES}


@pytest.mark.parametrize("seed", range(40))
def test_pieces_one_behind_the_other_answer_alike(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [rng.choice(sorted(_PIECES)) for _ in range(rng.randint(2, 5))]
    proto, feeds = _draw(seed, *pieces)

    result = _fuse(proto)

    assert _counts(result) >= Counter(set(pieces)), f"seed {seed}: {pieces}"
    for optimized in (False, True):
        assert _error(proto, result, feeds, optimized=optimized) <= _TOLERANCE, f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("op", sorted(_PIECES))
def test_what_somebody_else_reads_is_in_no_operator(op: str, seed: int) -> None:
    proto, feeds = _draw(seed, op)
    fused = _fuse(proto)
    left = {name for node in fused.graph.node for name in node.output}
    inner = [node.output[0] for node in proto.graph.node if node.output[0] not in left]
    assert inner, "something was fused"
    for name in inner:
        watched = onnx.ModelProto()
        watched.CopyFrom(proto)
        (info,) = (one for one in proto.graph.value_info if one.name == name)
        watched.graph.output.append(info)

        result = _fuse(watched)

        assert name in {made for node in result.graph.node for made in node.output}, f"seed {seed}: {name}"
        assert _error(watched, result, feeds, optimized=True) <= _TOLERANCE, f"seed {seed}: {name}"


def test_a_plan_replays_with_the_same_operators(tmp_path: Path) -> None:
    proto, _ = _draw(3, "FusedGemm", "Gelu")
    options = {"to": "fp16", "policy": "off", "target": "onnxruntime-cpu", "fuse": "onnxruntime"}

    result = mezzo.convert(proto, provenance=False, **options)  # type: ignore[arg-type]  # by name
    mezzo.save_plan(result.plan, tmp_path / "p.json")
    again = mezzo.convert(proto, plan=tmp_path / "p.json", provenance=False)
    planned = mezzo.plan(proto, **options)  # type: ignore[arg-type]  # by name

    (note,) = (note for note in result.summary.notes if "own" in note)
    assert note == (
        "8 operators are written as 2 of onnxruntime's own (FusedGemm 1, Gelu 1): no other runtime loads the result"
    )
    assert again.model.SerializeToString() == result.model.SerializeToString()
    assert again.summary.notes == result.summary.notes
    assert note in planned.notes


def test_what_runs_on_integers_keeps_its_form_and_the_rest_is_fused() -> None:
    proto, _ = _draw(5, "FusedConv", "Gelu")
    values = np.random.default_rng(1)
    data = [{"x": values.normal(size=(2, _ROWS, _WIDTH)).astype(np.float32)} for _ in range(8)]

    plain = mezzo.convert(proto, to="int8", target="onnxruntime-cpu", data=data)
    fused = mezzo.convert(proto, to="int8", target="onnxruntime-cpu", data=data, fuse="onnxruntime")

    assert _counts(fused.model) == {"Gelu": 1} and not _counts(plain.model)
    steps = ("QuantizeLinear", "DequantizeLinear", "Conv")
    kept = [[node.op_type for node in each.model.graph.node if node.op_type in steps] for each in (plain, fused)]
    assert kept[0] == kept[1] and "Conv" in kept[0]
    assert fused.measured is not None and fused.measured.comparison is not None
    assert mezzo.convert(proto, plan=fused.plan).model.SerializeToString() == fused.model.SerializeToString()


def test_what_runs_in_fp16_stays_as_it_is() -> None:
    proto, _ = _draw(5, "FusedConv", "Gelu", "FusedGemm")
    result = mezzo.convert(proto, to="fp16", target="onnxruntime-cpu", fuse="onnxruntime", policy="aggressive")
    assert not _counts(result.model)
    assert any(note.startswith("none of onnxruntime's own operators") for note in result.summary.notes)


def test_a_weight_that_was_folded_once_is_not_folded_again(tmp_path: Path) -> None:
    """A large weight is multiplied as it is streamed: what an exclusion has held back stays behind it."""
    values = np.random.default_rng(2)
    held = {"w": values.normal(size=(600, 600, 1, 1)), "a": values.uniform(1, 2, (600, 1, 1)), "b": np.array(2.0)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["p"], "conv"),
        helper.make_node("Mul", ["p", "a"], ["q"], "first"),
        helper.make_node("Mul", ["q", "b"], ["y"], "second"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 600, 3, 3]) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True)
    feeds = {"x": values.normal(size=(1, 600, 3, 3)).astype(np.float32)}

    result = mezzo.convert(
        tmp_path / "m.onnx", to="int8", target="onnxruntime-cpu", fuse="onnxruntime", data=[feeds] * 4,
        exclude=("conv", "second"),
    )  # fmt: skip

    assert [node.op_type for node in result.model.graph.node] == ["Conv", "Mul"]
    assert _error(onnx.load(tmp_path / "m.onnx"), result.model, feeds, optimized=True) <= _TOLERANCE
