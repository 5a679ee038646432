"""A flat model as a course of steps that can be cut, and stretches of it as models of their own."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx

from mezzo.contracts.segments import Course, Step
from mezzo.onnx.files.disk_cache import storage_of
from mezzo.onnx.protos.order import reads_of, sort_nodes
from mezzo.onnx.schema.value_types import type_text, value_types

# What may stay where it is made: everything else that is no tensor of plain numbers cannot wait on the disk.
_UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of nodes as a model: the names of the values and of the weights that it is fed, and of its answers."""

    model: onnx.ModelProto
    reads: tuple[str, ...]
    weights: tuple[str, ...]
    makes: tuple[str, ...]


class Flat:
    """A model as ONNX Runtime has optimised it: no more is joined, so that a cut changes no number.

    Its initializers stay with whoever reads them; `fed_bytes` are weights that are fed. `values` are the names of those
    that the main graph's nodes make, and of inputs.
    """

    def __init__(self, model: onnx.ModelProto, fed_bytes: Mapping[str, int]) -> None:
        sort_nodes(model.graph)
        self.model, graph = model, model.graph
        self._held = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._ports = {port.name: port for port in graph.input}
        self._fed = frozenset(fed_bytes)
        self.results = tuple(port.name for port in graph.output)
        self._reads = [tuple(dict.fromkeys(reads_of(node))) for node in graph.node]
        self._makes = [tuple(name for name in node.output if name) for node in graph.node]
        self.kinds: dict[str, int] = {}  # element types of values, as far as runs have shown them
        given = [name for name in self._ports if name not in self._fed and name not in self._held]
        self.values = tuple(dict.fromkeys([*given, *(name for names in self._makes for name in names)]))
        self._numbers = {name: number for number, name in enumerate(self.values)}
        weights = {name: tensor.ByteSize() for name, tensor in (*self._held.items(), *self._sparse.items())}
        weights |= fed_bytes
        self._weights = {name: number for number, name in enumerate(weights)}
        self._weights_bytes = tuple(weights.values())
        self._given = frozenset(self._numbers[name] for name in given)
        self._last = {name: number for number, names in enumerate(self._reads) for name in names}
        self._kept = _kept(model, self._numbers)
        self._steps = tuple(
            Step(
                reads=tuple(self._numbers[name] for name in reads if name in self._numbers),
                makes=tuple(self._numbers[name] for name in makes),
                weights=tuple(self._weights[name] for name in reads if name in self._weights),
            )
            for reads, makes in zip(self._reads, self._makes, strict=True)
        )

    @property
    def length(self) -> int:
        return len(self._steps)

    @property
    def weights_bytes(self) -> int:
        return sum(self._weights_bytes)

    def has_plain_ports(self) -> bool:
        """Whether all inputs and outputs are tensors that can wait on the disk."""
        return all(
            port.type.WhichOneof("value") == "tensor_type" and storage_of(port.type.tensor_type.elem_type) is not None
            for port in (*self.model.graph.input, *self.model.graph.output)
        )

    def keep(self, names: Collection[str]) -> None:
        """These values cannot leave memory either, as a run has shown."""
        self._kept |= {self._numbers[name] for name in names}

    def course(self, sizes_bytes: Mapping[str, int], most_fed_bytes: int) -> Course:
        """What is to be cut, with sizes of values by name as runs have shown them; those not known count nothing.
        Weights that are fed count up to `most_fed_bytes`: of larger ones the system holds what it has room for.
        """
        sizes = [sizes_bytes.get(name, 0) for name in self.values]
        return Course(
            steps=self._steps,
            sizes_bytes=sizes,
            weights_bytes=[
                min(size, most_fed_bytes) if name in self._fed else size
                for name, size in zip(self._weights, self._weights_bytes, strict=True)
            ],
            # Bodies make values of their own, which nobody has measured, mostly of the sizes of what is beside them.
            scratch_bytes=[
                2 * sum(sizes[value] for value in (*step.reads, *step.makes)) if _has_bodies(node) else 0
                for node, step in zip(self.model.graph.node, self._steps, strict=True)
            ],
            given=self._given,
            results=frozenset(self._numbers[name] for name in self.results if name in self._numbers),
            kept=self._kept,
        )

    def is_wanted(self, name: str, stop: int) -> bool:
        """Whether a value is read by a node from `stop` on, or is a result."""
        return self._last.get(name, -1) >= stop or name in self.results

    def describe(self, step: int) -> str:
        """A node, as errors call it."""
        node = self.model.graph.node[step]
        return f"node {node.name or next(iter(node.output), '')!r} ({node.op_type})"

    def piece(self, start: int, stop: int, *, shows_all: bool = False) -> Piece:
        """The nodes from `start` to before `stop` as a model; it answers what later ones and the caller want of it, or
        all that it makes. Of values made before, their types have to be known by then.
        """
        model, graph = onnx.ModelProto(), self.model.graph
        model.ir_version, model.graph.name = self.model.ir_version, graph.name
        model.opset_import.extend(self.model.opset_import)
        model.functions.extend(self.model.functions)
        model.graph.node.extend(graph.node[start:stop])
        made = dict.fromkeys(name for names in self._makes[start:stop] for name in names)
        read = dict.fromkeys(name for names in self._reads[start:stop] for name in names if name not in made)
        makes = tuple(name for name in made if shows_all or self.is_wanted(name, stop))
        model.graph.initializer.extend(self._held[name] for name in read if name in self._held)
        model.graph.sparse_initializer.extend(self._sparse[name] for name in read if name in self._sparse)
        reads = tuple(name for name in read if name in self._numbers or (name in self._held and name in self._ports))
        weights = tuple(name for name in read if name in self._fed)
        for name in (*reads, *weights):
            port = self._ports.get(name)
            known = port or onnx.helper.make_tensor_value_info(name, self.kinds[name], None)
            model.graph.input.append(known)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in makes)
        return Piece(model, reads, weights, makes)

    def unmade(self) -> dict[str, onnx.TensorProto | None]:
        """Results that no node makes: what holds them, None where it is fed."""
        made = {name for names in self._makes for name in names}
        return {name: self._held.get(name) for name in self.results if name not in made}


def _kept(model: onnx.ModelProto, numbers: Mapping[str, int]) -> frozenset[int]:
    """Values that are known not to be tensors of plain numbers."""
    plain = {
        type_text(onnx.helper.make_tensor_type_proto(element, None))
        for element in onnx.TensorProto.DataType.values()
        if storage_of(element) is not None
    }
    types = value_types(model).types
    return frozenset(number for name, number in numbers.items() if types.get(name, _UNKNOWN) not in (_UNKNOWN, *plain))


def _has_bodies(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
