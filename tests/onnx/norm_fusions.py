"""The norms that ONNX Runtime's CUDA makes of a file, and the two types that meet in each: a second account of its
LayerNormFusion and SimplifiedLayerNormFusion, of files and not of graphs, that shares nothing with the planner.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx
import onnx.numpy_helper
import onnx.shape_inference


@dataclass(frozen=True, slots=True)
class FusedNorm:
    """A norm that is fused: its name, the type of what it reads, and the type of what it scales by."""

    name: str
    read: int
    scale: int


@dataclass
class _File:
    model: onnx.ModelProto
    makers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, list[onnx.NodeProto]] = field(default_factory=lambda: defaultdict(list))
    types: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    passed_through: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = onnx.shape_inference.infer_shapes(self.model).graph
        for info in (*graph.input, *graph.value_info, *graph.output):
            self.types[info.name] = info.type.tensor_type.elem_type
            if info.type.tensor_type.HasField("shape"):
                self.ranks[info.name] = len(info.type.tensor_type.shape.dim)
        for tensor in graph.initializer:
            self.types[tensor.name], self.ranks[tensor.name] = tensor.data_type, len(tensor.dims)
        for node in graph.node:
            if node.op_type == "Identity":  # ONNX Runtime drops it first
                self.passed_through[node.output[0]] = node.input[0]
                continue
            self.makers |= dict.fromkeys(node.output, node)
            for name in node.input:
                self.readers[self.origin(name)].append(node)
        for info in graph.output:
            self.readers[self.origin(info.name)].append(onnx.NodeProto(op_type="an output"))

    def origin(self, name: str) -> str:
        while name in self.passed_through:
            name = self.passed_through[name]
        return name

    def maker(self, name: str, op: str) -> onnx.NodeProto | None:
        node = self.makers.get(self.origin(name))
        return node if node is not None and node.op_type == op else None

    def sole_reader(self, node: onnx.NodeProto | None, *ops: str) -> onnx.NodeProto | None:
        readers = [] if node is None else self.readers[node.output[0]]
        return readers[0] if len(readers) == 1 and readers[0].op_type in ops else None

    def is_one(self, name: str) -> bool:
        tensor = next((t for t in self.model.graph.initializer if t.name == self.origin(name)), None)
        return tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT and _numbers(tensor) == [1.0]

    def vector(self, node: onnx.NodeProto) -> str | None:
        """An operand of one axis: the last, as both fusions take it."""
        return next((name for name in reversed(node.input) if self.ranks.get(self.origin(name)) == 1), None)

    def uncast(self, name: str, readers: int) -> int:
        """The type of a value before the Cast that makes it, if that has so many readers and no other."""
        cast = self.maker(name, "Cast")
        is_taken = cast is not None and len(self.readers[self.origin(name)]) == readers
        return self.types[self.origin(cast.input[0] if cast is not None and is_taken else name)]


def _numbers(tensor: onnx.TensorProto) -> list[float]:
    numbers: list[float] = onnx.numpy_helper.to_array(tensor).ravel().tolist()
    return numbers


def fused_norms(model: onnx.ModelProto) -> Iterator[FusedNorm]:
    """Every norm of a model's main graph that either fusion takes, the centred first."""
    file = _File(model)
    for power in model.graph.node:
        if power.op_type == "Pow":
            yield from _norm_from(file, power)


def _norm_from(file: _File, power: onnx.NodeProto) -> Iterator[FusedNorm]:
    mean = file.sole_reader(power, "ReduceMean")
    root = file.sole_reader(file.sole_reader(mean, "Add"), "Sqrt")
    quotient = file.sole_reader(root, "Div")
    if quotient is not None and file.is_one(quotient.input[0]):
        quotient = file.sole_reader(quotient, "Mul")
    behind = file.sole_reader(quotient, "Cast", "Mul")
    scaled = file.sole_reader(behind, "Mul") if behind is not None and behind.op_type == "Cast" else behind
    scale = None if scaled is None else file.vector(scaled)
    if quotient is None or scaled is None or scale is None:
        return
    kind = file.types[file.origin(scale)]
    added, difference = file.sole_reader(scaled, "Add"), file.maker(power.input[0], "Sub")
    centre = None if difference is None else file.maker(difference.input[1], "ReduceMean")
    if added is not None and file.vector(added) is not None and difference is not None and centre is not None:
        differences, reads = file.readers[centre.output[0]], file.origin(difference.input[0])
        are_few = len(differences) <= 2 and all(node.op_type == "Sub" for node in differences)
        if are_few and file.origin(centre.input[0]) == reads:
            yield FusedNorm(scaled.name, file.uncast(reads, len(differences) + 1), kind)
            return
    if file.origin(power.input[0]) in map(file.origin, quotient.input):
        yield FusedNorm(scaled.name, file.uncast(power.input[0], 2), kind)
