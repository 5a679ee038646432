"""Random small networks for `int8_answers.py`: mixed ones, trunks of parallel branches, transformers. No script."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, SIDE = 8, 6
_HEADS, _INNER = 2, 16
_LENGTHS = {"mixed": (4, 12), "branches": (2, 5), "transformer": (1, 3)}  # in steps


class Network:
    """One network being drawn: every value is [n, 8, 6, 6], so any operator fits any."""

    def __init__(self, seed: int, kind: str = "mixed") -> None:
        self.kind = kind
        self.pick, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values = ["x"]

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        held = array if array.dtype == np.int64 else array.astype(np.float32)
        self.constants.append(numpy_helper.from_array(held, name))
        return name

    def normal(self, *shape: int, share: float = 1.0) -> str:
        return self.constant(share * self.numbers.standard_normal(shape))

    def positive(self, *shape: int) -> str:
        return self.constant(self.numbers.uniform(0.5, 1.5, shape))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def any(self) -> str:
        """A value, one of the last by preference."""
        return self.pick.choice(self.values[-3:] if self.pick.random() < 0.8 else self.values)

    def draw(self) -> onnx.ModelProto:
        steps = [step for step, weight in KINDS[self.kind].items() for _ in range(weight)]
        self.values.append(convolution(self, "x"))
        for _ in range(self.pick.randint(*_LENGTHS[self.kind])):
            self.values.append(self.pick.choice(steps)(self, self.any()))
        results = dict.fromkeys([self.values[-1], *(self.values[-2:-1] if self.pick.random() < 0.3 else [])])
        shape: list[str | int | None] = ["n", CHANNELS, SIDE, SIDE]
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", *results)]
        graph = helper.make_graph(self.nodes, "network", ports[:1], ports[1:], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolution(n: Network, x: str) -> str:
    bias = [n.normal(CHANNELS, share=0.5)] if n.pick.random() < 0.4 else []
    kind = n.pick.choice(["point", "square", "depthwise", "transposed"])
    if kind == "depthwise":
        return n.add("Conv", x, n.normal(8, 1, 3, 3, share=0.3), *bias, group=CHANNELS, pads=[1, 1, 1, 1])
    if kind == "square":
        return n.add("Conv", x, n.normal(8, 8, 3, 3, share=0.12), *bias, pads=[1, 1, 1, 1])
    return n.add("ConvTranspose" if kind == "transposed" else "Conv", x, n.normal(8, 8, 1, 1, share=0.35), *bias)


def weighted(n: Network, x: str) -> str:
    return n.add("MatMul", x, n.normal(SIDE, SIDE, share=0.4))


def product(n: Network, x: str) -> str:
    made = n.add("MatMul", x, n.any())
    return n.add("Mul", made, n.constant(np.array(0.3))) if n.pick.random() < 0.5 else made


def per_channel(n: Network, x: str) -> str:
    shape = n.pick.choice([(8, 1, 1), (6,), (6, 1), (1, 8, 1, 1), ()])
    return n.add(n.pick.choice(["Mul", "Add", "Sub", "Div"]), x, n.positive(*shape))


def norm(n: Network, x: str) -> str:
    shifts = [n.normal(CHANNELS, share=0.3) for _ in range(2)]
    return n.add("BatchNormalization", x, n.positive(CHANNELS), *shifts, n.positive(CHANNELS))


def squeeze(n: Network, x: str) -> str:
    narrow = n.add("Conv", n.add("GlobalAveragePool", x), n.normal(8, 8, 1, 1, share=0.3))
    return n.add("Mul", x, n.add("Sigmoid", narrow))


def concatenated(n: Network, x: str) -> str:
    parts = [x, *(n.any() for _ in range(n.pick.randint(1, 2)))]
    return n.add("Conv", n.add("Concat", *parts, axis=1), n.normal(8, 8 * len(parts), 1, 1, share=0.25))


def halved(n: Network, x: str) -> str:
    ends = [[n.constant(np.array([end], np.int64)) for end in (start, start + 4, 1)] for start in (0, 4)]
    first, last = (n.add("Slice", x, *end) for end in ends)
    return n.add("Concat", last, activation(n, first), axis=1)


def centred(n: Network, x: str) -> str:
    return n.add("Add", x, n.add("ReduceMean", x, axes=[n.pick.choice([1, 2, 3])], keepdims=1))


def turned(n: Network, x: str) -> str:
    return n.add("Transpose", x, perm=[0, 1, 3, 2])


def reshaped(n: Network, x: str) -> str:
    flat = n.add("Reshape", x, n.constant(np.array([0, 8, 36], np.int64)))
    return n.add("Reshape", flat, n.constant(np.array([0, 8, 6, 6], np.int64)))


def pool(n: Network, x: str) -> str:
    counts = n.pick.choice([{}, {"count_include_pad": 0}, {"count_include_pad": 1}])
    op, more = ("AveragePool", counts) if n.pick.random() < 0.6 else ("MaxPool", {})
    return n.add(op, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], **more)


def activation(n: Network, x: str) -> str:
    op = n.pick.choice(["Relu", "Clip", "HardSwish", "Sigmoid", "LeakyRelu", "Tanh", "Gelu", "Softmax", "Silu"])
    if op == "Clip":
        return n.add("Clip", x, n.constant(np.array(0.0)), n.constant(np.array(6.0)))
    if op == "Gelu":
        inner = n.add("Add", n.add("Erf", n.add("Div", x, n.constant(np.sqrt(np.array(2.0))))), n.constant(np.ones(())))
        return n.add("Mul", n.add("Mul", x, inner), n.constant(np.array(0.5)))
    return n.add("Mul", x, n.add("Sigmoid", x)) if op == "Silu" else n.add(op, x)


def summed(n: Network, x: str) -> str:
    return n.add(n.pick.choice(["Add", "Add", "Mul"]), x, n.any())


def _relu(n: Network, x: str, outer: int, inner: int, height: int, width: int) -> str:
    """A convolution to so many channels, its norm now and then, and Relu."""
    weight = n.normal(outer, inner, height, width, share=(inner * height * width) ** -0.5)
    bias = [n.normal(outer, share=0.3)] if n.pick.random() < 0.5 else []
    pads = [height // 2, width // 2] * 2
    made = n.add("Conv", x, weight, *bias, pads=pads)
    if n.pick.random() < 0.3:
        shifts = [n.normal(outer, share=0.3) for _ in range(2)]
        made = n.add("BatchNormalization", made, n.positive(outer), *shifts, n.positive(outer))
    return n.add("Relu", made) if n.pick.random() < 0.85 else made


def _branch(n: Network, x: str, outer: int) -> str:
    """A way through a trunk: a point, a square behind one, two, a factored one, a pool before a point, or x alone."""
    way = n.pick.choice(["point", "square", "double", "factored", "pool", "pool", "bare pool"])
    if way == "point":
        return _relu(n, x, outer, CHANNELS, 1, 1)
    if way == "pool":
        return _relu(n, pool(n, x), outer, CHANNELS, 1, 1)
    if way == "bare pool":
        ends = [n.constant(np.array([end], np.int64)) for end in (0, outer, 1)]
        return pool(n, n.add("Slice", x, *ends))
    narrow = _relu(n, x, 4, CHANNELS, 1, 1)
    if way == "factored":
        return _relu(n, _relu(n, narrow, 4, 4, 1, 3), outer, 4, 3, 1)
    return _relu(n, _relu(n, narrow, 4, 4, 3, 3) if way == "double" else narrow, outer, 4, 3, 3)


def branches(n: Network, x: str) -> str:
    """Two to four ways beside each other, concatenated to the width of x; some read the same convolution."""
    widths = n.pick.choice([(4, 4), (2, 2, 4), (2, 2, 2, 2), (4, 2, 2)])
    source = _relu(n, x, CHANNELS, CHANNELS, 1, 1) if n.pick.random() < 0.2 else x
    return n.add("Concat", *(_branch(n, source, width) for width in widths), axis=1)


def residual_branches(n: Network, x: str) -> str:
    """Branches, a linear point that is scaled, and the sum with x."""
    linear = n.add("Conv", branches(n, x), n.normal(8, 8, 1, 1, share=0.35), n.normal(CHANNELS, share=0.3))
    if n.pick.random() < 0.7:
        linear = n.add("Mul", linear, n.constant(np.array(n.pick.choice([0.2, 0.3, 1.0]))))
    made = n.add("Add", x, linear)
    return n.add("Relu", made) if n.pick.random() < 0.8 else made


def _linear(n: Network, x: str, inner: int, outer: int) -> str:
    made = n.add("MatMul", x, n.normal(inner, outer, share=inner**-0.5))
    if n.pick.random() < 0.8:
        pair = (made, n.normal(outer, share=0.3))
        made = n.add("Add", *(pair if n.pick.random() < 0.5 else pair[::-1]))
    return made


def _norm(n: Network, x: str) -> str:
    return n.add("LayerNormalization", x, n.positive(CHANNELS), n.normal(CHANNELS, share=0.2), axis=-1)


def _attention(n: Network, x: str) -> str:
    size = CHANNELS // _HEADS
    split = n.constant(np.array([0, 0, _HEADS, size], np.int64))

    def head(perm: list[int]) -> str:
        return n.add("Transpose", n.add("Reshape", _linear(n, x, CHANNELS, CHANNELS), split), perm=perm)

    query, key, value = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scale = n.constant(np.array(size**-0.5))
    if n.pick.random() < 0.5:
        query = n.add("Mul", query, scale)
        scores = n.add("MatMul", query, key)
    else:
        scores = n.add("Mul", n.add("MatMul", query, key), scale)
    if n.pick.random() < 0.3:
        scores = n.add("Add", scores, n.normal(1, 1, SIDE * SIDE, SIDE * SIDE, share=0.5))
    mixed = n.add("MatMul", n.add("Softmax", scores, axis=-1), value)
    joined = n.add("Transpose", mixed, perm=[0, 2, 1, 3])
    flat = n.add("Reshape", joined, n.constant(np.array([0, 0, CHANNELS], np.int64)))
    return _linear(n, flat, CHANNELS, CHANNELS)


def _perceptron(n: Network, x: str) -> str:
    hidden = _linear(n, x, CHANNELS, _INNER)
    return _linear(n, activation(n, hidden), _INNER, CHANNELS)


def transformer(n: Network, x: str) -> str:
    """One or two blocks over the places of x, norms before or behind, and back to its shape."""
    flat = n.add("Reshape", x, n.constant(np.array([0, CHANNELS, SIDE * SIDE], np.int64)))
    tokens = n.add("Transpose", flat, perm=[0, 2, 1])
    is_before = n.pick.random() < 0.6
    for _ in range(n.pick.randint(1, 2)):
        for part in (_attention, _perceptron):
            made = part(n, _norm(n, tokens) if is_before else tokens)
            tokens = n.add("Add", *((tokens, made) if n.pick.random() < 0.5 else (made, tokens)))
            tokens = tokens if is_before else _norm(n, tokens)
    back = n.add("Transpose", tokens, perm=[0, 2, 1])
    return n.add("Reshape", back, n.constant(np.array([0, CHANNELS, SIDE, SIDE], np.int64)))


Steps = Mapping[Callable[[Network, str], str], int]
_MIXED: Steps = {
    convolution: 7, weighted: 3, product: 2, activation: 5, summed: 5, per_channel: 4, norm: 2, squeeze: 1,
    concatenated: 3, halved: 1, centred: 1, turned: 1, reshaped: 1, pool: 2,
}  # fmt: skip
# Steps with how often each is taken, by the kind of a network.
KINDS: Mapping[str, Steps] = {
    "mixed": _MIXED,
    "branches": {branches: 6, residual_branches: 3, pool: 2, convolution: 1, summed: 1},
    "transformer": {transformer: 3, convolution: 1, summed: 1},
}
