"""Exact minimum cut of a network, by local elimination and then maximum flow.

Most vertices are decided by their own edges: a vertex that receives at least its outgoing capacity
from the source is on the source's side, one that owes the sink more than its incoming capacity is
on the sink's side. Rounds over whole arrays decide these while a round decides many; a work list
then visits the rest, each edge once. Between the remaining vertices, flow is augmented along
shortest paths in layers (Dinitz's algorithm).

Sources: Dinitz, "Algorithm for solution of a problem of maximum flow", Soviet Math. Doklady 11
(1970), for the layers; the local rule is that of Boros, Hammer and Tavares, "Preprocessing of
unconstrained quadratic binary optimization" (2006), read as a cut. Chosen in
docs/decisions/minimum-cuts.md.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mezzo.ir.columns import Bools, Ints

SOURCE, SINK = 0, 1  # the first two vertices
_BEYOND, _BEFORE = 1, 2
# Array rounds continue while each decides at least this share of the remaining vertices.
_SHARE = 1 / 16
# Bound on 64-bit sums, with headroom for the sign and one addition.
_MOST = 1 << 61


def farthest_cut(size: int, tails: Ints, heads: Ints, capacities: Ints) -> Bools:
    """Mask of the vertices on the source's side of a minimum cut, the one with the largest source
    side.

    An edge costs its capacity if its tail is on the source's side and its head is not. Parallel
    edges add up.
    """
    balance, (tails, heads, capacities) = _balance(size, tails, heads, capacities)
    settled = np.zeros(size, np.int8)
    settled[SOURCE], settled[SINK] = _BEYOND, _BEFORE
    if int(np.abs(balance).max()) < _MOST and int(capacities.max(initial=0)) < _MOST // max(
        len(capacities), 1
    ):
        tails, heads, capacities = _settle(settled, balance, tails, heads, capacities)
    left = np.flatnonzero(settled == 0)
    if len(left):
        place = np.zeros(size, np.int64)
        place[left] = np.arange(len(left))
        network = _Network(place[tails], place[heads], capacities, balance[left])
        settled[left] = np.where(network.cut(), _BEYOND, _BEFORE)
    is_beyond: Bools = settled == _BEYOND
    return is_beyond


def _balance(
    size: int, tails: Ints, heads: Ints, capacities: Ints
) -> tuple[Ints, tuple[Ints, Ints, Ints]]:
    """Capacity from the source minus capacity to the sink of each vertex, and the edges between
    other vertices.

    The smaller of the two is paid in every cut, so only the difference matters.
    """
    balance = np.zeros(size, np.int64)
    is_given, is_owed = tails == SOURCE, heads == SINK
    np.add.at(balance, heads[is_given], capacities[is_given])
    np.subtract.at(balance, tails[is_owed], capacities[is_owed])
    balance[:2] = 0
    is_inner = ~(is_given | is_owed | (tails == SINK) | (heads == SOURCE) | (tails == heads))
    return balance, (tails[is_inner], heads[is_inner], capacities[is_inner])


def _settle(
    settled: npt.NDArray[np.int8], balance: Ints, tails: Ints, heads: Ints, capacities: Ints
) -> tuple[Ints, Ints, Ints]:
    """Decide vertices by their own edges, in place; return the edges between the others."""
    size, left = len(settled), int((settled == 0).sum())
    while left:
        leaving, coming = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(leaving, tails, capacities)
        np.add.at(coming, heads, capacities)
        is_open = settled == 0
        is_beyond, is_before = is_open & (balance >= leaving), is_open & (-balance > coming)
        count = int(is_beyond.sum() + is_before.sum())
        settled[is_beyond], settled[is_before] = _BEYOND, _BEFORE
        # Vertices on the source's side now supply flow as the source does; those on the sink's side
        # demand it.
        gives, owed = is_beyond[tails], is_before[heads]
        np.add.at(balance, heads[gives], capacities[gives])
        np.subtract.at(balance, tails[owed], capacities[owed])
        stays = (settled[tails] == 0) & (settled[heads] == 0)
        tails, heads, capacities = tails[stays], heads[stays], capacities[stays]
        if count < left * _SHARE:
            break
        left -= count
    return tails, heads, capacities


class _Network:
    """Residual network: vertices with a balance, and edges in pairs; edge `e ^ 1` is the reverse of
    edge `e`.

    Uses Python's integers, which cannot overflow.
    """

    def __init__(self, tails: Ints, heads: Ints, capacities: Ints, balance: Ints) -> None:
        size = len(balance)
        pairs, at = np.unique(
            np.minimum(tails, heads) * size + np.maximum(tails, heads), return_inverse=True
        )
        self.room: list[int] = [0] * (2 * len(pairs))
        for edge, capacity in zip(
            (2 * at + (tails > heads)).tolist(), capacities.tolist(), strict=True
        ):
            self.room[edge] += capacity
        # A pair's first edge leads to its larger vertex, the second to the smaller.
        self.head: list[int] = np.stack([pairs % size, pairs // size], axis=1).ravel().tolist()
        self.balance: list[int] = balance.tolist()
        self.leaving: list[list[int]] = [[] for _ in range(size)]
        for edge, head in enumerate(self.head):
            self.leaving[head].append(edge ^ 1)

    def cut(self) -> list[bool]:
        """Mask of the vertices on the source's side."""
        settled = self._settle()
        for vertex, edges in enumerate(self.leaving):
            if settled[vertex]:
                self.leaving[vertex], self.balance[vertex] = [], 0
            else:
                self.leaving[vertex] = [edge for edge in edges if not settled[self.head[edge]]]
        while True:
            # Only vertices that can still send flow to the sink have to be on its side; that leaves
            # the source's side as large as possible.
            distance = self._distances()
            starts = [
                vertex
                for vertex, length in enumerate(distance)
                if length and self.balance[vertex] > 0
            ]
            if not starts:
                return [
                    side == _BEYOND or (not side and not length)
                    for side, length in zip(settled, distance, strict=True)
                ]
            self._send(starts, distance)

    def _settle(self) -> list[int]:
        """Decide vertices by their own edges; 0 for undecided ones."""
        head, room, balance = self.head, self.room, self.balance
        out = [sum(room[edge] for edge in edges) for edges in self.leaving]
        into = [sum(room[edge ^ 1] for edge in edges) for edges in self.leaving]
        settled = [0] * len(balance)
        unseen = list(range(len(balance)))
        while unseen:
            vertex = unseen.pop()
            if settled[vertex]:
                continue
            if balance[vertex] >= out[vertex]:
                settled[vertex] = _BEYOND
            elif -balance[vertex] > into[vertex]:
                settled[vertex] = _BEFORE
            else:
                continue
            for edge in self.leaving[vertex]:
                other = head[edge]
                if not settled[other]:
                    into[other] -= room[edge]
                    out[other] -= room[edge ^ 1]
                    balance[other] += room[edge] if settled[vertex] == _BEYOND else -room[edge ^ 1]
                    unseen.append(other)
        return settled

    def _distances(self) -> list[int]:
        """Vertices on a shortest residual path to one with demand; 0 without a path."""
        head, room = self.head, self.room
        distance = [0] * len(self.balance)
        layer, far = [vertex for vertex, owes in enumerate(self.balance) if owes < 0], 1
        for vertex in layer:
            distance[vertex] = 1
        while layer:
            far += 1
            following = []
            for vertex in layer:
                for edge in self.leaving[vertex]:
                    if room[edge ^ 1] and not distance[head[edge]]:
                        distance[head[edge]] = far
                        following.append(head[edge])
            layer = following
        return distance

    def _send(self, starts: Sequence[int], distance: Sequence[int]) -> None:
        """Augment flow from the starts along edges to the next layer until it is blocked."""
        head, room, balance = self.head, self.room, self.balance
        tried = [0] * len(balance)  # number of each vertex's edges that are exhausted
        for start in starts:
            path: list[int] = []
            vertex = start
            while balance[start] > 0:
                if balance[vertex] < 0:
                    amount = min(balance[start], -balance[vertex], *(room[edge] for edge in path))
                    balance[start] -= amount
                    balance[vertex] += amount
                    for edge in path:
                        room[edge] -= amount
                        room[edge ^ 1] += amount
                    path, vertex = [], start
                    continue
                edges, next_distance = self.leaving[vertex], distance[vertex] - 1
                place = tried[vertex]
                while place < len(edges) and not (
                    next_distance
                    and room[edges[place]]
                    and distance[head[edges[place]]] == next_distance
                ):
                    place += 1
                tried[vertex] = place
                if place < len(edges):
                    path.append(edges[place])
                    vertex = head[edges[place]]
                elif path:
                    vertex = head[path.pop() ^ 1]
                    tried[vertex] += 1
                else:
                    break
