"""One graph of a model that is being normalized: who reads its values, what is constant, what types are known."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mezzo.onnx.files.blobs import EXTERNAL, INLINE_BYTES
from mezzo.onnx.files.files import Source
from mezzo.onnx.normal_form.use_counts import bodies_of, fed_names, graphs_of
from mezzo.onnx.protos.attributes import find
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape

_ATTRIBUTE_FORMS = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A graph with what its passes ask for. A pass that changes who makes or reads a value spoils the scope.

    `kept` are results of operators that are not to go, `types` what inference says of values by name, `inner` the
    names that bodies in the graph give to values of their own. `outer` are constants of the graphs around it, `taken`
    all names of the model. `copied`: bytes that a second copy of a constant takes in the result, as a share of its own.
    """

    model: onnx.ModelProto
    graph: onnx.GraphProto
    source: Source
    kept: Set[str]
    types: Mapping[str, onnx.TypeProto]
    opset: int
    outer: Mapping[str, TensorProto]
    taken: set[str]
    copied: float

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Tensors of initializers that cannot be fed and of Constants, by name, those of graphs around it too."""
        fed = fed_names(self.model, self.graph)
        constants = {name: tensor for name, tensor in self.outer.items() if name not in fed}
        constants |= {tensor.name: tensor for tensor in self.graph.initializer if tensor.name not in fed}
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
        """How often each name is read: by nodes, by bodies, as an output."""
        counts: Counter[str] = Counter(self.outputs)
        for graph in graphs_of(self.graph):
            counts.update(name for node in graph.node for name in node.input)
            if graph is not self.graph:
                counts.update(port.name for port in graph.output)
        return counts

    @cached_property
    def readers(self) -> Mapping[str, Sequence[onnx.NodeProto]]:
        """The nodes of the graph itself that read a name, once each."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in dict.fromkeys(node.input):
                readers.setdefault(name, []).append(node)
        return readers

    @cached_property
    def makers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where the node stands that makes a value, by the value's name."""
        return {name: place for place, node in enumerate(self.graph.node) for name in node.output if name}

    @cached_property
    def inner(self) -> Set[str]:
        """Names that bodies define, which may hide those of the graph."""
        names: set[str] = set()
        for body in bodies_of(self.graph):
            for graph in graphs_of(body):
                names.update(held.name for held in (*graph.input, *graph.initializer))
                names.update(name for node in graph.node for name in node.output)
        return names

    def stays(self, node: onnx.NodeProto) -> bool:
        """Whether an operator is not to go, or is none of ONNX's own. What it reads, and how it pads, may change."""
        return node.domain not in DEFAULT or not self.kept.isdisjoint(node.output)

    def shape(self, name: str) -> Shape | None:
        """The dimensions of a value, None for each that is open; None where the rank is not known."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return tuple(tensor.dims)
        held = self.types.get(name)
        if held is None or not held.tensor_type.HasField("shape"):
            return None
        dims = held.tensor_type.shape.dim
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)

    def element(self, name: str) -> int:
        """ONNX's number of a value's element type; 0 where it is not known or no tensor."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return int(tensor.data_type)
        held = self.types.get(name)
        return 0 if held is None else int(held.tensor_type.elem_type)

    def numbers(self, name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None":
        """What a small constant holds; None of any other value."""
        tensor = self.constants.get(name)
        if tensor is None or tensor.data_location == EXTERNAL or tensor.ByteSize() > 2 * INLINE_BYTES:
            return None
        return self.source.blobs.array(tensor)

    def integers(self, node: onnx.NodeProto, position: int, attribute: str) -> list[int] | None:
        """Integers that an operator takes as an operand, or took as an attribute at older opsets; None where they are
        computed, [] where there are none.
        """
        held = find(node, attribute)
        if held is not None:
            return [int(number) for number in held.ints] or [int(held.i)]
        if len(node.input) <= position or not node.input[position]:
            return []
        numbers = self.numbers(node.input[position])
        return None if numbers is None else [int(number) for number in numbers.reshape(-1)]


def _tensor_of(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor of a Constant; None of other operators, and of strings and sparse tensors."""
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
    """Let nodes of a graph and of its bodies read values by other names."""
    for owner in graphs_of(graph):
        for node in owner.node:
            for position, name in enumerate(node.input):
                if name in names:
                    node.input[position] = names[name]
        if owner is not graph:
            for port in owner.output:
                if port.name in names:
                    port.name = names[port.name]
