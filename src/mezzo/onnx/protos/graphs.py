"""Traversal of graphs, functions and their nested subgraphs; names that they define and read; nodes
replaced, and functions inlined.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import onnx
import onnx.defs
import onnx.inliner

_SUBGRAPHS = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
Owner = onnx.GraphProto | onnx.FunctionProto


def owners_of(model: onnx.ModelProto) -> tuple[Owner, ...]:
    """The main graph and the functions, without subgraphs."""
    return model.graph, *model.functions


@cache
def _may_hold_subgraphs(op: str) -> bool:
    """False for ONNX's operators without subgraphs, which saves a look at their attributes: most
    nodes are such. Operators that ONNX does not define may have some.
    """
    try:
        schema = onnx.defs.get_schema(op)
    except onnx.defs.SchemaError:
        return True
    kinds = {attribute.type for attribute in schema.attributes.values()}
    return not kinds.isdisjoint(_SUBGRAPHS)


def subgraphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The subgraphs of a node, of any operator."""
    for attribute in node.attribute if _may_hold_subgraphs(node.op_type) else ():
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def bodies_of(owner: Owner) -> Iterator[onnx.GraphProto]:
    """The subgraphs of a graph's or function's nodes."""
    for node in owner.node:
        if _may_hold_subgraphs(node.op_type):
            yield from subgraphs_of(node)


def nested_graphs(owner: Owner) -> Iterator[onnx.GraphProto]:
    """All subgraphs inside a graph or function, each before its own."""
    for body in bodies_of(owner):
        yield from all_graphs(body)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all subgraphs inside it, each before its own."""
    yield graph
    yield from nested_graphs(graph)


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """All graphs of a model: the main graph and subgraphs, also those inside functions."""
    yield model.graph
    for owner in owners_of(model):
        yield from nested_graphs(owner)


def all_nodes(owner: Owner) -> Iterator[onnx.NodeProto]:
    """Nodes of a graph or function and its subgraphs."""
    for node in owner.node:
        yield node
        if _may_hold_subgraphs(node.op_type):
            for body in subgraphs_of(node):
                yield from all_nodes(body)


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a model, subgraphs and functions included."""
    for owner in owners_of(model):
        yield from all_nodes(owner)


def stored_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of a graph's initializers, dense and sparse."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def defined_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Values that a graph itself defines: inputs, weights and results of nodes."""
    yield from (port.name for port in graph.input)
    yield from stored_names(graph)
    for node in graph.node:
        yield from node.output


def reads_of(node: onnx.NodeProto) -> Iterator[str]:
    """Operands of a node and captures of its subgraphs."""
    yield from filter(None, node.input)
    for body in subgraphs_of(node):
        defined = set(defined_names(body))
        reads = [name for inner in body.node for name in reads_of(inner)]
        reads += [port.name for port in body.output]
        yield from (name for name in reads if name not in defined)


def reads_in(owner: Owner) -> Iterator[str]:
    """Operands of a graph's or function's nodes, without subgraphs, and its outputs."""
    for node in owner.node:
        yield from node.input
    yield from (port if isinstance(port, str) else port.name for port in owner.output)


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Put nodes in the place of a graph's own, which may be among them."""
    replacements = list(nodes)
    del graph.node[:]
    graph.node.extend(replacements)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its functions inlined; values of the main graph keep their names."""
    if not model.functions:
        return model
    return onnx.inliner.inline_local_functions(model, convert_version=True)
