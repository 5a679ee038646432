"""INT8 at every opset: axes as attributes and as operands, and steps that number values anew."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import mezzo

AXES = (2, 3)
# What stands between a convolution [N, 8, 6, 6] and a product of 8 channels: maps, each reduced by one of these.
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")
MAPS = ("Squeeze", "Unsqueeze", "Softmax", "Split", "Pad", "Slice", "Clip", "Dropout", "HardSwish", "Hardmax")
# Four products of integers of 8 bits, each off by a hundredth or so.
ERROR = 0.0625
STEPS = "smooth,weights,bias"
# The first opset at which an operator takes what it is told as operands.
AS_OPERANDS = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13, "Split": 13, "Dropout": 12} | dict.fromkeys(
    ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"), 18
)


class Network:
    """Nodes and constants of a network at one opset."""

    def __init__(self, opset: int, seed: int) -> None:
        self.opset, self.rng = opset, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def constant(self, name: str, numbers: Sequence[float] | np.ndarray, dtype: type = np.float32) -> str:
        self.weights[name] = np.asarray(numbers, dtype)
        return name

    def drawn(self, name: str, *shape: int) -> str:
        return self.constant(name, self.rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5)

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def told(self, op: str, data: str, output: str, name: str, numbers: Sequence[int], **attributes: object) -> str:
        """An operator that takes integers as an attribute or as an operand, whichever the opset has."""
        if self.opset < AS_OPERANDS[op]:
            return self.node(op, [data], output, **attributes, **{name: [*numbers]})
        return self.node(op, [data, self.constant(f"{output}_{name}", numbers, np.int64)], output, **attributes)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", 1, ["N", 3, 6, 6])],
            [helper.make_tensor_value_info("y", 1, ["N", 5])],
            [numpy_helper.from_array(numbers, name) for name, numbers in self.weights.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def mapped(net: Network, op: str) -> str:
    """What an operator makes of the maps of a convolution, "r": as many channels."""
    out = f"{op}_made"
    match op:
        case "Squeeze" | "Unsqueeze":
            return net.told("Squeeze", net.told("Unsqueeze", "r", f"{op}_wide", "axes", [4]), out, "axes", [4])
        case "Softmax" | "Hardmax":
            return net.node("Add", [net.node(op, ["r"], f"{op}_soft", axis=3), "r"], out)
        case "Split":
            net.told("Split", "r", "first", "split", [4, 4], axis=1)
            net.nodes[-1].output.append("second")
            return net.node("Concat", ["second", "first"], out, axis=1)
        case "Pad":
            return net.node("Pad", ["r", net.constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64)], out)
        case "Slice":
            told = [net.constant(f"s{at}", one, np.int64) for at, one in enumerate(([1], [5], [3]))]
            return net.node("Slice", ["r", *told], out)
        case "Clip":
            return net.node("Clip", ["r", net.constant("low", 0.0), net.constant("high", 3.0)], out)
        case "HardSwish" if net.opset < 14:
            return net.node("Mul", ["r", net.node("HardSigmoid", ["r"], "gate", alpha=1 / 6)], out)
    return net.node(op, ["r"], out)


def network(opset: int) -> onnx.ModelProto:
    """Two convolutions, a branch for each operator, and two products; weights of all shapes differ."""
    net = Network(opset, opset)
    net.node("Conv", ["x", net.drawn("w1", 6, 3, 3, 3), net.drawn("b1", 6)], "c1", pads=[1, 1, 1, 1])
    net.node("Relu", ["c1"], "r1")
    net.node("Conv", ["r1", net.drawn("w2", 8, 3, 3, 3), net.drawn("b2", 8)], "c2", pads=[1, 1, 1, 1], group=2)
    net.node("Relu", ["c2"], "r")
    flat = [
        net.told(REDUCTIONS[at % len(REDUCTIONS)], mapped(net, op), f"{op}_flat", "axes", AXES, keepdims=0)
        for at, op in enumerate(MAPS)
    ]
    net.node("Sum", flat, "flat")
    net.node("Gemm", ["flat", net.drawn("w3", 7, 8), net.drawn("b3", 7)], "g", transB=1)
    net.node("Add", [net.node("MatMul", ["g", net.drawn("w4", 7, 5)], "p"), net.drawn("b4", 5)], "y")
    return net.model()


def samples(seed: int) -> list[Mapping[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((8, 3, 6, 6)).astype(np.float32)} for _ in range(5)]


def integer_products(model: onnx.ModelProto) -> int:
    """How many products read dequantized weights."""
    made = {node.output[0]: node for node in model.graph.node}
    products = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")]
    return sum(made[node.input[1]].op_type == "DequantizeLinear" for node in products if node.input[1] in made)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("opset", [11, 12, 13, 17, 18, 21])
def test_axes_as_attributes_and_as_operands_are_quantized(opset: int, target: str) -> None:
    """Up to opset 12 a step is taken, behind which values have other numbers than in the model as it came."""
    proto = network(opset)
    onnx.checker.check_model(proto, full_check=True)
    result = mezzo.convert(proto, to="int8", target=target, data=samples(opset), correct=STEPS, check=False)
    assert result.measured is not None and result.measured.comparison is not None
    (output,) = result.measured.comparison.outputs
    assert output.relative_l2.estimate < ERROR
    assert integer_products(result.model) == 4
