"""Models for pictures and measurements of the report: a ResNet-50, a transformer, and graphs of any size."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 21
_SEED = 7


class Builder:
    """Adds operators and random weights to one graph."""

    def __init__(self, shape: Sequence[int | str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(_SEED)
        self.input = helper.make_tensor_value_info("input", TensorProto.FLOAT, list(shape))

    def add(self, name: str, op: str, *inputs: str, **attributes: object) -> str:
        """Append an operator; returns its result."""
        result = f"{name}_output_0"
        self.nodes.append(helper.make_node(op, list(inputs), [result], name=name, **attributes))
        return result

    def weight(self, name: str, *shape: int, around: float = 0.0, scale: float | None = None) -> str:
        """A random weight: its name. The scale is He's unless given."""
        spread = np.sqrt(2 / max(1, int(np.prod(shape[1:])))) if scale is None else scale
        self.weights.append(numpy_helper.from_array(self.random.normal(around, spread, shape).astype(np.float32), name))
        return name

    def constant(self, name: str, values: object, dtype: type = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def model(self, result: str, shape: Sequence[int | str]) -> onnx.ModelProto:
        """The whole, with `result` as its output."""
        self.nodes.append(helper.make_node("Identity", [result], ["output"], name="/Identity"))
        output = helper.make_tensor_value_info("output", TensorProto.FLOAT, list(shape))
        graph = helper.make_graph(self.nodes, "graph", [self.input], [output], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)


def resnet50(batch: int = 1) -> onnx.ModelProto:
    """Residual Network of 50 layers (He et al. 2015), 224 x 224, named as PyTorch's exporter does."""
    b = Builder([batch, 3, 224, 224])
    x = _conv(b, "", "conv1", "input", 3, 64, kernel=7, stride=2)
    x = b.add("/relu/Relu", "Relu", x)
    x = b.add("/maxpool/MaxPool", "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for number in range(count):
            at = f"/layer{stage}/layer{stage}.{number}"
            stride = 2 if number == 0 and stage > 1 else 1
            y = b.add(f"{at}/relu/Relu", "Relu", _conv(b, at, "conv1", x, channels, width))
            y = b.add(f"{at}/relu/Relu_1", "Relu", _conv(b, at, "conv2", y, width, width, kernel=3, stride=stride))
            y = _conv(b, at, "conv3", y, width, 4 * width)
            if number == 0:
                x = _conv(b, at, "downsample", x, channels, 4 * width, stride=stride)
            channels = 4 * width
            x = b.add(f"{at}/relu/Relu_2", "Relu", b.add(f"{at}/Add", "Add", y, x))
    x = b.add("/avgpool/GlobalAveragePool", "GlobalAveragePool", x)
    x = b.add("/Flatten", "Flatten", x, axis=1)
    x = b.add("/fc/Gemm", "Gemm", x, b.weight("fc.weight", 2048, 1000, scale=0.02), b.weight("fc.bias", 1000))
    return b.model(b.add("/Softmax", "Softmax", x, axis=-1), [batch, 1000])


def _conv(b: Builder, at: str, name: str, x: str, fan_in: int, fan_out: int, kernel: int = 1, stride: int = 1) -> str:
    path = f"{at}/{name}"
    weight = b.weight(f"{path}.weight", fan_out, fan_in, kernel, kernel)
    pads, bias = [kernel // 2] * 4, b.weight(f"{path}.bias", fan_out, scale=0.01)
    return b.add(f"{path}/Conv", "Conv", x, weight, bias, strides=[stride, stride], pads=pads)


def transformer(layers: int = 12, width: int = 128, heads: int = 4, length: int = 32) -> onnx.ModelProto:
    """An encoder as BERT's (Devlin et al. 2018), from embeddings on, its norms and GELU taken apart by the exporter."""
    b = Builder(["batch", length, width])
    b.constant("two", 2.0)
    b.constant("one", 1.0)
    b.constant("half", 0.5)
    b.constant("root2", 2**0.5)
    b.constant("eps", 1e-12)
    b.constant("axes", [-1], np.int64)
    b.constant("split", [0, length, heads, width // heads], np.int64)
    b.constant("join", [0, length, width], np.int64)
    b.constant("root", (width // heads) ** 0.5)
    x = _norm(b, "/embeddings/LayerNorm", "input", width)
    for number in range(layers):
        at = f"/encoder/layer.{number}"
        y = _attention(b, f"{at}/attention/self", x, width)
        y = _linear(b, f"{at}/attention/output/dense", y, width, width)
        x = _norm(b, f"{at}/attention/output/LayerNorm", b.add(f"{at}/attention/output/Add", "Add", y, x), width)
        y = _gelu(b, f"{at}/intermediate/act", _linear(b, f"{at}/intermediate/dense", x, width, 4 * width))
        y = _linear(b, f"{at}/output/dense", y, 4 * width, width)
        x = _norm(b, f"{at}/output/LayerNorm", b.add(f"{at}/output/Add", "Add", y, x), width)
    x = _linear(b, "/classifier", x, width, 16)
    return b.model(b.add("/Softmax", "Softmax", x, axis=-1), ["batch", length, 16])


def _linear(b: Builder, at: str, x: str, fan_in: int, fan_out: int) -> str:
    y = b.add(f"{at}/MatMul", "MatMul", x, b.weight(f"{at}.weight", fan_in, fan_out, scale=fan_in**-0.5))
    return b.add(f"{at}/Add", "Add", y, b.weight(f"{at}.bias", fan_out, scale=0.01))


def _attention(b: Builder, at: str, x: str, width: int) -> str:
    parts = {}
    for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        y = b.add(f"{at}/{name}/Reshape", "Reshape", _linear(b, f"{at}/{name}", x, width, width), "split")
        parts[name] = b.add(f"{at}/{name}/Transpose", "Transpose", y, perm=order)
    y = b.add(f"{at}/Div", "Div", b.add(f"{at}/MatMul", "MatMul", parts["query"], parts["key"]), "root")
    y = b.add(f"{at}/MatMul_1", "MatMul", b.add(f"{at}/Softmax", "Softmax", y, axis=-1), parts["value"])
    return b.add(f"{at}/Reshape", "Reshape", b.add(f"{at}/Transpose", "Transpose", y, perm=[0, 2, 1, 3]), "join")


def _norm(b: Builder, at: str, x: str, width: int) -> str:
    d = b.add(f"{at}/Sub", "Sub", x, b.add(f"{at}/ReduceMean", "ReduceMean", x, "axes"))
    v = b.add(f"{at}/ReduceMean_1", "ReduceMean", b.add(f"{at}/Pow", "Pow", d, "two"), "axes")
    y = b.add(f"{at}/Div", "Div", d, b.add(f"{at}/Sqrt", "Sqrt", b.add(f"{at}/Add", "Add", v, "eps")))
    y = b.add(f"{at}/Mul", "Mul", y, b.weight(f"{at}.weight", width, around=1.0, scale=0.1))
    return b.add(f"{at}/Add_1", "Add", y, b.weight(f"{at}.bias", width, scale=0.1))


def _gelu(b: Builder, at: str, x: str) -> str:
    y = b.add(f"{at}/Add", "Add", b.add(f"{at}/Erf", "Erf", b.add(f"{at}/Div", "Div", x, "root2")), "one")
    return b.add(f"{at}/Mul_1", "Mul", b.add(f"{at}/Mul", "Mul", x, y), "half")


def deep(nodes: int, has_paths: bool = True) -> onnx.ModelProto:
    """A transformer of about so many operators, narrow so that its weights stay small. Without paths, every node is
    named by its number, as some exporters do.
    """
    per_layer = 46
    model = transformer(max(1, round((nodes - 12) / per_layer)), width=8, heads=2, length=4)
    if not has_paths:
        for number, node in enumerate(model.graph.node):
            node.name = f"node_{number}"
    return model
