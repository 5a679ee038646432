"""Models with names that mean harm, and the accounts that reports draw."""

from typing import Any

import numpy as np
import onnx
import onnx.parser

from mezzo.api import convert as pipeline
from mezzo.report.records.account import describe_conversion, with_graph

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "{{7*7}}${7*7}<!--slot:title-->",
    "a\u202eb\u200bc",
    "\x1b[31mred\x00\x07",
    "' onmouseover='alert(3)",
    "]]>--><svg/onload=alert(4)>",
    "\u2028line",
    "__proto__",
    "constructor",
)
TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   h = MatMul(x, w)
   s = Softmax<axis=-1>(h)
   r = Relu(s)
   y = MatMul(r, w)
}
"""


def named(names: tuple[str, ...] = HOSTILE) -> onnx.ModelProto:
    """A chain of operators that bear these names, and make values of them."""
    made = onnx.parser.parse_model(TEXT)
    last = "y"
    for number, name in enumerate(names):
        made.graph.node.append(
            onnx.helper.make_node("Relu" if number % 2 else "Softmax", [last], [f"v{name}"], name=name)
        )
        last = f"v{name}"
    made.graph.output[0].name = last
    return made


def account_of(model: onnx.ModelProto) -> dict[str, Any]:
    converted = pipeline.convert(model)
    told = describe_conversion("in.onnx", "out.onnx", converted.plan, converted.summary)
    return with_graph(told, converted.outline(), [("mezzo explain in.onnx mm", "why")])


def blocks(count: int, hot: int | None = None) -> onnx.ModelProto:
    """Blocks of a product and a Relu, named as PyTorch's older exporter does; the products of `hot` are too large for
    FP16, and its next block takes them back.
    """
    nodes, weights = [], []
    last = "x"
    for number in range(count):
        scale = 5e4 if number == hot else 2e-5 if hot is not None and number == hot + 1 else 1.0
        weights.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32) * np.float32(scale), f"w{number}"))
        at = f"/net/block.{number}"
        nodes.append(onnx.helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"], name=f"{at}/fc/MatMul"))
        nodes.append(onnx.helper.make_node("Relu", [f"h{number}"], [f"r{number}"], name=f"{at}/act/Relu"))
        last = f"r{number}"
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in ("x", last)]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def converted_elsewhere(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with every product in FP16, as another converter does it: casts around each that tell no scope."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    for weight in made.graph.initializer:
        halves = onnx.numpy_helper.to_array(weight).astype(np.float16)
        weight.CopyFrom(onnx.numpy_helper.from_array(halves, weight.name))
    nodes = list(made.graph.node)
    del made.graph.node[:]
    for number, node in enumerate(nodes):
        if node.op_type != "MatMul":
            node.input[0] += "_wide"
            made.graph.node.append(node)
            continue
        low, value = f"node{number}_input_cast_0", node.output[0]
        cast = onnx.helper.make_node("Cast", [node.input[0]], [low], name=f"node{number}_input_cast0", to=10)
        back = onnx.helper.make_node("Cast", [value], [f"{value}_wide"], name=f"node{number}_output_cast0", to=1)
        node.input[0] = low
        made.graph.node.extend([cast, node, back])
    return made


def exported() -> onnx.ModelProto:
    """A chain of operators that bear no path in their names, with what PyTorch's newer exporter notes of each."""
    modules = ("encoder.layer.0.proj", "encoder.layer.1.proj", HOSTILE[1])
    made = named(tuple(f"node_{number}" for number in range(len(modules))))
    for number, (node, module) in enumerate(zip(made.graph.node[-len(modules) :], modules, strict=True)):
        trace = f'File "/home/me/{module[:8]}net.py", line {70 + number}, in forward\n    return {module}(x)\n'
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(["", "encoder", module, node.name]))
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    return made


def tokens(states: int = 0) -> onnx.ModelProto:
    """A lookup by integers, and as many states of layers as a language model carries from call to call."""
    helper, tensor = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], name="/embed/Gather")]
    nodes.append(helper.make_node("Relu", ["e"], ["y"], name="/net/Relu"))
    inputs = [helper.make_tensor_value_info("ids", tensor.INT64, ["N"])]
    outputs = [helper.make_tensor_value_info("y", tensor.FLOAT, ["N", 4])]
    for number in range(states):
        inputs.append(helper.make_tensor_value_info(f"past.{number}", tensor.FLOAT, [4]))
        outputs.append(helper.make_tensor_value_info(f"present.{number}", tensor.FLOAT, [4]))
        name = f"/net/layer.{number}/Sin"
        nodes.append(helper.make_node("Sin", [f"past.{number}"], [f"present.{number}"], name=name))
    table = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "table")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [table])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def measured(account: dict[str, Any], unit: str = "ns") -> dict[str, Any]:
    """The account with a cost of every operator, 2e6 high and 1e6 low, and a frontier of three plans."""
    names = [node["name"] for node in account["graph"]["nodes"] if node["kind"] == "op"]
    nodes = [{"node": name, "high": 2e6, "low": 1e6} for name in names]
    whole = 2e6 * len(names)
    points = [(whole, 0, 0.0, None), (0.7 * whole, 1, 1e-4, 2e-4), (0.5 * whole, len(names), 1e-3, None)]
    return {
        **account,
        "costs": {"source": "a profile", "unit": unit, "nodes": nodes},
        "frontier": [
            {"weight": 1.0, "cost": cost, "low_nodes": low, "predicted_error": predicted, "error": error,
             "is_chosen": error is not None}
            for cost, low, predicted, error in points
        ],
    }  # fmt: skip
