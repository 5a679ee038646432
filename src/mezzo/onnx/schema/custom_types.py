"""Inference of undeclared output types of custom operators, by the runtime or their users."""

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.protos.entries import remove_named
from mezzo.onnx.protos.payloads import EXTERNAL
from mezzo.onnx.schema.domains import imported_opsets
from mezzo.onnx.schema.schema import schema_of
from mezzo.onnx.schema.shapes import BODIES
from mezzo.onnx.schema.types import TO_ONNX, ValueType, from_type_proto, parse_type_string

_log = logging.getLogger(__name__)
# Larger weights become inputs of the model that the runtime loads, as types do not depend on their
# contents.
_MOST_BYTES = 1024


def lacks_types(graph: Graph) -> bool:
    """Whether some custom operator has an output of unknown type."""
    customs = (node for node in graph.nodes if node.kind is Kind.OP and node.signature.is_custom)
    return any(
        v is not None and graph.values[v].dtype is None for node in customs for v in node.outputs
    )


def infer_types(model: onnx.ModelProto, graph: Graph) -> Mapping[str, ValueType]:
    """Inferred types of the main graph's values, by name; only new ones."""
    unknown = [
        value.name
        for value in graph.values
        if value.scope == 0 and value.dtype is None and value.is_castable
    ]
    return _types_of_runtime(model, unknown) or _types_by_readers(model, graph)


def _types_of_runtime(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, ValueType]:
    """Types of values according to ONNX Runtime; empty if it does not load the model."""
    from mezzo.onnx.run.runtime import JUDGING, load_runtime

    copy = _without_weights(model)
    stated = {port.name for port in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in stated)
    try:
        outputs = load_runtime(copy, JUDGING).get_outputs()
    except Exception as error:  # noqa: BLE001  any error of a runtime on a model that it does not load
        _log.debug("the runtime tells no types: %s", error)
        return {}
    return {port.name: parse_type_string(port.type) for port in outputs if port.name in names}


def state_types(model: onnx.ModelProto, types: Mapping[str, ValueType]) -> None:
    """Declare inferred types of custom operators' outputs in the model."""
    produced = {name for node in model.graph.node for name in node.output}
    stated = {info.name for info in (*model.graph.value_info, *model.graph.output)}
    for name, value_type in types.items():
        if isinstance(value_type, DType) and name in produced - stated:
            model.graph.value_info.append(
                onnx.helper.make_tensor_value_info(name, TO_ONNX[value_type], None)
            )


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with large weights turned into inputs."""
    copy = deepcopy(model)
    large = [
        t
        for t in copy.graph.initializer
        if t.data_location == EXTERNAL or t.ByteSize() > _MOST_BYTES
    ]
    names, stated = {tensor.name for tensor in large}, {port.name for port in copy.graph.input}
    ports = [
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in large
        if tensor.name not in stated
    ]
    copy.graph.input.extend(ports)
    remove_named(copy.graph.initializer, names)
    return copy


def _types_by_readers(model: onnx.ModelProto, graph: Graph) -> dict[str, ValueType]:
    """Operand types from users' schemas and their other ports, backwards over the nodes."""
    types: dict[str, ValueType] = {
        v.name: v.dtype for v in graph.values if v.scope == 0 and v.is_castable
    }
    types |= {
        port.name: value_type
        for port in model.graph.output
        if (value_type := from_type_proto(port.type)) is not None
    }
    inferred: dict[str, ValueType] = {}
    opsets = imported_opsets(model)
    for node in reversed(model.graph.node):
        schema = schema_of(node, opsets)
        if schema is None or node.op_type in BODIES:
            continue
        ports = [(schema.output(position), name) for position, name in enumerate(node.output)]
        ports += [(schema.input(position), name) for position, name in enumerate(node.input)]
        bound = {
            variable: types.get(name)
            for variable, name in reversed(ports)
            if types.get(name) is not None
        }
        for variable, name in ports[len(node.output) :]:
            if not name or variable is None or types.get(name) is not None:
                continue
            value_type = (
                bound.get(variable) if variable in schema.allowed else parse_type_string(variable)
            )
            if value_type is not None:
                types[name] = inferred[name] = value_type
    return inferred
