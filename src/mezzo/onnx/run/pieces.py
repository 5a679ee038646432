"""Partition of a model at node boundaries: sizes for cuts, node ranges as models."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate

import onnx

from mezzo.contracts.segments import Course, SegmentStep
from mezzo.onnx.files.disk_cache import storage_of
from mezzo.onnx.protos.graphs import reads_of, subgraphs_of
from mezzo.onnx.protos.order import sort_nodes
from mezzo.onnx.schema.value_types import type_text, value_types

# Values of unknown type may be spilled to disk; known types other than plain tensors may not.
_UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class ModelPiece:
    """A range of nodes as a model: the names of its input values, input weights, and outputs."""

    model: onnx.ModelProto
    reads: tuple[str, ...]
    weights: tuple[str, ...]
    makes: tuple[str, ...]


class Flat:
    """A model already optimized by ONNX Runtime: without further fusions, cuts change no result.

    Initializers go with their users; `fed_bytes` are sizes of weights that are inputs. `values` are
    the names of inputs and of the main graph's intermediate values.
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
        self.kinds: dict[str, int] = {}  # element types of values, observed in runs
        input_values = [
            name for name in self._ports if name not in self._fed and name not in self._held
        ]
        self.values = tuple(
            dict.fromkeys([*input_values, *(name for names in self._makes for name in names)])
        )
        self._numbers = {name: number for number, name in enumerate(self.values)}
        weights = {
            name: tensor.ByteSize() for name, tensor in (*self._held.items(), *self._sparse.items())
        }
        weights |= fed_bytes
        self._weights = {name: number for number, name in enumerate(weights)}
        self._weights_bytes = tuple(weights.values())
        self._given = frozenset(self._numbers[name] for name in input_values)
        self._last = {name: number for number, names in enumerate(self._reads) for name in names}
        self._kept = _kept(model, self._numbers)
        self._steps = tuple(
            SegmentStep(
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
        """Whether all inputs and outputs are tensors that can be spilled to disk."""
        return all(
            port.type.WhichOneof("value") == "tensor_type"
            and storage_of(port.type.tensor_type.elem_type) is not None
            for port in (*self.model.graph.input, *self.model.graph.output)
        )

    def keep(self, names: Collection[str]) -> None:
        """Record further values that cannot be spilled to disk, as a run has shown."""
        self._kept |= {self._numbers[name] for name in names}

    def course(self, sizes_bytes: Mapping[str, int], most_fed_bytes: int) -> Course:
        """The steps with observed sizes of values by name, for choosing cuts; unknown ones count 0.

        Memory-mapped weights count up to `most_fed_bytes` each, as their pages can be evicted.
        """
        sizes = [sizes_bytes.get(name, 0) for name in self.values]
        return Course(
            steps=self._steps,
            sizes_bytes=sizes,
            weights_bytes=[
                min(size, most_fed_bytes) if name in self._fed else size
                for name, size in zip(self._weights, self._weights_bytes, strict=True)
            ],
            # Values inside subgraphs are not measured; assume twice the node's inputs and outputs.
            scratch_bytes=[
                (
                    2 * sum(sizes[value] for value in (*step.reads, *step.makes))
                    if any(subgraphs_of(node))
                    else 0
                )
                for node, step in zip(self.model.graph.node, self._steps, strict=True)
            ],
            given=self._given,
            results=frozenset(
                self._numbers[name] for name in self.results if name in self._numbers
            ),
            kept=self._kept,
        )

    def is_wanted(self, name: str, stop: int) -> bool:
        """Whether a value is used by a node from `stop` on, or is an output."""
        return self._last.get(name, -1) >= stop or name in self.results

    def first_reader(self, name: str) -> int:
        """Position of the first node that reads a value or weight; the end if none does."""
        return next((at for at, reads in enumerate(self._reads) if name in reads), self.length)

    def values_alive(self) -> list[int]:
        """For each position, how many values made before it are read at it or later."""
        changes = [0] * (self.length + 2)
        for at, names in enumerate(self._makes):
            for name in names:
                changes[at + 1] += 1
                changes[max(self._last.get(name, -1), at) + 1] -= 1
        return [*accumulate(changes)][: self.length + 1]

    def describe(self, step: int) -> str:
        """A node as text for errors."""
        node = self.model.graph.node[step]
        return f"node {node.name or next(iter(node.output), '')!r} ({node.op_type})"

    def piece(self, start: int, stop: int, *, shows_all: bool = False) -> ModelPiece:
        """The nodes from `start` to `stop` (exclusive) as a model. Its outputs are the values used
        later, or all if `shows_all`. The types of its inputs must have been observed.
        """
        model, graph = onnx.ModelProto(), self.model.graph
        model.ir_version, model.graph.name = self.model.ir_version, graph.name
        model.opset_import.extend(self.model.opset_import)
        model.functions.extend(self.model.functions)
        model.graph.node.extend(graph.node[start:stop])
        produced = dict.fromkeys(name for names in self._makes[start:stop] for name in names)
        operands = dict.fromkeys(
            name for names in self._reads[start:stop] for name in names if name not in produced
        )
        makes = tuple(name for name in produced if shows_all or self.is_wanted(name, stop))
        model.graph.initializer.extend(self._held[name] for name in operands if name in self._held)
        model.graph.sparse_initializer.extend(
            self._sparse[name] for name in operands if name in self._sparse
        )
        reads = tuple(
            name
            for name in operands
            if name in self._numbers or (name in self._held and name in self._ports)
        )
        weights = tuple(name for name in operands if name in self._fed)
        for name in (*reads, *weights):
            port = self._ports.get(name)
            declaration = port or onnx.helper.make_tensor_value_info(name, self.kinds[name], None)
            model.graph.input.append(declaration)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in makes)
        return ModelPiece(model, reads, weights, makes)

    def unmade(self) -> dict[str, onnx.TensorProto | None]:
        """Outputs that no node produces, with their tensors; None if it is an input."""
        produced = {name for names in self._makes for name in names}
        return {name: self._held.get(name) for name in self.results if name not in produced}


def _kept(model: onnx.ModelProto, numbers: Mapping[str, int]) -> frozenset[int]:
    """Values whose type is known not to be a plain numeric tensor."""
    plain = {
        type_text(onnx.helper.make_tensor_type_proto(element, None))
        for element in onnx.TensorProto.DataType.values()
        if storage_of(element) is not None
    }
    types = value_types(model).types
    return frozenset(
        number
        for name, number in numbers.items()
        if types.get(name, _UNKNOWN) not in (_UNKNOWN, *plain)
    )
