"""Common parts of reading If, loops and calls: scopes of subgraphs, ties of crossing values.

A tie is a pseudo node whose values must have one dtype on both sides of the boundary.
"""

from dataclasses import replace
from typing import NamedTuple

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Signature, Use
from mezzo.onnx.protos.attributes import find
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import ANY_FLOAT, Env, Frame, pseudo_signature
from mezzo.onnx.read.handles import Place
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


class Result(NamedTuple):
    """One output of a subgraph: its value id, type and name."""

    value: int | None
    value_type: ValueType
    name: str


def _tie_legal(frame: Frame, op: str, value_type: ValueType) -> frozenset[DType]:
    """Dtypes that a control-flow operator may carry. Source: type variable V of its schema."""
    schema = find_schema("", op, frame.opsets.get("", 1))
    dtype = element_dtype(value_type)
    if schema is None or value_type is None or dtype is None:
        return frozenset(() if dtype is None else (dtype,))
    variables = [v for v in (*schema.inputs, *schema.outputs) if v in schema.allowed]
    return frozenset({dtype}) | {
        low
        for low in ANY_FLOAT
        if any(schema.admits(v, with_element(value_type, low)) for v in variables)
    }


class Ties:
    """Adds the ties of a control-flow node; those of loop state close after its body is read."""

    def __init__(self, reader: GraphBuilder, frame: Frame, op: str, title: str) -> None:
        self.reader, self.frame, self.op, self.title = reader, frame, op, title

    def open(
        self, label: str, value_type: ValueType, outputs: list[tuple[str, ValueType, int, int]]
    ) -> tuple[int, list[int]]:
        """Add a tie without uses; `outputs` are (name, type, scope, size). Returns its ids."""
        reader = self.reader
        node = len(reader.nodes)
        values = [
            reader.add_value(name, kind, node, scope, size) for name, kind, scope, size in outputs
        ]
        legal = ANY_FLOAT if self.op == "" else _tie_legal(self.frame, self.op, value_type)
        signature = self._signature(2, len(values), element_dtype(value_type), legal)
        title = reader.unique(self.frame, f"{self.title}.{label}")
        reader.add_node(title, Kind.TIE, signature, self.frame.scope, (), tuple(values))
        return node, values

    def close(self, node: int, uses: list[tuple[int | None, Place]]) -> None:
        """Set the uses of a tie and their places in the model."""
        reader = self.reader
        old = reader.nodes[node]
        signature = self._signature(
            len(uses), len(old.outputs), old.signature.dtype, old.signature.legal
        )
        reader.nodes[node] = old._replace(
            inputs=tuple(value for value, _ in uses), signature=signature
        )
        for operand, (_, place) in enumerate(uses):
            reader.handles.places[Use(node, operand)] = place

    def _signature(
        self, uses: int, values: int, dtype: DType | None, legal: frozenset[DType]
    ) -> Signature:
        """A tie's signature; `border` is the control-flow operator, None for a call."""
        schema = find_schema("", self.op, self.frame.opsets.get("", 1)) if self.op else None
        border = None if schema is None else ("onnx", self.op, schema.version)
        return replace(pseudo_signature("tie", uses, values, dtype, legal), border=border)


def body_of(proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    attribute = find(proto, name)
    if attribute is None:
        raise ModelError(
            f"node {proto.name or proto.output[0]!r} ({proto.op_type}) lacks its body {name!r};"
            " mend the model"
        )
    return attribute.g


def enter(
    reader: GraphBuilder,
    frame: Frame,
    node: int,
    path: str,
    body: onnx.GraphProto,
    repeats: int = 1,
) -> Frame:
    inner = Frame(
        Env(frame.env),
        0,
        f"{frame.path}/{path}" if frame.path else path,
        frame.opsets,
        frame.container,
    )
    inner.scope = reader.add_scope(node, inner.path, body, frame.container, frame.scope, repeats)
    inner.attributes = frame.attributes
    inner.declared = stated_infos(body)
    inner.depth = frame.depth + 1
    return inner


def read_body(reader: GraphBuilder, inner: Frame, body: onnx.GraphProto) -> None:
    reader.read_initializers(
        inner, body, {info.name: info for info in body.input}, skip={i.name for i in body.input}
    )
    reader.read_nodes(inner, body.node)


def read_result(
    reader: GraphBuilder, inner: Frame, body: onnx.GraphProto, index: int, use: Use
) -> Result:
    """The value of a subgraph's output, recorded as read by `use`."""
    name = body.output[index].name
    value, value_type = reader.read_name(inner, name, use)
    state_type(body.output[index].type, value_type)
    if value_type is None:
        value_type = from_type_proto(body.output[index].type)
        if value is not None and value_type is not None:
            reader.state_type(value, value_type)
    return Result(value, value_type, name)


def add_control_node(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> tuple[int, str]:
    """Add the control-flow node; `finish` sets its operands and results that are no ties."""
    title = reader.unique(frame, title_of(proto))
    signature = pseudo_signature(proto.op_type, 0, 0, None, frozenset())
    return reader.add_node(title, Kind.OP, signature, frame.scope, (), (), proto), title_of(proto)


def finish(
    reader: GraphBuilder, node: int, inputs: list[int | None], outputs: list[int | None]
) -> None:
    old: Node = reader.nodes[node]
    signature = pseudo_signature(old.op, len(inputs), len(outputs), None, frozenset())
    reader.nodes[node] = old._replace(
        inputs=tuple(inputs), outputs=tuple(outputs), signature=signature
    )
