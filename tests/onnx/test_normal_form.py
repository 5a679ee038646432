"""Laws of normal form: what exporters spell differently for one network leads to the same model, plan and answers.
Single spellings stand in tests/golden/normal_form.
"""

import random

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantized_cases import open_model
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.onnx.run.session import native_session

Array = npt.NDArray[np.float32]
_HEAVY = frozenset({"Conv", "Gemm", "MatMul"})
# A convolution that pads by itself adds up to 36 products in another order than one behind a Pad, through up to six
# layers: each order errs by half an eps per sum.
_TOLERANCE = 36 * 6 * float(np.finfo(np.float32).eps)


class Network:
    """A network of convolutions and products drawn at random, as an exporter would write it plainly."""

    def __init__(self, seed: int) -> None:
        self.rng, self.values = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.count = 0
        made, channels = "x", 4
        for _ in range(self.rng.randint(1, 3)):
            made = self._convolution(made, channels)
        made = self._add("Flatten", [made])
        size = channels * 36
        for _ in range(self.rng.randint(1, 3)):
            outs = self.rng.choice((8, 12))
            made, size = self._product(made, size, outs), outs
        self.nodes[-1].output[0] = "y"

    def model(self) -> onnx.ModelProto:
        ports = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 6, 6]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, None]),
        ]
        held = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "g", ports[:1], ports[1:], held)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy

    def _add(self, op: str, inputs: list[str], **attributes: object) -> str:
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.count}"], f"n{self.count}", **attributes))
        return f"v{self.count}"

    def _weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (self.values.normal(size=shape) / 4).astype(np.float32)
        return name

    def _convolution(self, made: str, channels: int) -> str:
        operands = [made, self._weight(channels, channels, 3, 3), self._weight(channels)]
        return self._add("Relu", [self._add("Conv", operands, pads=[1, 1, 1, 1])])

    def _product(self, made: str, ins: int, outs: int) -> str:
        if self.rng.random() < 0.5:
            made = self._add("Gemm", [made, self._weight(ins, outs), self._weight(outs)])
        else:
            product = self._add("MatMul", [made, self._weight(ins, outs)])
            made = self._add("Add", [product, self._weight(outs)])
        return self._add("Relu", [made])


class Respelled:
    """A model in which operators that change nothing were put at random."""

    def __init__(self, model: onnx.ModelProto, seed: int) -> None:
        self.rng, self.model, self.graph = random.Random(seed), model, model.graph
        self.nodes: list[onnx.NodeProto] = []
        self.is_padded = False
        self.count = 0
        weights = {tensor.name: tensor for tensor in self.graph.initializer}
        for node in [*self.graph.node]:
            for position, name in enumerate(node.input):
                if name in weights and self.rng.random() < 0.7:
                    spell = self.rng.choice((self._identity, self._transposed, self._flat, self._wide, self._part))
                    node.input[position] = spell(weights[name])
            if node.op_type == "Conv" and self.rng.random() < 0.5:
                self._pad(node)
            elif self.rng.random() < 0.4:
                node.input[0] = self.rng.choice((self._moved, self._dropped, self._reshaped))(node.input[0])
            self.nodes.append(node)
        self._new("Neg", ["x"])  # read by nobody
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def _new(self, op: str, inputs: list[str], **attributes: object) -> str:
        self.count += 1
        made = f"s{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [made], f"neutral{self.count}", **attributes))
        return made

    def _hold(self, array: npt.NDArray[np.generic]) -> str:
        self.count += 1
        self.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), f"c{self.count}"))
        return f"c{self.count}"

    def _identity(self, tensor: TensorProto) -> str:
        return self._new("Identity", [tensor.name])

    def _transposed(self, tensor: TensorProto) -> str:
        array = numpy_helper.to_array(tensor)
        return self._new("Transpose", [self._hold(array.T)])

    def _flat(self, tensor: TensorProto) -> str:
        flat = self._hold(numpy_helper.to_array(tensor).reshape(-1))
        return self._new("Reshape", [flat, self._hold(np.array(tensor.dims, np.int64))])

    def _wide(self, tensor: TensorProto) -> str:
        wide = self._hold(numpy_helper.to_array(tensor).astype(np.float64))
        return self._new("Cast", [wide], to=TensorProto.FLOAT)

    def _part(self, tensor: TensorProto) -> str:
        array = numpy_helper.to_array(tensor)
        stack = self._hold(np.stack([array, array + 1]))
        return self._new("Gather", [stack, self._hold(np.array(0, np.int64))])

    def _pad(self, node: onnx.NodeProto) -> None:
        pads = self._hold(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
        node.input[0] = self._new("Pad", [node.input[0], pads])
        del node.attribute[:]
        self.is_padded = True

    def _moved(self, name: str) -> str:
        return self._new("Cast", [self._new("Identity", [name])], to=TensorProto.FLOAT)

    def _dropped(self, name: str) -> str:
        return self._new("Dropout", [name])

    def _reshaped(self, name: str) -> str:
        """The shape that a value has, by the arithmetic of exporters."""
        shape = self._new("Shape", [name])
        first = self._new("Gather", [shape, self._hold(np.array(0, np.int64))])
        axis = self._hold(np.array([0], np.int64))
        rest = self._new("Slice", [shape, self._hold(np.array([1], np.int64)), self._hold(np.array([9], np.int64))])
        whole = self._new("Concat", [self._new("Unsqueeze", [first, axis]), rest], axis=0)
        return self._new("Reshape", [name, whole])


def _normal(proto: onnx.ModelProto) -> onnx.ModelProto:
    model = open_model(proto)
    fused = model.fused(model.read(DType.FLOAT16), [])
    normal: onnx.ModelProto = fused.materialize(fused.original)
    return normal


def _answer(proto: onnx.ModelProto) -> Array:
    feeds = {"x": np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float32)}
    (answer,) = native_session(proto).run(feeds).values()
    return np.asarray(answer, np.float32)


