"""Reading of the model's interface: inputs, their default values, and outputs."""

from collections.abc import Sequence

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Signature, Use, name_port
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import ANY_FLOAT, Frame, pseudo_signature
from mezzo.onnx.read.handles import ResultPlace
from mezzo.onnx.schema.types import ValueType, element_dtype, from_type_proto, state_type


def read_input(reader: GraphBuilder, frame: Frame, info: onnx.ValueInfoProto) -> None:
    name, value_type = info.name, from_type_proto(info.type)
    title = reader.unique(frame, name_port(Kind.INPUT, name))
    signature = _signature(reader, "input", 0, 1, value_type)
    elements = reader.elements(name, ())
    value = reader.add_producer(
        frame, title, Kind.INPUT, signature, (), None, name, value_type, elements
    )
    reader.handles.declared.setdefault(value, []).append(info)


def read_defaults(reader: GraphBuilder, frame: Frame, tensors: Sequence[onnx.TensorProto]) -> None:
    """Read default values of inputs; a default has its input's dtype."""
    planned = 0
    for tensor in tensors:
        value = frame.env.names[tensor.name]
        assert value is not None, "inputs are bound"
        reader.handles.tensors[value] = tensor
        if reader.is_planned(reader.values[value].dtype):
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
    name = reader.unique(frame, name_port(Kind.OUTPUT, info.name))
    signature = _signature(reader, "output", 1, 0, value_type)
    reader.add_node(name, Kind.OUTPUT, signature, frame.scope, (value,), ())
    reader.handles.places[Use(node, 0)] = ResultPlace(frame.container, graph, index)


def _signature(
    reader: GraphBuilder, op: str, inputs: int, outputs: int, value_type: ValueType
) -> Signature:
    dtype = element_dtype(value_type) if reader.is_planned(value_type) else None
    legal = ANY_FLOAT if dtype is not None else frozenset[DType]()
    return pseudo_signature(op, inputs, outputs, dtype, legal)
