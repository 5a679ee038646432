"""Random valid ONNX models: operators of every category, bodies, functions, sequences, shared and odd weights.

Every plain value is an f32 [4, 4], so that any operator fits any value and a model stays valid by construction.
`random_model(random.Random(seed), size)` gives the same model for the same seed and size.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

SIDE = 4
OPSETS = tuple(range(13, 23))
FUNCTION_DOMAIN = "local"
UNKNOWN_DOMAIN = "unknown.domain"
_FLOAT = TensorProto.FLOAT
# The oldest IR version that goes with an opset; newer ones are as good.
_IR_VERSION = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}


class Builder:
    """One graph, body or function being built. `floats` are what an operator may read, outer values included."""

    def __init__(self, rng: random.Random, opset: int, numbers: Iterator[int], floats: Sequence[str] = ()) -> None:
        self.rng = rng
        self.opset = opset
        self.numbers = numbers
        self.floats = list(floats)
        self.own: list[str] = []  # floats that this graph makes
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.domains: set[str] = set()
        self.depth = 0
        self.is_function = False
        self.is_tame = False
        self.has_mask = False

    def name(self) -> str:
        number = next(self.numbers)
        return f"v{number}" if number % 7 else f"scope {number}/v:{number}"

    def add(
        self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: object
    ) -> list[str]:
        """Append a node and return its outputs. One node in five has no name."""
        made = [self.name() for _ in range(outputs)]
        title = f"{op}_{next(self.numbers)}" if self.rng.random() < 0.8 else ""
        self.nodes.append(helper.make_node(op, list(inputs), made, title, domain=domain, **attributes))
        return made

    def one(self, op: str, inputs: Sequence[str], **attributes: object) -> str:
        return self.add(op, inputs, **attributes)[0]

    def keep(self, *values: str) -> None:
        """Offer f32 [4, 4] values to the operators that follow."""
        self.floats += values
        self.own += values

    def pick(self) -> str:
        """A value to read: mostly a late one, sometimes a weight."""
        if not self.floats or self.rng.random() < 0.2:
            return self.weight()
        pool = self.floats[-4:] if self.rng.random() < 0.7 else self.floats
        return self.rng.choice(pool)

    def constant(self, array: np.ndarray) -> str:
        """An initializer, or a Constant where there are none or by chance."""
        name = self.name()
        tensor = numpy_helper.from_array(array, name)
        if self.is_function or self.rng.random() < 0.2:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weight(self) -> str:
        """A weight: one in three used again, one in five with numbers that a low format does not hold."""
        rng = self.rng
        shared = [t.name for t in self.initializers if t.data_type == _FLOAT and list(t.dims) == [SIDE, SIDE]]
        if shared and rng.random() < 0.3:
            return rng.choice(shared)
        array = np.array([rng.uniform(-1, 1) for _ in range(SIDE * SIDE)], np.float32).reshape(SIDE, SIDE)
        if not self.is_tame and rng.random() < 0.2:
            array[0, 0] = rng.choice([1e5, -1e9, 65519.0, 65520.0, 3e-8, 1e-12, np.inf, -np.inf, np.nan, -3.4e38])
        if rng.random() < 0.1:
            name = self.name()
            floats = [float(v) for v in array[0]]
            self.nodes.append(helper.make_node("Constant", [], [name], value_floats=floats))
            return self.one("Expand", [name, self.integers(SIDE, SIDE)])
        if not self.is_function and rng.random() < 0.2:
            tensor = helper.make_tensor(self.name(), _FLOAT, [SIDE, SIDE], array.ravel().tolist())
            self.initializers.append(tensor)
            return tensor.name
        return self.constant(array)

    def scalar(self, value: float) -> str:
        if self.rng.random() < 0.3:
            return self.one("Constant", [], value_float=value)
        return self.constant(np.array(value, np.float32))

    def body(self, floats: Sequence[str]) -> "Builder":
        """A builder for a body of a control node; it sees this graph's values."""
        inner = Builder(self.rng, self.opset, self.numbers, [*self.floats, *floats])
        inner.depth = self.depth + 1
        inner.is_tame, inner.is_function, inner.functions = self.is_tame, self.is_function, self.functions
        inner.domains = self.domains
        return inner

    def result(self) -> str:
        """A value of this graph's own, to be its output."""
        if not self.own:
            self.keep(self.one("Identity", [self.pick()]))
        return self.rng.choice(self.own[-3:])


def matrix(name: str, data_type: int = _FLOAT, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, data_type, [SIDE, SIDE] if shape is None else list(shape))


