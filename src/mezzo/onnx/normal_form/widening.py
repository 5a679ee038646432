"""Conversion of an FP16 or BF16 model to FP32; inputs and outputs keep their types, behind Casts,
unless they are named.

Weights are exact in FP32. Intermediate values are no longer rounded.
"""

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.protos.entries import DEFAULTS_SINCE
from mezzo.onnx.protos.graphs import defined_names, graphs_of, nodes_of, subgraphs_of
from mezzo.onnx.protos.names import free_prefix
from mezzo.onnx.protos.widened import (
    DTYPE_ATTRIBUTES,
    LOW,
    WIDENED_DOMAINS,
    widen_attributes,
    widen_port,
    widen_sparse,
    widen_tensor,
)
from mezzo.onnx.read.origins import title_of
from mezzo.onnx.schema.types import tensor_type_of

# A Cast between Q/DQ operators and their kernel breaks its fusion; BitCast has no FP32 form.
_KEPT = frozenset({"BitCast", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})


def widen(source: ModelSource, ports: Collection[str] = ()) -> ModelSource | None:
    """The model in FP32; None if it has no low-precision floats, or cannot be converted. `ports`:
    inputs and outputs that become FP32 too.

    The source is not changed. The result shares its payloads: weights are converted when read.
    """
    if find_obstacle(source.model) is not None or not _holds_low(source.model):
        return None
    model = deepcopy(source.model)
    for function in model.functions:
        _widen_nodes(function.node)
        _widen_ports(function.value_info)
    _widen_main(model, ports)
    return replace(source, model=model)


def find_obstacle(model: onnx.ModelProto) -> str | None:
    """A sentence on the first node that cannot be converted to FP32; None if all can."""
    local_functions = {(function.domain, function.name) for function in model.functions}
    for node in nodes_of(model):
        title = f"node {title_of(node)!r} ({node.op_type})"
        if node.op_type in _KEPT:
            is_bits = node.op_type == "BitCast"
            return f"{title} {'reads the bits of its input' if is_bits else 'is quantized'}"
        is_function = (node.domain, node.op_type) in local_functions
        if node.domain not in WIDENED_DOMAINS and not is_function:
            return f"{title} is of domain {node.domain!r}, whose operators may have no FP32 form"
    return None


def _holds_low(model: onnx.ModelProto) -> bool:
    """Whether a weight, constant, input, output, or requested type is FP16 or BF16."""
    graphs = [*graphs_of(model)]
    attributes = [attribute for node in nodes_of(model) for attribute in node.attribute]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [sparse.values for graph in graphs for sparse in graph.sparse_initializer]
    tensors += [a.t for a in attributes if a.type == onnx.AttributeProto.TENSOR]
    ports = [tensor_type_of(port.type) for port in (*model.graph.input, *model.graph.output)]
    types = [tensor.data_type for tensor in tensors]
    types += [port.elem_type for port in ports if port is not None]
    types += [a.i for a in attributes if a.name in ("to", *DTYPE_ATTRIBUTES)]
    return not LOW.keys().isdisjoint(types)


def _widen_main(model: onnx.ModelProto, widened: Collection[str]) -> None:
    """Convert the main graph in place; inputs and outputs keep names and types, by Casts, except
    those of `widened`.
    """
    graph, prefix = model.graph, free_prefix(model.graph, "widened_")
    ports = [*map(deepcopy, (*graph.input, *graph.output))]
    stored = {tensor.name for tensor in graph.initializer}
    fed = {port.name for port in graph.input}
    if model.ir_version < DEFAULTS_SINCE:
        fed -= stored
    constants = stored - fed
    low = {
        port.name: port.type.tensor_type.elem_type
        for port in ports
        if port.type.tensor_type.elem_type in LOW and port.name not in widened
    }
    renamed = {name: f"{prefix}{name}" for name in low if name not in constants}
    defaults = {t.name: deepcopy(t) for t in graph.initializer if t.name in renamed}
    _widen_graph(graph)
    for tensor in graph.initializer:
        tensor.CopyFrom(defaults.get(tensor.name, tensor))
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
