"""Movers of numbers that a plan runs beside the base for their own sake: the rounding is theirs then, and has no price.

What only moves numbers (a pooling, a transposition) is in no unit of a search, as it hands on what its neighbours have
rounded, or round next. Where no neighbour runs at its level, it is what rounds.
"""

from collections.abc import Collection, Iterator, Sequence

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node

# What a plan gives no level of its own, or none that makes numbers coarser: it follows its readers.
_FOLLOWERS = frozenset({Kind.SOURCE})


def lonely_movers(
    graph: Graph, base: int, levels: Sequence[int], judged: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Operators that no unit judges at the level that they have beside the base, and that no neighbour shares it with:
    nothing reached from them through others of their kind runs at their level or at one farther from the base.

    `levels` are by node id, the base where a node is absent. `judged`: nodes by id and level. Returns the same pairs,
    by id.
    """

    def is_mover(node: Node) -> bool:
        return node.kind is Kind.OP and levels[node.id] != base and (node.id, levels[node.id]) not in judged

    alone: list[tuple[int, int]] = []
    seen = set[int]()
    for start in graph.nodes:
        if start.id in seen or not is_mover(start):
            continue
        level, chain, waiting, is_lonely = levels[start.id], [start.id], [start], True
        seen.add(start.id)
        while waiting:
            for node in _neighbours(graph, waiting.pop()):
                if is_mover(node) and levels[node.id] == level:
                    if node.id not in seen:
                        seen.add(node.id)
                        chain.append(node.id)
                        waiting.append(node)
                elif node.kind not in _FOLLOWERS and _is_as_far(levels[node.id], level, base):
                    is_lonely = False
        alone += ((node, level) for node in chain if is_lonely)
    return sorted(alone)


def _is_as_far(level: int, than: int, base: int) -> bool:
    """Whether a level is on the same side of the base, and no nearer to it."""
    return level >= than if than > base else level <= than


def _neighbours(graph: Graph, node: Node) -> Iterator[Node]:
    """What makes a node's operands, and what reads its results."""
    for value in node.inputs:
        producer = None if value is None else graph.values[value].producer
        if producer is not None:
            yield graph.nodes[producer]
    for value in node.outputs:
        yield from () if value is None else (graph.nodes[use.node] for use in graph.uses[value])
