"""Repeated blocks of a graph, found by colour refinement: nodes at one position of every block."""

import re
from collections import Counter
from collections.abc import Sequence

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node

# Radius of the neighbourhood: the distance from a projection to the matmul that separates queries
# from values.
_ROUNDS = 4


def find_places(graph: Graph) -> list[int]:
    """The position class of every node, by id: nodes of one class have the same operator,
    attributes and name up to digits, and so do their neighbours. Unique names are ignored. Linear
    time.
    """
    words: dict[object, int] = {}
    names = [re.sub(r"\d+", "#", node.name) for node in graph.nodes]
    count = Counter(names)
    colours = [
        words.setdefault((_describe(graph, node), name if count[name] > 1 else ""), len(words))
        for node, name in zip(graph.nodes, names, strict=True)
    ]
    readers = _readers(graph)
    for _ in range(_ROUNDS):
        numbering: dict[object, int] = {}
        refined = []
        for node in graph.nodes:
            makers = tuple(
                -1 if value is None else colours[graph.values[value].producer]
                for value in node.inputs
            )
            users = tuple(
                sorted((colours[reader], operand) for reader, operand in readers[node.id])
            )
            refined.append(numbering.setdefault((colours[node.id], makers, users), len(numbering)))
        colours = refined
    return colours


def _readers(graph: Graph) -> Sequence[list[tuple[int, int]]]:
    """The readers of each node's results, as (node, operand)."""
    readers: list[list[tuple[int, int]]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for operand, value in enumerate(node.inputs):
            # A weight shared by many blocks says nothing about the position in one.
            if (
                value is not None
                and graph.nodes[graph.values[value].producer].kind is not Kind.SOURCE
            ):
                readers[graph.values[value].producer].append((node.id, operand))
    return readers


def _describe(graph: Graph, node: Node) -> object:
    """A node's own features."""
    if node.kind is Kind.SOURCE:
        return node.kind, tuple(
            graph.values[value].elements for value in node.outputs if value is not None
        )
    attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    return node.kind, node.op, attributes