def _add_inputs(b: Builder) -> list[onnx.ValueInfoProto]:
    """Graph inputs: some f32, sometimes a symbolic one, sometimes another floating type behind a Cast."""
    rng = b.rng
    inputs = []
    for number in range(rng.randint(1, 3)):
        shape = ["batch", SIDE] if rng.random() < 0.1 else None
        inputs.append(matrix(f"in{number}", _FLOAT, shape))
        b.floats.append(f"in{number}")
    other = [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT64]
    if not b.is_tame and rng.random() < 0.3:
        inputs.append(matrix("other", rng.choice(other)))
        b.keep(b.one("Cast", ["other"], to=_FLOAT))
    inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    if rng.random() < 0.5:
        inputs.append(matrix("mask", TensorProto.BOOL))
        b.has_mask = True
    if rng.random() < 0.2:  # an initializer that a caller may override
        inputs.append(matrix("default"))
        b.initializers.append(numpy_helper.from_array(np.ones((SIDE, SIDE), np.float32), "default"))
        b.floats.append("default")
    return inputs


def _outputs(b: Builder) -> list[onnx.ValueInfoProto]:
    """Up to three outputs; some are read inside too, a few are weights, inputs or of another type."""
    rng = b.rng
    b.result()
    names = rng.sample(b.own, min(len(b.own), rng.randint(1, 3)))
    if b.own[-1] not in names:
        names.append(b.own[-1])
    if not b.is_tame and rng.random() < 0.05:
        names.append("in0")
    outputs = [matrix(name) for name in names]
    if not b.is_tame and rng.random() < 0.1:
        low = rng.choice([TensorProto.FLOAT16, TensorProto.DOUBLE])
        outputs.append(matrix(b.one("Cast", [rng.choice(b.floats)], to=low), low))
    if not b.is_tame and rng.random() < 0.1:
        outputs.append(helper.make_tensor_value_info(b.one("Shape", [b.floats[-1]]), TensorProto.INT64, [2]))
    return outputs


def random_model(
    rng: random.Random, size: int, *, opset: int | None = None, has_unknown: bool = False, is_tame: bool = False
) -> onnx.ModelProto:
    """A model of about `size` operators.

    `has_unknown` adds a node that nobody has registered, in ONNX's domain or another. `is_tame` keeps every value in
    [-1, 1] and makes every operator at most double the error of its operands.
    """
    from random_operators import OPERATORS, TAME, unknown

    b = Builder(rng, opset or rng.choice(OPSETS), itertools.count(1))
    b.is_tame = is_tame
    inputs = _add_inputs(b)
    table = TAME if is_tame else OPERATORS
    unknown_at = rng.randrange(size) if has_unknown and size else -1
    infos = []
    for number in range(size):
        if number == unknown_at:
            infos.append(matrix(unknown(b)))
        else:
            rng.choice(table)(b)
    outputs = _outputs(b)
    if is_tame:
        infos = []
    graph = helper.make_graph(b.nodes, "random", inputs, outputs, b.initializers, value_info=infos)
    opsets = [helper.make_opsetid("", b.opset), *(helper.make_opsetid(d, 1) for d in sorted(b.domains))]
    version = max(_IR_VERSION[b.opset], 8 if b.functions else 7)
    return helper.make_model(graph, opset_imports=opsets, functions=b.functions, ir_version=version)


def random_feeds(model: onnx.ModelProto, rng: random.Random) -> dict[str, np.ndarray]:
    """Values in [-1, 1] for a random model's inputs."""
    generator = np.random.default_rng(rng.randrange(1 << 32))
    feeds = {}
    for info in model.graph.input:
        if info.name == "default":
            continue
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [] if info.name == "flag" else [SIDE, SIDE]
        values = generator.uniform(-1, 1, shape)
        feeds[info.name] = np.asarray(values > 0 if dtype.kind == "b" else values).astype(dtype)
    return feeds


def seeds() -> "st.SearchStrategy[tuple[int, int]]":
    """(seed, size) pairs, printed when an example fails; hypothesis looks for a small size first."""
    return st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 14))


def models(*, has_unknown: bool = False, is_tame: bool = False) -> "st.SearchStrategy[onnx.ModelProto]":
    """Random models, as a hypothesis strategy."""

    def build(pair: tuple[int, int]) -> onnx.ModelProto:
        return random_model(random.Random(pair[0]), pair[1], has_unknown=has_unknown, is_tame=is_tame)

    return seeds().map(build)
