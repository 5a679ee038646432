"""Back references from a Graph's nodes, uses and values to its ModelProto."""

from dataclasses import dataclass, field
from typing import NamedTuple

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Use


@dataclass(eq=False, slots=True)
class Container:
    """A unit of naming and rewriting: the main graph with its subgraphs, or one call of a function.

    `call` is the calling node, `key` the function's (domain, name, overload). Its `root` is a copy.
    """

    root: onnx.GraphProto | onnx.FunctionProto
    call: onnx.NodeProto | None = None
    key: tuple[str, str, str] | None = None


class OperandPlace(NamedTuple):
    """Operand `position` of a node."""

    container: Container
    proto: onnx.NodeProto
    position: int


class ResultPlace(NamedTuple):
    """Output `position` of a graph, subgraph or function."""

    container: Container
    owner: onnx.GraphProto | onnx.FunctionProto
    position: int


Place = OperandPlace | ResultPlace


@dataclass(slots=True, kw_only=True)
class Handles:
    """Parallel to a Graph: `protos` by node id, `owners` and `containers` by scope id.

    `places` locates the uses of ties and outputs; an operator's uses are its own operands. `forms`
    names the casts in the original model, by value and dtype. `tensors` are the weights by value
    id. `declared` are the declarations of a value's type, which must follow it: inputs and outputs
    of graphs and subgraphs. `made` are the operators but Casts that applying a plan has inserted,
    with scopes; `is_resorted` tells whether it has reordered the others.
    """

    model: onnx.ModelProto
    protos: list[onnx.NodeProto | None] = field(default_factory=list)
    owners: list[onnx.GraphProto | onnx.FunctionProto] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    places: dict[Use, Place] = field(default_factory=dict)
    forms: dict[tuple[int, DType], str] = field(default_factory=dict)
    casts: list[tuple[int, onnx.NodeProto]] = field(default_factory=list)
    tensors: dict[int, onnx.TensorProto] = field(default_factory=dict)
    declared: dict[int, list[onnx.ValueInfoProto]] = field(default_factory=dict)
    made: list[tuple[int, onnx.NodeProto]] = field(default_factory=list)
    is_resorted: bool = False

    def proto(self, node: int) -> onnx.NodeProto:
        """The node of an operator."""
        proto = self.protos[node]
        assert proto is not None, "an operator has a node"
        return proto

    def graph(self, scope: int) -> onnx.GraphProto:
        """The graph or subgraph of a scope that has weights."""
        owner = self.owners[scope]
        assert isinstance(owner, onnx.GraphProto), "functions hold no weights"
        return owner
