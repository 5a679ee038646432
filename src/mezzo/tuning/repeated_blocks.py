"""Finds which nodes of a graph stand in the same place of a block that repeats: the same layer, block after block."""

import re
from collections import Counter
from collections.abc import Sequence

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node

# How far around a node is looked: as far as from a projection to the product that tells a query from a value.
_ROUNDS = 4


def find_places(graph: Graph) -> list[int]:
    """The place of every node, by id: nodes of one place have one operator, attributes and names but for their numbers,
    and so have their neighbours. Names that no other node has say nothing. Time grows linearly with the graph.
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
        seen: dict[object, int] = {}
        fresh = []
        for node in graph.nodes:
            makers = tuple(-1 if value is None else colours[graph.values[value].producer] for value in node.inputs)
            users = tuple(sorted((colours[reader], operand) for reader, operand in readers[node.id]))
            fresh.append(seen.setdefault((colours[node.id], makers, users), len(seen)))
        colours = fresh
    return colours


def _readers(graph: Graph) -> Sequence[list[tuple[int, int]]]:
    """Who reads what each node makes: (node, operand)."""
    readers: list[list[tuple[int, int]]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for operand, value in enumerate(node.inputs):
            # A weight that many blocks share says nothing of the place of one.
            if value is not None and graph.nodes[graph.values[value].producer].kind is not Kind.SOURCE:
                readers[graph.values[value].producer].append((node.id, operand))
    return readers


def _describe(graph: Graph, node: Node) -> object:
    """What a node is by itself."""
    if node.kind is Kind.SOURCE:
        return node.kind, tuple(graph.values[value].elements for value in node.outputs if value is not None)
    attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    return node.kind, node.op, attributes
