"""Summary of a model for folder conversion: typed inputs and outputs, dtype of its weights."""

from collections.abc import Iterator
from math import prod

import onnx

from mezzo.contracts.frontend import Port
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.onnx.protos.graphs import nodes_of, subgraphs_of
from mezzo.onnx.schema.types import FROM_ONNX


def ports_of(model: onnx.ModelProto) -> tuple[Port, ...]:
    """Inputs and outputs that are tensors of a known type, without weights listed as inputs."""
    graph = model.graph
    # Before IR version 4 every weight is listed as an input.
    weights = {tensor.name for tensor in graph.initializer} if model.ir_version < 4 else set()
    return tuple(
        Port(port.name, ports is graph.input, FROM_ONNX[port.type.tensor_type.elem_type])
        for ports in (graph.input, graph.output)
        for port in ports
        if port.type.HasField("tensor_type")
        and port.type.tensor_type.elem_type in FROM_ONNX
        and not (ports is graph.input and port.name in weights)
    )


def low_weights(model: onnx.ModelProto) -> DType | None:
    """The low-precision dtype of most weights, by elements; None if none exceeds FP32."""
    counts: dict[DType, int] = {}
    for tensor in _weights(model):
        dtype = FROM_ONNX.get(tensor.data_type)
        if dtype is not None:
            counts[dtype] = counts.get(dtype, 0) + prod(max(dim, 0) for dim in tensor.dims)
    candidates = [
        dtype
        for dtype in LOW_DTYPES.values()
        if counts.get(dtype, 0) > counts.get(DType.FLOAT32, 0)
    ]
    return max(candidates, key=lambda dtype: counts[dtype]) if candidates else None


def _weights(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers and Constants of the model, its subgraphs and functions."""
    yield from model.graph.initializer
    for node in nodes_of(model):
        if node.op_type == "Constant":
            constants = (a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR)
            yield from constants
        for body in subgraphs_of(node):
            yield from body.initializer
