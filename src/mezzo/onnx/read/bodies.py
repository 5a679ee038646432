"""Common parts of reading If, loops and calls: scopes of subgraphs, ties of crossing values.

A tie is a pseudo node whose values must have one dtype on both sides of the boundary.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Signature, Use
from mezzo.onnx.protos.attributes import find
from mezzo.onnx.protos.graphs import Owner
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import ANY_FLOAT, Env, Frame, pseudo_signature
from mezzo.onnx.read.handles import OperandPlace, Place, ResultPlace
from mezzo.onnx.read.origins import title_of
from mezzo.onnx.schema.infos import stated_infos
from mezzo.onnx.schema.schema import find_schema
from mezzo.onnx.schema.types import (
    ValueType,
    element_dtype,
    from_type_proto,
    state_type,
    with_element,
)

# A use of a tie: the value, and where the model names it.
TieUse = tuple[int | None, Place]


class Result(NamedTuple):
    """One output of a subgraph: its value id, type, nominal size and place."""

    value: int | None
    value_type: ValueType
    elements: int
    place: ResultPlace


class ControlFlow:
    """Reads one control-flow node, or call of a function (`op` is then empty).

    `inputs` and `outputs` are the operands and results of the node that are no ties.
    """

    def __init__(
        self, reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto, op: str = ""
    ) -> None:
        self.reader, self.frame, self.proto, self.op = reader, frame, proto, op
        self.title = title_of(proto)
        self.inputs: list[int | None] = []
        self.outputs: list[int | None] = []
        title = reader.unique(frame, self.title)
        signature = pseudo_signature(proto.op_type, 0, 0, None, frozenset())
        self.node = reader.add_node(title, Kind.OP, signature, frame.scope, (), (), proto)

    def body(self, name: str) -> onnx.GraphProto:
        """The subgraph in an attribute."""
        attribute = find(self.proto, name)
        if attribute is None:
            raise ModelError(
                f"node {self.proto.name or self.proto.output[0]!r} ({self.proto.op_type}) lacks its"
                f" body {name!r}; mend the model"
            )
        return attribute.g

    def path(self, name: str) -> str:
        """The path of a scope inside this node's graph."""
        return f"{self.frame.path}/{name}" if self.frame.path else name

    def enter(self, label: str, body: onnx.GraphProto, repeats: int = 1) -> Frame:
        """Open the scope of a subgraph."""
        frame, path = self.frame, self.path(f"{self.title}/{label}")
        scope = self.reader.add_scope(self.node, path, body, frame.container, frame.scope, repeats)
        inner = Frame(Env(frame.env), scope, path, frame.opsets, frame.container)
        inner.attributes = frame.attributes
        inner.declared = stated_infos(body)
        inner.depth = frame.depth + 1
        return inner

    def read_body(self, inner: Frame, body: onnx.GraphProto) -> None:
        """Read the weights and nodes of a subgraph whose inputs are bound."""
        inputs = {info.name: info for info in body.input}
        self.reader.read_initializers(inner, body, inputs, skip=inputs)
        self.reader.read_nodes(inner, body.node)

    def read_operand(self, operand: int, use: Use) -> tuple[int | None, ValueType]:
        """The value of an operand, recorded as read by `use`; None if it is absent."""
        if operand >= len(self.proto.input) or not self.proto.input[operand]:
            return None, None
        return self.reader.read_name(self.frame, self.proto.input[operand], use, self.proto)

    def output_name(self, index: int) -> str:
        """The name of an output; empty if absent."""
        return self.proto.output[index] if index < len(self.proto.output) else ""

    def operand_place(self, operand: int) -> OperandPlace:
        return OperandPlace(self.frame.container, self.proto, operand)

    def read_result(self, inner: Frame, body: Owner, index: int, use: Use) -> Result:
        """The value of a subgraph's or function's output, recorded as read by `use`."""
        reader, place = self.reader, ResultPlace(inner.container, body, index)
        if isinstance(body, onnx.FunctionProto):
            value, value_type = reader.read_name(inner, body.output[index], use)
        else:
            port = body.output[index]
            value, value_type = reader.read_name(inner, port.name, use)
            state_type(port.type, value_type)
            if value_type is None:
                value_type = from_type_proto(port.type)
                if value is not None and value_type is not None:
                    reader.state_type(value, value_type)
        elements = 1 if value is None else reader.values[value].elements
        return Result(value, value_type, elements, place)

    def bind(self, name: str, value_type: ValueType, inner: Frame, elements: int = 1) -> int:
        """Bind a name inside a body to a value that is no tie; returns its id."""
        value = self.reader.add_value(name, value_type, self.node, inner.scope, elements)
        inner.env.names[name] = value
        return value

    def bind_output(
        self,
        index: int,
        value_type: ValueType,
        elements: int,
        uses: Sequence[TieUse],
        infos: Sequence[onnx.ValueInfoProto] = (),
    ) -> None:
        """Bind an output of the node: to the value of a tie if it is a planned float, of which
        `infos` are further declarations.
        """
        reader, frame, name = self.reader, self.frame, self.output_name(index)
        if not reader.is_planned(value_type):
            self.outputs.append(self.bind(name, value_type, frame, elements))
            return
        port = (name, value_type, frame.scope, elements)
        tie, (value,) = self.open_tie(f"output[{index}]", value_type, [port])
        self.close_tie(tie, uses)
        if infos:
            reader.handles.declared.setdefault(value, []).extend(infos)
        frame.env.names[name] = value

    def finish(self) -> None:
        """Set the node's operands and results that are no ties."""
        node = self.reader.nodes[self.node]
        signature = pseudo_signature(
            node.op, len(self.inputs), len(self.outputs), None, frozenset()
        )
        self.reader.nodes[self.node] = node._replace(
            inputs=tuple(self.inputs), outputs=tuple(self.outputs), signature=signature
        )

    # -- ties --------------------------------------------------------------------------------------

    def open_tie(
        self, label: str, value_type: ValueType, outputs: list[tuple[str, ValueType, int, int]]
    ) -> tuple[int, list[int]]:
        """Add a tie without uses; `outputs` are (name, type, scope, size). Returns its ids.

        That of a loop state is closed after the body is read.
        """
        reader = self.reader
        node = len(reader.nodes)
        values = [
            reader.add_value(name, kind, node, scope, size) for name, kind, scope, size in outputs
        ]
        signature = self._signature(
            2, len(values), element_dtype(value_type), self._legal(value_type)
        )
        title = reader.unique(self.frame, f"{self.title}.{label}")
        reader.add_node(title, Kind.TIE, signature, self.frame.scope, (), tuple(values))
        return node, values

    def close_tie(self, tie: int, uses: Sequence[TieUse]) -> None:
        """Set the uses of a tie and their places in the model."""
        reader = self.reader
        node = reader.nodes[tie]
        signature = self._signature(
            len(uses), len(node.outputs), node.signature.dtype, node.signature.legal
        )
        reader.nodes[tie] = node._replace(
            inputs=tuple(value for value, _ in uses), signature=signature
        )
        for operand, (_, place) in enumerate(uses):
            reader.handles.places[Use(tie, operand)] = place

    def _legal(self, value_type: ValueType) -> frozenset[DType]:
        """Dtypes that the operator may carry. Source: type variable V of its schema."""
        if not self.op:
            return ANY_FLOAT
        schema = find_schema("", self.op, self.frame.opsets.get("", 1))
        dtype = element_dtype(value_type)
        if schema is None or value_type is None or dtype is None:
            return frozenset(() if dtype is None else (dtype,))
        variables = [v for v in (*schema.inputs, *schema.outputs) if v in schema.allowed]
        return frozenset({dtype}) | {
            low
            for low in ANY_FLOAT
            if any(schema.admits(v, with_element(value_type, low)) for v in variables)
        }

    def _signature(
        self, uses: int, values: int, dtype: DType | None, legal: frozenset[DType]
    ) -> Signature:
        """A tie's signature; `border` is the control-flow operator, None for a call."""
        schema = find_schema("", self.op, self.frame.opsets.get("", 1)) if self.op else None
        border = None if schema is None else ("onnx", self.op, schema.version)
        return replace(pseudo_signature("tie", uses, values, dtype, legal), border=border)
