"""Those who agree, by the smallest of them."""

from collections.abc import Sequence


def joined(roots: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The roots once pairs are joined: of those who agree, the smallest."""
    if not pairs:
        return tuple(roots)
    parent = list(roots)

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in pairs:
        first, second = sorted((find(one), find(other)))
        parent[second] = first
    return tuple(find(node) for node in range(len(parent)))
