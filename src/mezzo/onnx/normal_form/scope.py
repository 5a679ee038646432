"""Analyses of one graph for normal-form passes: uses, producers, constants, inferred types."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mezzo.onnx.files.blobs import INLINE_BYTES
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.protos.attributes import find
from mezzo.onnx.protos.entries import fed_names
from mezzo.onnx.protos.graphs import all_graphs, defined_names, nested_graphs, reads_in
from mezzo.onnx.protos.payloads import EXTERNAL
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape, shape_of

_ATTRIBUTE_FORMS = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@dataclass(frozen=True, kw_only=True)
class GraphScope:
    """A graph with lazily computed analyses. A pass that changes producers or uses invalidates it.

    `kept` are results of operators to keep, `types` inferred types by name, `inner` names that
    subgraphs define. `outer` are constants of the enclosing graphs, `taken` all names in the model.
    `copied` is the size of a duplicated constant in the converted model, relative to the original.
    """

    model: onnx.ModelProto
    graph: onnx.GraphProto
    source: ModelSource
    kept: Set[str]
    types: Mapping[str, onnx.TypeProto]
    opset: int
    outer: Mapping[str, TensorProto]
    taken: set[str]
    copied: float

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Initializers that cannot be fed, and Constants, by name; also of enclosing graphs."""
        fed = fed_names(self.model, self.graph)
        constants = {name: tensor for name, tensor in self.outer.items() if name not in fed}
        constants |= {
            tensor.name: tensor for tensor in self.graph.initializer if tensor.name not in fed
        }
        for node in self.graph.node:
            tensor = _tensor_of(node)
            if tensor is not None:
                constants[node.output[0]] = tensor
            else:
                for name in node.output:
                    constants.pop(name, None)
        return constants

    @cached_property
    def outputs(self) -> Set[str]:
        return {port.name for port in self.graph.output}

    @cached_property
    def reads(self) -> Counter[str]:
        """Number of uses of each name: by nodes, in subgraphs, as outputs."""
        counts: Counter[str] = Counter()
        for graph in all_graphs(self.graph):
            counts.update(reads_in(graph))
        return counts

    @cached_property
    def readers(self) -> Mapping[str, Sequence[onnx.NodeProto]]:
        """Users of each name in the graph itself, without duplicates."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in dict.fromkeys(node.input):
                readers.setdefault(name, []).append(node)
        return readers

    def is_read_outside(self, name: str, nodes: Iterable[onnx.NodeProto]) -> bool:
        """Whether a value has uses other than those by `nodes`."""
        return self.reads[name] > sum([*node.input].count(name) for node in nodes)

    @cached_property
    def makers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Position of the node that produces a value, by name."""
        return {
            name: position
            for position, node in enumerate(self.graph.node)
            for name in node.output
            if name
        }

    @cached_property
    def inner(self) -> Set[str]:
        """Names that subgraphs define, which may shadow the graph's."""
        return {name for body in nested_graphs(self.graph) for name in defined_names(body)}

    def stays(self, node: onnx.NodeProto) -> bool:
        """Whether an operator must stay: listed in `kept`, or not of the default domain. Its
        operands and padding may still change.
        """
        return node.domain not in DEFAULT or not self.kept.isdisjoint(node.output)

    def shape(self, name: str) -> Shape | None:
        """The dimensions of a value, None for each dynamic one; None if the rank is unknown."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return tuple(tensor.dims)
        inferred = self.types.get(name)
        return None if inferred is None else shape_of(inferred.tensor_type)

    def static_shape(self, name: str) -> tuple[int, ...] | None:
        """The dimensions of a value; None if one is dynamic, or the rank is unknown."""
        shape = self.shape(name)
        dims = [dim for dim in shape or () if dim is not None]
        return tuple(dims) if shape is not None and len(dims) == len(shape) else None

    def element(self, name: str) -> int:
        """A value's element type as in TensorProto; 0 if unknown or no tensor."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return int(tensor.data_type)
        inferred = self.types.get(name)
        return 0 if inferred is None else int(inferred.tensor_type.elem_type)

    def numbers(self, name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None":
        """The array of a small inline constant; None for any other value."""
        tensor = self.constants.get(name)
        if (
            tensor is None
            or tensor.data_location == EXTERNAL
            or tensor.ByteSize() > 2 * INLINE_BYTES
        ):
            return None
        return self.source.blobs.array(tensor)

    def integers(self, node: onnx.NodeProto, position: int, attribute: str) -> list[int] | None:
        """Integers of an operand, or of the attribute that older opsets have in its place. None if
        they are computed, [] if absent.
        """
        stored = find(node, attribute)
        if stored is not None:
            return [int(number) for number in stored.ints] or [int(stored.i)]
        if len(node.input) <= position or not node.input[position]:
            return []
        numbers = self.numbers(node.input[position])
        return None if numbers is None else [int(number) for number in numbers.reshape(-1)]


def _tensor_of(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor of a Constant; None for other operators, strings and sparse tensors."""
    if node.op_type != "Constant" or node.domain not in DEFAULT or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.ref_attr_name or attribute.name not in _ATTRIBUTE_FORMS:
        return None
    form = _ATTRIBUTE_FORMS[attribute.name]
    if form is None:
        tensor: TensorProto = attribute.t
        return tensor
    return numpy_helper.from_array(np.array(onnx.helper.get_attribute_value(attribute), form))


def rename_reads(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the uses of values in a graph and its subgraphs."""
    for owner in all_graphs(graph):
        for node in owner.node:
            for position, name in enumerate(node.input):
                if name in names:
                    node.input[position] = names[name]
        if owner is not graph:
            for port in owner.output:
                if port.name in names:
                    port.name = names[port.name]
