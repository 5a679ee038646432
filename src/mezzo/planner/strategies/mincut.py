"""The cheapest assignment, exactly: a minimum s-t cut.

A node has a vertex per threshold of the line: on the source's side the node runs beyond the threshold, on the sink's
before it. It pays what its level forgoes and its penalty; a value that is made on one side of a threshold and wanted on
the other pays one conversion, however many uses want it: an auxiliary vertex stands for "some use wants it beyond" and
another for "some use wants it before". A node beyond a threshold is beyond all that stand before it, which is an edge
of no bound. What is given is contracted into the terminals, linked nodes into one per threshold, and the two thresholds
around a level that a node may not have into one. Among equal cuts the one with most nodes beyond their thresholds is
taken, which makes the answer independent of the order of nodes.
Sources: Picard and Ratliff, "Minimum cuts and related problems", Networks 5 (1975), for two levels; Ishikawa, "Exact
optimization for Markov random fields with convex priors", PAMI 25 (2003), for a chain of vertices per node.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import Strategy
from mezzo.ir.columns import GROUP, distinct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_SOURCE, _SINK = 0, 1


class MinCut(Strategy):
    name: ClassVar[str] = "mincut"
    also: ClassVar[tuple[str, ...]] = ("default", "exact", "optimal", "graphcut")
    summary: ClassVar[str] = "the exact optimum of work saved against casts made, as a minimum cut (default)"
    because: ClassVar[str] = "fewest bytes cast"
    leaves: ClassVar[tuple[str, str]] = ("casts-cost-more", "running it low would gain less than its casts cost")

    def assign(self, problem: Problem) -> Sequence[int]:
        import numpy as np

        network = _Network(problem)
        is_beyond = network.solve()[network.vertex]
        found: list[int] = np.where(problem.is_absent, problem.line.base, is_beyond.sum(axis=0)).tolist()
        return found


class _Network:
    """The flow network of a problem. `vertex` maps thresholds and node ids; edges are arrays of (tail, head, capacity).
    `chains` are edges without a bound: whoever is beyond the first's threshold is beyond the second's.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.vertex = self._vertices()
        self.edges: list[tuple[Integers, Integers, Integers]] = []
        self.chains = self._chains()

    def _vertices(self) -> "Integers":
        """Vertex of each node at each threshold: a terminal where its side is given, else one for all that agree."""
        import numpy as np

        problem, count = self.problem, len(self.problem.line.thresholds)
        allowed = problem.allowed
        # Beyond threshold t is every level above t.
        is_given_beyond = ~np.cumsum(allowed, axis=0)[:count].astype(bool) & ~problem.is_absent
        is_given_before = ~np.cumsum(allowed[::-1], axis=0)[::-1][1:].astype(bool)
        free = ~is_given_beyond & ~is_given_before
        roots = self._roots(free).ravel()
        given = np.full(len(roots), -1, np.int64)  # per root
        given[roots[is_given_beyond.ravel()]] = _SOURCE
        given[roots[is_given_before.ravel() & np.tile(~problem.is_absent, count)]] = _SINK
        flat = free.ravel()
        left = distinct(roots[flat & (given[roots] < 0)])
        given[left] = 2 + np.arange(len(left))
        self.size = 2 + len(left)
        found: Integers = np.where(flat, given[roots], np.where(is_given_beyond.ravel(), _SOURCE, _SINK))
        return found.reshape(free.shape)

    def _roots(self, free: "NDArray[np.bool_]") -> "Integers":
        """By threshold and node, one number for all that agree: linked nodes, and the thresholds around a level that a
        node may not have.
        """
        import numpy as np

        from mezzo.ir.components import parts

        linked = np.array(self.problem.linked, np.int64)
        count, size = linked.shape
        roots: Integers = linked + size * np.arange(count)[:, None]
        missing = free[:-1] & free[1:] & ~self.problem.allowed[1:count]
        if not missing.any():
            return roots
        own = np.arange(count * size).reshape(count, size)
        tails = np.concatenate([own.ravel(), own[:-1][missing]])
        heads = np.concatenate([roots.ravel(), own[1:][missing]])
        return parts(own.size, tails, heads).reshape(count, size)

    def _chains(self) -> "Integers":
        """Pairs of vertices: the first is not beyond where the second is before."""
        import numpy as np

        upper, lower = self.vertex[1:].ravel(), self.vertex[:-1].ravel()
        counts = (upper != lower) & (upper != _SINK) & (lower != _SOURCE)
        return np.stack(np.divmod(distinct(upper[counts] * self.size + lower[counts]), self.size), axis=1)

    def _build(self) -> None:
        for threshold in self.problem.line.thresholds:
            self._add_conversions(threshold)
        self._add(*self._level_prices())
        if not len(self.chains):
            return
        import numpy as np

        # More than all else costs together is never worth paying.
        enough = sum(int(capacities.sum()) for _, _, capacities in self.edges) + 1
        self._add(self.chains[:, 0], self.chains[:, 1], np.full(len(self.chains), enough))

    def _level_prices(self) -> "tuple[Integers, Integers, Integers]":
        """Edges that a node cuts by its level: what the level gains less than the node's best one, and its penalty."""
        import numpy as np

        problem, gains = self.problem, self.problem.gains
        source, sink = np.full((1, len(problem.graph.nodes)), _SOURCE), np.full((1, len(problem.graph.nodes)), _SINK)
        tails, heads = np.concatenate([source, self.vertex]), np.concatenate([self.vertex, sink])
        least = np.iinfo(np.int64).min
        best = np.where(problem.allowed, gains, least).max(axis=0)
        counts = problem.allowed & (tails != heads) & ~problem.is_absent
        found = tails[counts], heads[counts], (best - gains)[counts]
        if all(side.penalties is None for side in problem.sides):
            return found
        # All that is paid without penalties is less than `enough`. So a penalty that large is never worth paying, and
        # how much larger it is does not matter; it may be past what an array holds.
        enough = int((gains.max(axis=0) - gains.min(axis=0)).sum() + self._most_conversions()) + 1
        paid: dict[tuple[int, int], int] = {}
        for level in problem.line.others:
            for node, penalty in enumerate(problem.side(level).penalties or ()):
                if penalty and counts[level, node]:
                    edge = int(tails[level, node]), int(heads[level, node])
                    paid[edge] = min(paid.get(edge, 0) + penalty, enough)
        edges = np.array([*paid], np.int64).reshape(-1, 2)
        more = np.array([*paid.values()], np.int64)
        return (
            np.concatenate([found[0], edges[:, 0]]),
            np.concatenate([found[1], edges[:, 1]]),
            np.concatenate([found[2], more]),
        )

    def _most_conversions(self) -> int:
        """What all conversions cost that there can be."""
        problem = self.problem
        single = 0 if problem.use_prices is None else int(problem.use_prices.sum())
        return int(problem.shared_prices.sum()) + single

    def _add_conversions(self, threshold: int) -> None:
        """What is paid where values cross a threshold."""
        import numpy as np

        problem, columns = self.problem, self.problem.graph.columns
        vertex = self.vertex[threshold]
        held = np.where(problem.held > threshold, _SOURCE, _SINK)
        made = np.where(columns.value_role == GROUP, vertex[columns.value_producer], held)
        if threshold >= problem.line.base:
            made = np.where(problem.stays_inside, _SINK, made)
        at_base = np.where(problem.line.base > threshold, _SOURCE, _SINK)
        fixed = np.where(columns.use_widened, at_base, held[columns.use_value])
        reader = np.where(columns.use_role == GROUP, vertex[columns.use_node], fixed)
        if problem.caps:
            least, most = problem.bounds
            reader = np.where(least > threshold, _SOURCE, np.where(most <= threshold, _SINK, reader))
        counts = problem.is_convertible & (reader != made[columns.use_value])
        if problem.use_prices is not None:
            single = counts & (problem.use_prices[threshold] > 0)
            readers, makers = reader[single], made[columns.use_value[single]]
            self._add(readers, makers, problem.use_prices[threshold][single])
            self._add(makers, readers, problem.use_prices[threshold][single])
        counts &= problem.are_shared[threshold]
        # One entry per value and reading vertex: many uses by one vertex are one cast.
        values, readers = np.divmod(distinct(columns.use_value[counts] * self.size + reader[counts]), self.size)
        if not len(values):
            return
        alone = np.bincount(values)[values] == 1
        prices, makers = problem.shared_prices[threshold], made[values]
        self._add(readers[alone], makers[alone], prices[values][alone])
        self._add(makers[alone], readers[alone], prices[values][alone])
        self._add_gates(values[~alone], readers[~alone], made, prices)

    def _add_gates(self, values: "Integers", readers: "Integers", made: "Integers", prices_of: "Integers") -> None:
        """Values with several readers: one vertex for "some want it beyond", one for "some want it before"."""
        import numpy as np

        shared, at = np.unique(values, return_inverse=True)
        prices, makers = prices_of[shared], made[shared]
        narrowing = self.size + np.arange(len(shared))
        widening = narrowing + len(shared)
        self.size += 2 * len(shared)
        self._add(narrowing, makers, prices)
        self._add(makers, widening, prices)
        # As good as infinite: the gate lets no more through.
        self._add(readers, narrowing[at], prices[at])
        self._add(widening[at], readers, prices[at])

    def _add(self, tails: "Integers", heads: "Integers", capacities: "Integers") -> None:
        """Pay a capacity if its tail is beyond and its head is before."""
        counts = (tails != heads) & (tails != _SINK) & (heads != _SOURCE) & (capacities > 0)
        self.edges.append((tails[counts], heads[counts], capacities[counts]))

    def solve(self) -> "NDArray[np.bool_]":
        """Say for each vertex whether it is beyond, in the cut with most vertices beyond."""
        import numpy as np

        from mezzo.ir.maxflow import farthest_cut

        self._build()
        tails, heads, capacities = (np.concatenate(column) for column in zip(*self.edges, strict=True))
        return farthest_cut(self.size, tails, heads, capacities)
