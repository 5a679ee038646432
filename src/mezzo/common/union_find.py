"""Union-find: the smallest member of each set of joined elements."""

from collections.abc import Sequence


def joined(roots: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The representative of each element after joining `pairs`: the smallest member of its set.
    `roots` are the parents before.
    """
    if not pairs:
        return tuple(roots)
    parent = list(roots)

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for left, right in pairs:
        first, second = sorted((find(left), find(right)))
        parent[second] = first
    return tuple(find(node) for node in range(len(parent)))
