"""A model being written, whose every choice of spelling is drawn from a seed and noted."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
OPSETS = (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
IR_VERSION = 10
Sample = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True, slots=True)
class Port:
    """A graph input and how its data is drawn."""

    info: onnx.ValueInfoProto
    sample: Sample


class Draft:
    """Nodes, constants and inputs so far. `is_plain`: every choice is the first, for the spelling all others equal."""

    def __init__(self, seed: int, *, opset: int = 11, is_plain: bool = False) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.is_plain = is_plain
        newest = max(opset, 17)
        self.opset = newest if is_plain else self.rng.choice([number for number in OPSETS if number >= opset])
        self.notes: list[str] = [f"opset {self.opset}"]
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.ports: list[Port] = []
        self._count = 0

    # --- choices -----------------------------------------------------------------------------------------------------

    def choose(self, *options: str) -> str:
        """One of these spellings, noted."""
        if self.is_plain:
            return options[0]
        option = self.rng.choice(options)
        if option not in self.notes and option != options[0]:
            self.notes.append(option)
        return option

    def happens(self, chance: float) -> bool:
        return not self.is_plain and self.rng.random() < chance

    def name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    # --- nodes -------------------------------------------------------------------------------------------------------

    def op(self, kind: str, *operands: str, **attributes: Any) -> str:
        """Append a node of one output."""
        return self.ops(kind, operands, 1, **attributes)[0]

    def ops(self, kind: str, operands: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Append a node and return its outputs."""
        names = [self.name() for _ in range(outputs)]
        title = f"/{kind}_{self._count}"
        self.nodes.append(helper.make_node(kind, list(operands), names, title, **attributes))
        return names

    def subgraph(
        self, name: str, inputs: Sequence[onnx.ValueInfoProto], write: Callable[[], Sequence[str]], kinds: Sequence[int]
    ) -> onnx.GraphProto:
        """A body: what `write` appends, with its results of these element types as outputs."""
        outer, self.nodes = self.nodes, []
        results = [self.op("Identity", result) for result in write()]
        outputs = [helper.make_tensor_value_info(r, kind, None) for r, kind in zip(results, kinds, strict=True)]
        body = helper.make_graph(self.nodes, name, list(inputs), outputs)
        self.nodes = outer
        return body

    # --- inputs ------------------------------------------------------------------------------------------------------

    def input(self, name: str, kind: int, shape: Sequence[int], sample: Sample) -> str:
        dims: list[int | str] = list(shape)
        if dims and self.happens(0.3):
            dims[0] = f"{name}_rows"
        self.ports.append(Port(helper.make_tensor_value_info(name, kind, dims), sample))
        return name

    def normal(self, *shape: int, name: str = "x") -> str:
        """A float input of unit normal numbers, which is what a model sees when nothing else is known."""
        return self.input(name, FLOAT, shape, lambda r: r.standard_normal(shape).astype(np.float32))

    def uniform(self, low: float, high: float, *shape: int, name: str = "x") -> str:
        """A float input between two bounds; the model's own prologue is made for them."""
        return self.input(name, FLOAT, shape, lambda r: r.uniform(low, high, shape).astype(np.float32))

    def ids(self, high: int, *shape: int, name: str = "ids") -> str:
        return self.input(name, INT64, shape, lambda r: r.integers(0, high, shape))

    def mask(self, *shape: int, name: str = "mask") -> str:
        """Ones, and zeros from some place on in every row."""

        def sample(r: np.random.Generator) -> np.ndarray:
            lengths = r.integers(shape[-1] * 2 // 3, shape[-1] + 1, (*shape[:-1], 1))
            return (np.arange(shape[-1]) < lengths).astype(np.int64)

        return self.input(name, INT64, shape, sample)

    # --- constants ---------------------------------------------------------------------------------------------------

    def weights(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> np.ndarray:
        return (offset + scale * self.numbers.standard_normal(shape)).astype(np.float32)

    def constant(self, values: Any) -> str:
        """A float constant: an initializer, a node, or computed from others."""
        array = np.asarray(values, np.float32)
        is_uniform = array.size > 0 and bool(np.all(array == array.flat[0]))
        small = ("initializer", "Constant", "Identity of a constant", "Cast from f64", "Constant in parts")
        options = small if array.size <= 4096 else ("initializer", "Constant")
        if is_uniform and array.ndim:
            options = (*options, "ConstantOfShape", "Expand")
        match self.choose(*options):
            case "Constant":
                return self._constant_node(array)
            case "Identity of a constant":
                return self.op("Identity", self.initializer(array))
            case "Cast from f64":
                return self.op("Cast", self.initializer(array.astype(np.float64)), to=FLOAT)
            case "Constant in parts":  # a power of two changes no digit
                half = self.initializer((array / 2).astype(np.float32))
                return self.op("Mul", half, self.initializer(np.float32(2)))
            case "ConstantOfShape":
                value = numpy_helper.from_array(array.flat[:1].copy(), "value")
                return self.op("ConstantOfShape", self.integers(*array.shape), value=value)
            case "Expand":
                return self.op("Expand", self.initializer(array.flat[0]), self.integers(*array.shape))
            case _:
                return self.initializer(array)

    def _constant_node(self, array: np.ndarray) -> str:
        if array.ndim == 0 and self.opset >= 12 and self.happens(0.5):
            return self.op("Constant", value_float=float(array))
        return self.op("Constant", value=numpy_helper.from_array(array, "value"))

    def initializer(self, values: Any) -> str:
        """An initializer of the array's own type."""
        name = self.name()
        self.initializers.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def integers(self, *values: int) -> str:
        return self.initializer(np.array(values, np.int64))

    # --- what only rearranges ----------------------------------------------------------------------------------------

    def noise(self, value: str) -> str:
        """The same numbers, one time in five behind a node that changes nothing. Any rank above 0."""
        if not self.happens(0.2):
            return value
        match self.choose("Identity", "Transpose twice", "Unsqueeze, Squeeze", "Reshape", "Cast", "Concat", "Expand"):
            case "Transpose twice":
                return self.op("Transpose", self.op("Transpose", value))
            case "Unsqueeze, Squeeze":
                return self.squeeze(self.unsqueeze(value, 0), 0)
            case "Reshape":
                return self.op("Reshape", value, self.op("Shape", value))
            case "Cast":
                return self.op("Cast", value, to=FLOAT)
            case "Concat":
                return self.op("Concat", value, axis=0)
            case "Expand":
                return self.op("Expand", value, self.integers(1))
            case _:
                return self.op("Identity", value)

    def squeeze(self, value: str, *axes: int) -> str:
        if self.opset >= 13:
            return self.op("Squeeze", value, self.integers(*axes))
        return self.op("Squeeze", value, axes=list(axes))

    def unsqueeze(self, value: str, *axes: int) -> str:
        if self.opset >= 13:
            return self.op("Unsqueeze", value, self.integers(*axes))
        return self.op("Unsqueeze", value, axes=list(axes))

    def reduce(self, kind: str, value: str, axis: int, *, keeps: bool = True) -> str:
        """A reduction over one axis, which is an attribute in older opsets and an operand in newer ones."""
        if self.opset >= (13 if kind == "ReduceSum" else 18):
            return self.op(kind, value, self.integers(axis), keepdims=int(keeps))
        return self.op(kind, value, axes=[axis], keepdims=int(keeps))
