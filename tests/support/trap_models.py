"""What a trap is: a model that a careless conversion ruins, data that springs it, and the careless conversion."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
import onnx.parser
from onnx import TensorProto

Feeds = Mapping[str, Any]
Random = np.random.Generator
BATCHES = 3


@dataclass(frozen=True, slots=True)
class Trap:
    """One model. `body` is what stands after the graph's name; `weights` are its constants that are no plain text.

    `is_harmless`: everything low gives the right answer after all, and so must every conversion.
    """

    name: str
    breaks: str
    body: str
    make_feeds: Callable[[Random], dict[str, Any]]
    weights: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 18
    functions: str = ""
    is_harmless: bool = False

    def make_model(self) -> onnx.ModelProto:
        """Parse the text and put the weights in."""
        domains = '["": ' + str(self.opset) + (', "local": 1' if self.functions else "") + "]"
        text = f"<ir_version: 8, opset_import: {domains}> trap_{re.sub(r'[^a-z0-9]+', '_', self.name)} {self.body}"
        model = onnx.parser.parse_model(f"{text}\n{self.functions}")
        for name, values in self.weights.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        return model

    def make_batches(self, seed: int, count: int = BATCHES) -> list[dict[str, Any]]:
        """Make feeds; other seeds give other numbers of the same kind."""
        random = np.random.default_rng(seed)
        return [self.make_feeds(random) for _ in range(count)]


def blindly_converted(model: onnx.ModelProto, to: str = "fp16") -> onnx.ModelProto:
    """Make everything low, as a converter does that knows types and nothing else. Inputs and outputs too."""
    result = onnx.ModelProto()
    result.CopyFrom(onnx.inliner.inline_local_functions(model) if model.functions else model)
    _narrow_graph(result.graph, {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[to])
    return result


def _narrow_graph(graph: onnx.GraphProto, low: int) -> None:
    del graph.value_info[:]
    for port in (*graph.input, *graph.output):
        if port.type.tensor_type.elem_type == TensorProto.FLOAT:
            port.type.tensor_type.elem_type = low
    for tensor in graph.initializer:
        _narrow_tensor(tensor, low)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _narrow_graph(attribute.g, low)
            elif attribute.HasField("t"):
                _narrow_tensor(attribute.t, low)
            elif attribute.name == "value_float":
                value = onnx.numpy_helper.from_array(np.array(attribute.f, np.float32))
                _narrow_tensor(value, low)
                attribute.CopyFrom(onnx.helper.make_attribute("value", value))
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = low


def _narrow_tensor(tensor: onnx.TensorProto, low: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        with np.errstate(over="ignore"):
            values = onnx.numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(low))
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
