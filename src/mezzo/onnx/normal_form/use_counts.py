"""What a model that is being changed reads, and how often: which constants are one node's own, and what has to go."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableSequence, Set
from typing import NamedTuple

import onnx
from onnx import TensorProto, helper

from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.protos.attributes import constant_tensor
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.schema.domains import DEFAULT

# Before it every initializer is an input too; from it on one that is may be fed.
_DEFAULTS_SINCE = 4


class Held(NamedTuple):
    """A constant: its tensor, and whether that is an initializer of this name, which may be changed where it is."""

    tensor: TensorProto
    is_initializer: bool


Constants = Mapping[str, Held]


class UseCounts:
    """The reads of one model, bodies included, kept true while it is changed."""

    def __init__(self, model: onnx.ModelProto, blobs: Blobs) -> None:
        self.model, self.blobs = model, blobs
        self.reads: Counter[str] = Counter()  # over all scopes: what two of them call alike is read too often
        self.taken = names_of(model)
        self._left: set[str] = set()  # names that are read less often than they were
        for graph in graphs_of(model.graph):
            self.reads.update(name for node in graph.node for name in node.input)
            self.reads.update(port.name for port in graph.output)

    def constants(self, graph: onnx.GraphProto, outer: Constants) -> dict[str, Held]:
        """The constants that a graph sees; `outer` are those of graphs around it."""
        may_be_fed = fed_names(self.model, graph)
        held = {name: constant for name, constant in outer.items() if name not in may_be_fed}
        held |= {tensor.name: Held(tensor, True) for tensor in graph.initializer if tensor.name not in may_be_fed}
        for node in graph.node:
            found = None
            if node.op_type == "Identity" and node.input[0] in held:  # exporters share equal weights so
                found = held[node.input[0]].tensor
            elif node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                found = constant_tensor(node.attribute[0])
            for name in node.output:
                held.pop(name, None)
                if found is not None:
                    held[name] = Held(found, False)
        return held

    def floats(self, held: Held | None) -> Array | None:
        """The numbers of a constant in FP32; None where it is none."""
        is_float = held is not None and held.tensor.data_type == TensorProto.FLOAT
        return self.blobs.array(held.tensor) if held is not None and is_float else None

    def sole_user(self, made: str, users: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto | None:
        """The one node that reads a value, once; None where anything else does too, an output or a body."""
        user = users.get(made)
        return user if user is not None and self.reads[made] == 1 and user.domain in DEFAULT else None

    def new_initializer(self, wish: str, like: TensorProto) -> TensorProto:
        """A copy of a tensor in the main graph, which every body sees, under a name of its own; it is read once."""
        tensor = TensorProto()
        tensor.CopyFrom(like)
        tensor.name = fresh_name(self.taken, wish)
        self.reads[tensor.name] = 1
        return add_initializer(self.model, self.model.graph, tensor)

    def leave(self, *names: str) -> None:
        """Note that each of these is read once less."""
        self.reads.subtract(names)
        self._left.update(names)

    def prune(self) -> None:
        """Take out constants that were read and are no longer, and what was noted of values that are gone."""
        while unread := {name for name in self._left if not self.reads[name]}:
            self._left.clear()
            for graph in graphs_of(self.model.graph):
                held = {tensor.name for tensor in graph.initializer}
                drop_named(graph.initializer, unread)
                drop_named(graph.input, unread & held)
                drop_named(graph.value_info, unread)
                for position in reversed(range(len(graph.node))):
                    node = graph.node[position]
                    if node.op_type in ("Constant", "Identity") and node.output[0] in unread:
                        self.leave(*node.input)
                        del graph.node[position]


def drop_named(
    held: "MutableSequence[TensorProto] | MutableSequence[onnx.ValueInfoProto]", names: Collection[str]
) -> None:
    """Take out the entries of these names."""
    for position in reversed(range(len(held))):
        if held[position].name in names:
            del held[position]


def fed_names(model: onnx.ModelProto, graph: onnx.GraphProto) -> Set[str]:
    """Inputs of a graph that a caller may feed; an initializer of such a name is a default."""
    return {port.name for port in graph.input} if model.ir_version >= _DEFAULTS_SINCE else frozenset()


def add_initializer(model: onnx.ModelProto, graph: onnx.GraphProto, tensor: TensorProto) -> TensorProto:
    """Put a copy of a tensor into a graph of a model as an initializer, and return it."""
    added: TensorProto = graph.initializer.add()
    added.CopyFrom(tensor)
    if model.ir_version < _DEFAULTS_SINCE and graph is model.graph:
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, [*tensor.dims]))
    return added


def names_of(model: onnx.ModelProto) -> set[str]:
    """All names of values and nodes in a model, bodies included."""
    names: set[str] = set()
    for graph in graphs_of(model.graph):
        names.update(name for node in graph.node for name in (node.name, *node.input, *node.output))
        names.update(held.name for held in (*graph.input, *graph.output, *graph.initializer))
    return names


def bodies_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The bodies of a graph's nodes, of whatever operator."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
            yield from attribute.graphs


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all bodies in it, of whatever operator."""
    yield graph
    for body in bodies_of(graph):
        yield from graphs_of(body)
