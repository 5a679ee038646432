"""Where the nodes, uses and values of a Graph stand in the ModelProto they were read from."""

from dataclasses import dataclass, field
from typing import NamedTuple

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Use


@dataclass(eq=False, slots=True)
class Container:
    """A piece of the model that is named and rewritten as one: the main graph with its bodies, or one call of a
    function.

    `call` is the calling node and `key` the function's (domain, name, overload). `root` of a call is a copy of its own.
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
    """Output `position` of a graph, body or function."""

    container: Container
    owner: onnx.GraphProto | onnx.FunctionProto
    position: int


Place = OperandPlace | ResultPlace


@dataclass(slots=True, kw_only=True)
class Handles:
    """Parallel to a Graph: `protos` by node id, `owners` and `containers` by scope id.

    `places` says where the uses of ties and outputs stand; an operator's uses stand at its own operands.
    `forms` names the casts the model came with, by value and dtype. `tensors` are the weights by value id; `declared`
    are the places that
    state a value's type and must follow it: body inputs and outputs, graph inputs and outputs.
    `made` are the operators, Casts apart, that an application has put in, with their scopes; `is_resorted` says whether
    it has changed the order of the others.
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
