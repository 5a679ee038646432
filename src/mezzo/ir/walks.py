"""Depth-first traversal of nodes, forward or backward."""

from collections.abc import Callable, Iterable, Iterator

from mezzo.ir.nodes import Node


def walk(
    starts: Iterable[Node], following: Callable[[Node], Iterable[Node]], visited: set[int]
) -> Iterator[tuple[Node, Node]]:
    """Yield each node that is reached, with the node that leads to it.

    `visited` are the ids of nodes to skip; reached nodes are added, so that several traversals with
    one set take linear time together. It has to contain the starts where these may be reached.
    """
    queue = list(starts)
    while queue:
        node = queue.pop()
        for other in following(node):
            if other.id not in visited:
                visited.add(other.id)
                queue.append(other)
                yield other, node
