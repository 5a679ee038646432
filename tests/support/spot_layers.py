"""Layers written out as exporters write them, and a builder of ONNX graphs, for `trouble_models`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
Operand = str | float | Array
_AXES_AS_INPUT = 18  # ReduceMean and most reductions take axes as an input since this opset, ReduceSum since 13


class Net:
    """A graph under construction: calling it adds a node and gives the name of its first output."""

    def __init__(self, opset: int, seed: int) -> None:
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, op: str, *operands: Operand, count: int = 1, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        outputs = [name, *(f"{name}.{number}" for number in range(1, count))]
        inputs = [operand if isinstance(operand, str) else self.store(operand) for operand in operands]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return name

    def store(self, value: float | Array) -> str:
        """Add a constant: numbers and floats as FP32, integers as they are."""
        array = np.asarray(value, np.float32) if isinstance(value, float) else value
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.copy(order="C"), name))
        return name

    def normal(self, *shape: int, scale: float | None = None) -> Array:
        """Random weights; by default of the variance that keeps a product's size."""
        size = float(np.prod(shape[1:] if len(shape) == 4 else shape[:1])) ** -0.5 if scale is None else scale
        return (self.random.standard_normal(shape) * size).astype(np.float32)

    def reduce(self, op: str, x: Operand, axes: Sequence[int], keepdims: int = 1) -> str:
        if self.opset >= _AXES_AS_INPUT or op == "ReduceSum":
            return self(op, x, np.array(axes, np.int64), keepdims=keepdims)
        return self(op, x, axes=list(axes), keepdims=keepdims)

    def reshape(self, x: Operand, *shape: int) -> str:
        return self("Reshape", x, np.array(shape, np.int64))

    def finish(self, feeds: Mapping[str, Array], *outputs: str) -> onnx.ModelProto:
        """Make the model; its inputs are those of an example, and outputs get their types by inference."""
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "spot", inputs, results, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        onnx.checker.check_model(inferred, full_check=True)
        return inferred


def linear(net: Net, x: str, weight: Array, bias: Array | None = None) -> str:
    product = net("MatMul", x, weight)
    return product if bias is None else net("Add", product, bias)


def layer_norm(net: Net, x: str, gain: Operand, bias: Operand, epsilon: float = 1e-5) -> str:
    centred = net("Sub", x, net.reduce("ReduceMean", x, [-1]))
    variance = net.reduce("ReduceMean", net("Pow", centred, 2.0), [-1])
    deviation = net("Sqrt", net("Add", variance, epsilon))
    return net("Add", net("Mul", net("Div", centred, deviation), gain), bias)


def rms_norm(net: Net, x: str, gain: Operand, epsilon: float = 1e-6) -> str:
    square = net.reduce("ReduceMean", net("Pow", x, 2.0), [-1])
    factor = net("Div", 1.0, net("Sqrt", net("Add", square, epsilon)))
    return net("Mul", gain, net("Mul", x, factor))


def silu(net: Net, x: str) -> str:
    return net("Mul", x, net("Sigmoid", x))


def gelu(net: Net, x: str) -> str:
    cumulative = net("Add", net("Erf", net("Div", x, 2.0**0.5)), 1.0)
    return net("Mul", net("Mul", x, cumulative), 0.5)


def swiglu(net: Net, x: str, width: int, up: float = 1.0, gate: float = 1.0, down: float = 1.0) -> str:
    """A gated feed-forward layer; `up`, `gate` and `down` multiply its weights."""
    inner = 2 * width
    opened = silu(net, net("MatMul", x, net.normal(width, inner) * np.float32(gate)))
    product = net("Mul", opened, net("MatMul", x, net.normal(width, inner) * np.float32(up)))
    return net("MatMul", product, net.normal(inner, width) * np.float32(down))


def heads_of(net: Net, x: str, weight: Array, heads: int = 2) -> str:
    """Project, and split [batch, length, width] into [batch, heads, length, size]."""
    split = net.reshape(net("MatMul", x, weight), 0, -1, heads, weight.shape[1] // heads)
    return net("Transpose", split, perm=[0, 2, 1, 3])


def attend(net: Net, query: str, key: str, value: str, mask: str | None = None, scale: float | None = None) -> str:
    """Attention of heads, as [batch, length, width]; `mask` is added to the logits."""
    logits = net("MatMul", query, net("Transpose", key, perm=[0, 1, 3, 2]))
    logits = net("Mul", logits, scale) if scale is not None else logits
    logits = net("Add", logits, mask) if mask is not None else logits
    mixed = net("MatMul", net("Softmax", logits, axis=-1), value)
    return net.reshape(net("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, -1)


def self_attention(net: Net, x: str, width: int, mask: str | None = None) -> str:
    query, key, value = (heads_of(net, x, net.normal(width, width)) for _ in range(3))
    return linear(net, attend(net, query, key, value, mask, (width / 2) ** -0.5), net.normal(width, width))


def ones(width: int) -> Array:
    return np.ones(width, np.float32)


def zeros(width: int) -> Array:
    return np.zeros(width, np.float32)


def encoder_layer(net: Net, x: str, width: int, mask: str | None = None) -> str:
    """A transformer's layer with its norms first: attention and a feed-forward layer with GELU."""
    x = net("Add", x, self_attention(net, layer_norm(net, x, ones(width), zeros(width)), width, mask))
    normed = layer_norm(net, x, ones(width), zeros(width))
    inner = gelu(net, linear(net, normed, net.normal(width, 2 * width), zeros(2 * width)))
    return net("Add", x, linear(net, inner, net.normal(2 * width, width), zeros(width)))
