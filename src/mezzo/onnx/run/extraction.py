"""Extraction of a subgraph as a separate model with its weights and typed inputs and outputs."""

from collections.abc import Collection, Iterable, Iterator
from copy import deepcopy

import onnx
import onnx.helper

from mezzo.common.errors import InputError, ModelError
from mezzo.onnx.protos.graphs import reads_of, replace_nodes, stored_names
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.schema.shapes import infer

_DRAWS = frozenset(
    {
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)


def extract_nodes(reading: OnnxReading, nodes: Collection[int]) -> onnx.ModelProto:
    """Extract nodes of the main graph, and all nodes on paths between them, as a model.

    Nodes that compute operands from weights alone are included. Other operands become inputs,
    values used outside the part become outputs.

    Raises:
        InputError: a node is in the body of an If, Loop or Scan, or in a function.
        ModelError: the type of an input or output is unknown.
    """
    model = reading.handles.model
    for node in nodes:
        if reading.graph.nodes[node].scope != 0:
            name = reading.graph.nodes[node].name
            raise InputError(
                f"node {name!r} is in a subgraph or a function; only parts of the main graph are"
                " extracted"
            )
    return extract_positions(Wiring(model), StatedTypes(model), _positions(reading.handles, nodes))


def extract_positions(
    wiring: "Wiring", types: "StatedTypes", positions: Iterable[int], shown: Collection[str] = ()
) -> onnx.ModelProto:
    """Extract nodes of the main graph, by position, as `extract_nodes` does. `shown`: values made
    in the part that become outputs too.

    Raises ModelError: the type of an input or output is unknown.
    """
    model, cut = wiring.model, _Cut(wiring, set(positions))
    part = deepcopy(model)
    del part.metadata_props[:]
    graph = part.graph
    for field, names in ((graph.initializer, cut.read), (graph.value_info, cut.made)):
        chosen = [entry for entry in field if entry.name in names]
        del field[:]
        field.extend(chosen)
    sparse = [entry for entry in graph.sparse_initializer if entry.values.name in cut.read]
    del graph.sparse_initializer[:], graph.quantization_annotation[:]
    graph.sparse_initializer.extend(sparse)
    replace_nodes(graph, (model.graph.node[position] for position in sorted(cut.positions)))
    del graph.input[:], graph.output[:]
    graph.input.extend(types.port(name) for name in cut.inputs())
    graph.output.extend(types.port(name) for name in dict.fromkeys([*cut.outputs(), *shown]))
    return part


def _positions(handles: Handles, nodes: Collection[int]) -> Iterator[int]:
    """Positions of the nodes in the main graph, found by their outputs."""
    by_result = {
        name: position
        for position, proto in enumerate(handles.model.graph.node)
        for name in proto.output
        if name
    }
    for node in nodes:
        proto = handles.protos[node]
        assert proto is not None, "an operator has a node in the model"
        result = next((name for name in proto.output if name), None)
        if result is not None:
            yield by_result[result]


class Wiring:
    """Which nodes of a model's main graph, by position, read and make which values. `fixed`: those
    that compute from weights alone.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.weights = set(stored_names(model.graph))
        self.reads = [tuple(reads_of(node)) for node in model.graph.node]
        self.makers = {
            name: position
            for position, node in enumerate(model.graph.node)
            for name in node.output
            if name
        }
        self.fixed = self._find_fixed()

    def closed(self, positions: Collection[int]) -> set[int]:
        """Add nodes on paths between these nodes, such as Casts, which are no nodes of the
        planner's graph.
        """
        first, last = min(positions, default=0), max(positions, default=-1)
        dependents, dependencies = set(positions), set(positions)
        for position in range(first, last + 1):
            if any(self.makers.get(name) in dependents for name in self.reads[position]):
                dependents.add(position)
        needed = {name for position in positions for name in self.reads[position]}
        for position in range(last, first - 1, -1):
            if position in dependencies or any(
                name in needed for name in self.model.graph.node[position].output
            ):
                dependencies.add(position)
                needed.update(self.reads[position])
        return dependents & dependencies

    def with_constants(self, positions: set[int]) -> set[int]:
        """Add nodes that compute operands of these nodes from weights alone."""
        included, pending = set(positions), list(positions)
        while pending:
            for name in self.reads[pending.pop()]:
                maker = self.makers.get(name)
                if maker in self.fixed and maker not in included:
                    included.add(maker)
                    pending.append(maker)
        return included

    def _find_fixed(self) -> set[int]:
        fixed: set[int] = set()
        for position, node in enumerate(self.model.graph.node):
            is_constant = node.op_type == "Constant" or bool(self.reads[position])
            makers = [
                self.makers.get(name) for name in self.reads[position] if name not in self.weights
            ]
            if (
                is_constant
                and node.op_type not in _DRAWS
                and all(maker in fixed for maker in makers)
            ):
                fixed.add(position)
        return fixed


class _Cut:
    """The node positions of a part, and the names that it reads and produces."""

    def __init__(self, wiring: Wiring, positions: set[int]) -> None:
        self._graph, self._weights, self._reads = (
            wiring.model.graph, wiring.weights, wiring.reads
        )  # fmt: skip
        self._core = wiring.closed(positions)
        self.positions = wiring.with_constants(self._core)
        self.read = {name for position in self.positions for name in self._reads[position]}
        self.made = {
            name
            for position in self.positions
            for name in self._graph.node[position].output
            if name
        }

    def inputs(self) -> list[str]:
        """Operands that are neither weights nor produced in the part, in order of first use."""
        names = (name for position in sorted(self.positions) for name in self._reads[position])
        return list(
            dict.fromkeys(n for n in names if n not in self.made and n not in self._weights)
        )

    def outputs(self) -> list[str]:
        """Values of the part used outside; if there are none, those unused inside."""
        used_outside = {
            n
            for position, reads in enumerate(self._reads)
            if position not in self.positions
            for n in reads
        }
        used_outside |= {port.name for port in self._graph.output}
        results = [
            n for position in sorted(self._core) for n in self._graph.node[position].output if n
        ]
        return [n for n in results if n in used_outside] or [
            n for n in results if n not in self.read
        ]


class StatedTypes:
    """Types of a model's values, declared or inferred. `ranked`: a tensor without a known number of
    axes has no type; else it becomes a port without a shape, which runtimes take.
    """

    def __init__(self, model: onnx.ModelProto, *, ranked: bool = True) -> None:
        self._ranked = ranked
        graph = infer(model, data_prop=True).graph
        infos = (*graph.value_info, *graph.output, *graph.input)
        self._stated = {info.name: info for info in infos}

    def port(self, name: str) -> onnx.ValueInfoProto:
        """Declaration of an input or output. Raises ModelError: unknown type or rank."""
        info = self._stated.get(name)
        if info is None or not _is_full(info.type, self._ranked):
            raise ModelError(
                f"the type of {name!r}, which the part reads or gives, is not known, or not how"
                " many axes it has; take a larger part, or let the model state it"
            )
        return onnx.helper.make_value_info(name, info.type)


def _is_full(kind: onnx.TypeProto, ranked: bool) -> bool:
    """Whether a type is complete enough for an input."""
    match kind.WhichOneof("value"):
        case None:
            return False
        case "tensor_type":
            has_rank = kind.tensor_type.HasField("shape") or not ranked
            return bool(kind.tensor_type.elem_type) and has_rank
        case _:
            return True
