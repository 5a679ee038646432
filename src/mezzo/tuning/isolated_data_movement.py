"""Isolated data movement: operators such as pooling or transposition that a plan rounds to low
precision with no neighbour there.

Operators that only move or select elements belong to no unit of a search, as their neighbours round
anyway. With no neighbour at their level, the rounding is theirs alone, and would have no price.
"""

from collections.abc import Collection, Iterator, Sequence

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node

# Kinds without a level of their own: they follow their readers.
_FOLLOWERS = frozenset({Kind.SOURCE})


def lonely_movers(
    graph: Graph, base: int, levels: Sequence[int], judged: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Operators at a low level where no unit judges them and no neighbour joins them: no node
    adjacent to their connected group of movers runs at that level or farther from the base.

    `levels` are by node id, the base for absent nodes. `judged`: (node, level) pairs that units
    cover. Returns such pairs, sorted.
    """

    def is_mover(node: Node) -> bool:
        return (
            node.kind is Kind.OP
            and levels[node.id] != base
            and (node.id, levels[node.id]) not in judged
        )

    alone: list[tuple[int, int]] = []
    visited = set[int]()
    for start in graph.nodes:
        if start.id in visited or not is_mover(start):
            continue
        level, chain, waiting, is_lonely = levels[start.id], [start.id], [start], True
        visited.add(start.id)
        while waiting:
            for node in _neighbours(graph, waiting.pop()):
                if is_mover(node) and levels[node.id] == level:
                    if node.id not in visited:
                        visited.add(node.id)
                        chain.append(node.id)
                        waiting.append(node)
                elif node.kind not in _FOLLOWERS and _is_as_far(levels[node.id], level, base):
                    is_lonely = False
        alone += ((node, level) for node in chain if is_lonely)
    return sorted(alone)


def _is_as_far(level: int, than: int, base: int) -> bool:
    """Whether a level is on the same side of the base as `than`, and at least as far from it."""
    return level >= than if than > base else level <= than


def _neighbours(graph: Graph, node: Node) -> Iterator[Node]:
    """The producers of a node's operands, and the readers of its results."""
    for value in node.inputs:
        producer = None if value is None else graph.values[value].producer
        if producer is not None:
            yield graph.nodes[producer]
    for value in node.outputs:
        yield from () if value is None else (graph.nodes[use.node] for use in graph.uses[value])
