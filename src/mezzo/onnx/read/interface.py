"""Reading of the model's interface: inputs, their default values, and outputs."""

from collections.abc import Sequence

import onnx

from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Use, name_port
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import ANY_FLOAT, Frame, pseudo_signature
from mezzo.onnx.read.handles import ResultPlace
from mezzo.onnx.schema.types import element_dtype, from_type_proto, state_type


def read_input(reader: GraphBuilder, frame: Frame, info: onnx.ValueInfoProto) -> None:
    value_type = from_type_proto(info.type)
    dtype = element_dtype(value_type) if reader.is_planned(value_type) else None
    legal = ANY_FLOAT if dtype is not None else frozenset[DType]()
    node = reader.add_node(
        reader.unique(frame, name_port(Kind.INPUT, info.name)),
        Kind.INPUT,
        pseudo_signature("input", 0, 1, dtype, legal),
        frame.scope,
        (),
        (len(reader.values),),
    )
    value = reader.add_value(
        info.name, value_type, node, frame.scope, reader.elements(info.name, ())
    )
    reader.handles.declared.setdefault(value, []).append(info)
    frame.env.names[info.name] = value


def read_defaults(reader: GraphBuilder, frame: Frame, tensors: Sequence[onnx.TensorProto]) -> None:
    """Read default values of inputs; a default has its input's dtype."""
    planned = 0
    for tensor in tensors:
        value = frame.env.names[tensor.name]
        assert value is not None, "inputs are bound"
        reader.handles.tensors[value] = tensor
        if reader.values[value].dtype in (HIGH, reader.low):
            reader.constants[value] = reader.facts_of(tensor)
            planned += 1
    if planned:
        reader.notes.append(
            f"{planned} weights are inputs too, which a caller may feed: like other inputs they"
            " keep their type, and are cast where low precision reads them; take them out of the"
            " graph's inputs to have them stored in it"
        )


def read_output(
    reader: GraphBuilder,
    frame: Frame,
    graph: onnx.GraphProto,
    index: int,
    info: onnx.ValueInfoProto,
) -> None:
    node = len(reader.nodes)
    value, value_type = reader.read_name(frame, info.name, Use(node, 0))
    state_type(info.type, value_type, reader.shapes.get(info.name))
    dtype = element_dtype(value_type) if reader.is_planned(value_type) else None
    legal = ANY_FLOAT if dtype is not None else frozenset[DType]()
    name = reader.unique(frame, name_port(Kind.OUTPUT, info.name))
    reader.add_node(
        name, Kind.OUTPUT, pseudo_signature("output", 1, 0, dtype, legal), frame.scope, (value,), ()
    )
    reader.handles.places[Use(node, 0)] = ResultPlace(frame.container, graph, index)
