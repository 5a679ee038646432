"""A minimum cut of a network, exactly.

Nearly every vertex is settled by what stands beside it: whoever is given more from the source than could ever leave it
is beyond, whoever owes the sink more than could ever come is before. Arrays settle those in rounds, while a round
settles many; a list of what is still to look at settles the rest of them, each edge once. Between the few that are left
flow is sent until none gets through, in layers by the distance to where it ends.
Sources: Dinitz, "Algorithm for solution of a problem of maximum flow", Soviet Math. Doklady 11 (1970), for the layers;
the first rule is that of Boros, Hammer and Tavares, "Preprocessing of unconstrained quadratic binary optimization"
(2006), read as a cut. Chosen in docs/decisions/minimum-cuts.md.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mezzo.ir.columns import Bools, Ints

SOURCE, SINK = 0, 1  # the first two vertices
_BEYOND, _BEFORE = 1, 2
# A round over all arrays is worth its while if it settles this share of the vertices that are left.
_SHARE = 1 / 16
# What sums in 64 bits may come to, with room for a sign and a sum of two.
_MOST = 1 << 61


def farthest_cut(size: int, tails: Ints, heads: Ints, capacities: Ints) -> Bools:
    """Say of each vertex whether it is on the source's side of a minimum cut: of the one with most vertices there.

    An edge pays its capacity if its tail is on the source's side and its head is not. Edges may be given in parts.
    """
    balance, (tails, heads, capacities) = _balance(size, tails, heads, capacities)
    settled = np.zeros(size, np.int8)
    settled[SOURCE], settled[SINK] = _BEYOND, _BEFORE
    if int(np.abs(balance).max()) < _MOST and int(capacities.max(initial=0)) < _MOST // max(len(capacities), 1):
        tails, heads, capacities = _settle(settled, balance, tails, heads, capacities)
    left = np.flatnonzero(settled == 0)
    if len(left):
        place = np.zeros(size, np.int64)
        place[left] = np.arange(len(left))
        network = _Network(place[tails], place[heads], capacities, balance[left])
        settled[left] = np.where(network.cut(), _BEYOND, _BEFORE)
    is_beyond: Bools = settled == _BEYOND
    return is_beyond


def _balance(size: int, tails: Ints, heads: Ints, capacities: Ints) -> tuple[Ints, tuple[Ints, Ints, Ints]]:
    """What each vertex is given by the source, less what it owes the sink, and the edges between all others.

    What both would pay is paid in any cut.
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
    """Settle vertices by what stands beside them, in place, and give the edges between those that are left."""
    size, left = len(settled), int((settled == 0).sum())
    while left:
        leaving, coming = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(leaving, tails, capacities)
        np.add.at(coming, heads, capacities)
        is_open = settled == 0
        is_beyond, is_before = is_open & (balance >= leaving), is_open & (-balance > coming)
        count = int(is_beyond.sum() + is_before.sum())
        settled[is_beyond], settled[is_before] = _BEYOND, _BEFORE
        # What is beyond gives as the source does, what is before is owed as the sink is.
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
    """Vertices with a balance, and edges in pairs, there and back: edge `e ^ 1` runs against edge `e`.

    Python's numbers, which have no end.
    """

    def __init__(self, tails: Ints, heads: Ints, capacities: Ints, balance: Ints) -> None:
        size = len(balance)
        pairs, at = np.unique(np.minimum(tails, heads) * size + np.maximum(tails, heads), return_inverse=True)
        self.room: list[int] = [0] * (2 * len(pairs))
        for edge, capacity in zip((2 * at + (tails > heads)).tolist(), capacities.tolist(), strict=True):
            self.room[edge] += capacity
        # The head of each edge: the larger end of a pair's first, the smaller of its second.
        self.head: list[int] = np.stack([pairs % size, pairs // size], axis=1).ravel().tolist()
        self.balance: list[int] = balance.tolist()
        self.leaving: list[list[int]] = [[] for _ in range(size)]
        for edge, head in enumerate(self.head):
            self.leaving[head].append(edge ^ 1)

    def cut(self) -> list[bool]:
        """Say of each vertex whether it is beyond."""
        settled = self._settle()
        for vertex, edges in enumerate(self.leaving):
            if settled[vertex]:
                self.leaving[vertex], self.balance[vertex] = [], 0
            else:
                self.leaving[vertex] = [edge for edge in edges if not settled[self.head[edge]]]
        while True:
            # Before is exactly what flow still reaches the sink from; everything else can be beyond at the same cost.
            distance = self._distances()
            starts = [vertex for vertex, far in enumerate(distance) if far and self.balance[vertex] > 0]
            if not starts:
                return [side == _BEYOND or (not side and not far) for side, far in zip(settled, distance, strict=True)]
            self._send(starts, distance)

    def _settle(self) -> list[int]:
        """Settle vertices by what stands beside them: 0 for those that are left."""
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
        """How many vertices flow from each would pass to one that owes, that one with it; 0 where none gets there."""
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
        """Send flow from the starts along edges that lead one layer on each, until none gets through."""
        head, room, balance = self.head, self.room, self.balance
        tried = [0] * len(balance)  # how many of a vertex's edges are of no use any more
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
                edges, wanted = self.leaving[vertex], distance[vertex] - 1
                place = tried[vertex]
                while place < len(edges) and not (
                    wanted and room[edges[place]] and distance[head[edges[place]]] == wanted
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
