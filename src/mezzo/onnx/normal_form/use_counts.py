"""Use counts of a model's values during rewrites: sole users, shared constants, dead values."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import onnx
from onnx import TensorProto

from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.protos.entries import add_initializer, fed_names, remove_named
from mezzo.onnx.protos.graphs import all_graphs, reads_in
from mezzo.onnx.protos.names import fresh_name, names_of
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.schema.domains import DEFAULT

# Removed with the last use of their result; a Cast is there from FP32 to FP32.
_WITHOUT_WORK = frozenset({"Constant", "Identity", "Cast"})


class ConstantTensor(NamedTuple):
    """A constant's tensor. An initializer of that very name may be changed in place."""

    tensor: TensorProto
    is_initializer: bool


Constants = Mapping[str, ConstantTensor]


class UseCounts:
    """Use counts of one model, subgraphs included. Rewrites must report the uses they remove.
    `before` has the names that are not given to new values.
    """

    def __init__(self, model: onnx.ModelProto, blobs: Blobs, before: onnx.ModelProto) -> None:
        self.model, self.blobs, self._before = model, blobs, before
        # Over all scopes; equal names in two scopes are overcounted.
        self.reads: Counter[str] = Counter()
        self._left: set[str] = set()  # names with removed uses
        for graph in all_graphs(model.graph):
            self.reads.update(reads_in(graph))

    @cached_property
    def taken(self) -> set[str]:
        """Names in use; collecting them takes as long as counting all uses, so only if needed."""
        return names_of(self._before)

    def constants(self, graph: onnx.GraphProto, outer: Constants) -> dict[str, ConstantTensor]:
        """The constants visible in a graph; `outer` are those of the enclosing graphs."""
        may_be_fed = fed_names(self.model, graph)
        visible = {name: constant for name, constant in outer.items() if name not in may_be_fed}
        visible |= {
            initializer.name: ConstantTensor(initializer, True)
            for initializer in graph.initializer
            if initializer.name not in may_be_fed
        }
        for node in graph.node:
            tensor = None
            # Exporters share equal weights by Identity.
            if node.op_type == "Identity" and node.input[0] in visible:
                tensor = visible[node.input[0]].tensor
            elif node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
                tensor = node.attribute[0].t
            for name in node.output:
                visible.pop(name, None)
                if tensor is not None:
                    visible[name] = ConstantTensor(tensor, False)
        return visible

    def new_initializer(self, wish: str, like: TensorProto) -> TensorProto:
        """Add a copy of a tensor with one use to the main graph, visible everywhere."""
        name = fresh_name(self.taken, wish)
        self.reads[name] = 1
        return add_initializer(self.model, self.model.graph, like, name)

    def leave(self, *names: str) -> None:
        """Report that each of these names has one use less."""
        self.reads.subtract(names)
        self._left.update(names)

    def prune(self) -> None:
        """Remove constants and Casts that lost their last use, and value_info of removed values."""
        while unread := {name for name in self._left if not self.reads[name]}:
            self._left.clear()
            for graph in all_graphs(self.model.graph):
                initializers = {tensor.name for tensor in graph.initializer}
                remove_named(graph.initializer, unread)
                remove_named(graph.input, unread & initializers)
                remove_named(graph.value_info, unread)
                for position in reversed(range(len(graph.node))):
                    node = graph.node[position]
                    if node.op_type in _WITHOUT_WORK and node.output[0] in unread:
                        self.leave(*node.input)
                        del graph.node[position]


class GraphUses:
    """The users of one graph's values and its visible constants, during rewrites of the graph."""

    def __init__(self, counts: UseCounts, graph: onnx.GraphProto, constants: Constants) -> None:
        self.counts, self.graph, self.constants = counts, graph, constants
        self._users = {name: node for node in graph.node for name in node.input}

    def sole_user(self, name: str) -> onnx.NodeProto | None:
        """The only user of a value, if it is a node with a single use of it; None otherwise."""
        user = self._users.get(name)
        is_sole = user is not None and self.counts.reads[name] == 1 and user.domain in DEFAULT
        return user if is_sole else None

    def floats(self, name: str) -> Array | None:
        """The array of an FP32 constant, else None."""
        constant = self.constants.get(name)
        if constant is None or constant.tensor.data_type != TensorProto.FLOAT:
            return None
        return self.counts.blobs.array(constant.tensor)
