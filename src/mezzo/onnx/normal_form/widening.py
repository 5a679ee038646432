"""Conversion of an FP16 or BF16 model to FP32; inputs and outputs keep their types, behind Casts.

Weights are exact in FP32. Intermediate values are no longer rounded.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.protos.graphs import defined_names, nodes_of, subgraphs_of
from mezzo.onnx.protos.names import free_prefix
from mezzo.onnx.protos.widened import (
    LOW,
    WIDENED_DOMAINS,
    widen_attributes,
    widen_port,
    widen_sparse,
    widen_tensor,
)

# A Cast between Q/DQ operators and their kernel breaks its fusion; BitCast has no FP32 form.
_KEPT = frozenset({"BitCast", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})


def widen(source: ModelSource) -> ModelSource | None:
    """The model in FP32; None if it has no low-precision floats, or cannot be converted.

    The source is not changed. The result shares its payloads: weights are converted when read.
    """
    nodes = [*nodes_of(source.model)]
    local_functions = {(function.domain, function.name) for function in source.model.functions}
    is_kept = any(
        node.op_type in _KEPT
        or (
            node.domain not in WIDENED_DOMAINS
            and (node.domain, node.op_type) not in local_functions
        )
        for node in nodes
    )
    if is_kept or not _holds_low(source.model, nodes):
        return None
    model = deepcopy(source.model)
    for function in model.functions:
        _widen_nodes(function.node)
        _widen_ports(function.value_info)
    _widen_main(model.graph)
    return replace(source, model=model)


def _holds_low(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether a weight, constant or Cast is in FP16 or BF16."""
    tensors = [
        *model.graph.initializer,
        *(sparse.values for sparse in model.graph.sparse_initializer),
    ]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    tensors += [
        attribute.t for attribute in attributes if attribute.type == onnx.AttributeProto.TENSOR
    ]
    casts = (attribute.i for attribute in attributes if attribute.name == "to")
    return any(tensor.data_type in LOW for tensor in tensors) or any(to in LOW for to in casts)


def _widen_main(graph: onnx.GraphProto) -> None:
    """Convert the main graph in place; inputs and outputs keep names and types, by Casts."""
    prefix, constants = (
        free_prefix(graph, "widened_"),
        {tensor.name for tensor in graph.initializer},
    )
    ports = [*map(deepcopy, (*graph.input, *graph.output))]
    fed = {port.name for port in graph.input} - constants
    low = {
        port.name: port.type.tensor_type.elem_type
        for port in ports
        if port.type.tensor_type.elem_type in LOW
    }
    renamed = {name: f"{prefix}{name}" for name in low if name not in constants}
    _widen_graph(graph)
    _rename(graph, renamed)
    before = [
        _cast(name, inner_name, TensorProto.FLOAT)
        for name, inner_name in renamed.items()
        if name in fed
    ]
    after = [
        _cast(inner_name, name, low[name])
        for name, inner_name in renamed.items()
        if name not in fed
    ]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    for port, original in zip((*graph.input, *graph.output), ports, strict=True):
        port.CopyFrom(original if original.name in renamed else widen_port(original))


def _widen_graph(graph: onnx.GraphProto) -> None:
    _widen_ports((*graph.input, *graph.output, *graph.value_info))
    for tensor in graph.initializer:
        tensor.CopyFrom(widen_tensor(tensor))
    for sparse in graph.sparse_initializer:
        sparse.CopyFrom(widen_sparse(sparse))
    _widen_nodes(graph.node)


def _widen_ports(ports: Iterable[onnx.ValueInfoProto]) -> None:
    for port in ports:
        port.CopyFrom(widen_port(port))


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        widen_attributes(node)
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i in LOW:
                attribute.i = TensorProto.FLOAT
        for body in subgraphs_of(node):
            _widen_graph(body)


def _rename(graph: onnx.GraphProto, renamed: Mapping[str, str]) -> None:
    """Rename values in a graph and its subgraphs, except where a subgraph shadows the name."""
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
        for body in subgraphs_of(node):
            hidden = set(defined_names(body))
            visible = {name: new for name, new in renamed.items() if name not in hidden}
            _rename(body, visible)
            for port in body.output:
                port.name = visible.get(port.name, port.name)
    for port in graph.value_info:
        port.name = renamed.get(port.name, port.name)


def _cast(source: str, result: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [result], to=to)