def _heavy_levels(plan: mezzo.Plan) -> dict[str, str]:
    return {node.name: str(node.precision.compute) for node in plan.nodes if node.op in _HEAVY}


@pytest.mark.parametrize("seed", range(swept(40)))
def test_neutral_spellings_leave_the_same_operators_and_answers(seed: int) -> None:
    plain = Network(seed).model()
    respelled = Respelled(Network(seed).model(), seed)
    onnx.checker.check_model(respelled.model, full_check=True)

    normal = _normal(respelled.model)

    onnx.checker.check_model(normal, full_check=True)
    assert [(node.name, node.op_type) for node in normal.graph.node] == [
        (node.name, node.op_type) for node in plain.graph.node
    ], f"seed {seed}"
    found, wanted = _answer(normal), _answer(respelled.model)
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    assert error <= (_TOLERANCE if respelled.is_padded else 0.0), f"seed {seed}: {error}"
    assert _normal(normal) == normal, "nothing is left to fold"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_neutral_spellings_change_no_level_of_heavy_operators(seed: int, target: str) -> None:
    values = np.random.default_rng(2)
    data = [{"x": values.normal(size=(2, 4, 6, 6)).astype(np.float32)} for _ in range(4)]
    plain, respelled = Network(seed).model(), Respelled(Network(seed).model(), seed).model

    result, wanted = (
        mezzo.convert(proto, to="int8", target=target, data=data, correct="none") for proto in (respelled, plain)
    )
    again = mezzo.convert(respelled, plan=result.plan)

    levels = _heavy_levels(result.plan)
    assert levels == _heavy_levels(wanted.plan), f"seed {seed}"
    assert "int8" in levels.values()
    assert again.model.SerializeToString() == result.model.SerializeToString(), f"seed {seed}: a replay folds the same"


def _tied(others: int) -> onnx.ModelProto:
    """An embedding whose table, 120 KB, is that of the head too, transposed, with products of other weights between."""
    values = np.random.default_rng(4)
    table = values.normal(size=(300, 100)).astype(np.float32)
    tensors, nodes, made = [numpy_helper.from_array(table, "table")], [], "h0"
    nodes.append(helper.make_node("Gather", ["table", "ids"], ["h0"], "embedding"))
    for number in range(others):
        weight = (values.normal(size=(100, 100)) / 10).astype(np.float32)
        tensors.append(numpy_helper.from_array(weight, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [made, f"w{number}"], [f"h{number + 1}"], f"product{number}"))
        made = f"h{number + 1}"
    nodes.append(helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", [made, "turned"], ["y"], "head"))
    ports = [helper.make_tensor_value_info("ids", TensorProto.INT64, [8])]
    ports.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 300]))
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("others", [0, 4])
def test_a_table_read_twice_never_makes_the_file_larger(others: int) -> None:
    proto = _tied(others)
    data = [{"ids": np.random.default_rng(seed).integers(0, 300, 8)} for seed in range(4)]

    result = mezzo.convert(proto, to="int8", target="onnxruntime-cpu", data=data, correct="none", provenance=False)

    nodes = {node.name: str(node.precision.compute) for node in result.plan.nodes if node.kind == "op"}
    assert ("turn" in nodes) is (others == 0), "stored once more where other weights give room for it"
    assert nodes["head"] == ("f32" if others == 0 else "int8")
    assert result.model.ByteSize() <= proto.ByteSize()


@pytest.mark.parametrize("low", ["fp16", "bf16"])
def test_floats_are_simplified_where_that_is_asked_for(low: str) -> None:
    plain, respelled = Network(5).model(), Respelled(Network(5).model(), 5).model

    kept = mezzo.convert(respelled, to=low, target="onnx")
    simple = mezzo.convert(respelled, to=low, target="onnx", fuse="simplify")
    again = mezzo.convert(respelled, plan=simple.plan)

    def ops(model: onnx.ModelProto) -> list[str]:
        return [node.op_type for node in model.graph.node if node.op_type != "Cast"]

    assert {node.op_type for node in respelled.graph.node} == {node.op_type for node in kept.model.graph.node} | {
        "Cast"
    }
    assert ops(simple.model) == ops(plain)
    assert again.model.SerializeToString() == simple.model.SerializeToString()


def test_a_model_that_takes_no_quantized_kernel_keeps_its_form() -> None:
    """A folded copy is paid for by smaller weights; where none gets smaller, nothing is folded."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[64,64] x) => (float[64,64] y) {
       a = Mul(x, w)
       t = Transpose <perm = [1, 0]> (w)
       b = Mul(a, t)
       c = Add(b, v1)
       y = Sub(c, v2)
    }"""
    model, draw = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name in ("w", "v1", "v2"):
        model.graph.initializer.append(numpy_helper.from_array(draw.random((64, 64), np.float32), name))
    data = {"x": draw.random((64, 64), np.float32)}
    result = mezzo.convert(model, to="int8", target="onnxruntime-cpu", data=data).model
    assert [node.op_type for node in result.graph.node] == [node.op_type for node in model.graph.node]
    assert result.ByteSize() < model.ByteSize() + 64 * 64 * 4
