"""Min-cut placement: the cheapest assignment of levels, as a minimum s-t cut.

A node has one vertex per threshold between adjacent levels: on the source's side the node's level
is beyond the threshold, on the sink's side before it. A node pays the gain that its level forgoes
and its penalty. A value produced on one side of a threshold and used on the other pays one
conversion, however many uses need it: auxiliary vertices represent "some use needs it beyond" and
"some use needs it before". An edge of unbounded capacity makes a node that is beyond a threshold
also beyond all earlier ones. Fixed nodes are contracted into the terminals, linked nodes into one
vertex per threshold, and the two thresholds around a level that a node may not have into one. Among
equal cuts the one with the most nodes beyond their thresholds is taken, so that the result does not
depend on the order of nodes.

Sources: Picard and Ratliff, "Minimum cuts and related problems", Networks 5 (1975), for two levels;
Ishikawa, "Exact optimization for Markov random fields with convex priors", PAMI 25 (2003), for a
chain of vertices per node.
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
    summary: ClassVar[str] = (
        "the exact optimum of work saved against casts made, as a minimum cut (default)"
    )
    because: ClassVar[str] = "fewest bytes cast"
    leaves: ClassVar[tuple[str, str]] = (
        "casts-cost-more",
        "running it low would gain less than its casts cost",
    )

    def assign(self, problem: Problem) -> Sequence[int]:
        import numpy as np

        network = _Network(problem)
        is_beyond = network.solve()[network.vertex]
        levels: list[int] = np.where(
            problem.is_absent, problem.line.base, is_beyond.sum(axis=0)
        ).tolist()
        return levels


class _Network:
    """Flow network of a problem. `vertex`: by threshold and node id; edges: arrays (tail, head,
    capacity). `chains`: edges of unbounded capacity.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.vertex = self._vertices()
        self.edges: list[tuple[Integers, Integers, Integers]] = []
        self.chains = self._chains()

    def _vertices(self) -> "Integers":
        """Vertex by threshold and node: a terminal if fixed, else one per linked group."""
        import numpy as np

        problem, count = self.problem, len(self.problem.line.thresholds)
        allowed = problem.allowed
        # Beyond threshold t is every level above t.
        is_fixed_beyond = ~np.cumsum(allowed, axis=0)[:count].astype(bool) & ~problem.is_absent
        is_fixed_before = ~np.cumsum(allowed[::-1], axis=0)[::-1][1:].astype(bool)
        free = ~is_fixed_beyond & ~is_fixed_before
        roots = self._roots(free).ravel()
        root_vertex = np.full(len(roots), -1, np.int64)  # per root
        root_vertex[roots[is_fixed_beyond.ravel()]] = _SOURCE
        root_vertex[roots[is_fixed_before.ravel() & np.tile(~problem.is_absent, count)]] = _SINK
        flat = free.ravel()
        free_roots = distinct(roots[flat & (root_vertex[roots] < 0)])
        root_vertex[free_roots] = 2 + np.arange(len(free_roots))
        self.size = 2 + len(free_roots)
        vertices: Integers = np.where(
            flat, root_vertex[roots], np.where(is_fixed_beyond.ravel(), _SOURCE, _SINK)
        )
        return vertices.reshape(free.shape)

    def _roots(self, free: "NDArray[np.bool_]") -> "Integers":
        """Representative by threshold and node, shared by linked nodes."""
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
        """Pairs of vertices (tail, head): the tail is not beyond while the head is before."""
        import numpy as np

        upper, lower = self.vertex[1:].ravel(), self.vertex[:-1].ravel()
        is_edge = (upper != lower) & (upper != _SINK) & (lower != _SOURCE)
        return np.stack(
            np.divmod(distinct(upper[is_edge] * self.size + lower[is_edge]), self.size), axis=1
        )

    def _build(self) -> None:
        for threshold in self.problem.line.thresholds:
            self._add_conversions(threshold)
        self._add(*self._level_prices())
        if not len(self.chains):
            return
        import numpy as np

        # Acts as infinite capacity: larger than all other edges together.
        enough = sum(int(capacities.sum()) for _, _, capacities in self.edges) + 1
        self._add(self.chains[:, 0], self.chains[:, 1], np.full(len(self.chains), enough))

    def _level_prices(self) -> "tuple[Integers, Integers, Integers]":
        """Edges for a node's level: gain lost against the best level, and penalty."""
        import numpy as np

        problem, gains = self.problem, self.problem.gains
        source, sink = (
            np.full((1, len(problem.graph.nodes)), _SOURCE),
            np.full((1, len(problem.graph.nodes)), _SINK),
        )
        tails, heads = np.concatenate([source, self.vertex]), np.concatenate([self.vertex, sink])
        least = np.iinfo(np.int64).min
        best = np.where(problem.allowed, gains, least).max(axis=0)
        is_edge = problem.allowed & (tails != heads) & ~problem.is_absent
        edges_of_gains = tails[is_edge], heads[is_edge], (best - gains)[is_edge]
        if all(side.penalties is None for side in problem.sides):
            return edges_of_gains
        # All costs without penalties are below `bound`, so a penalty of that size is never paid;
        # larger ones, which may exceed int64, are clipped to it.
        bound = int((gains.max(axis=0) - gains.min(axis=0)).sum() + self._most_conversions()) + 1
        penalty_by_edge: dict[tuple[int, int], int] = {}
        for level in problem.line.others:
            for node, penalty in enumerate(problem.side(level).penalties or ()):
                if penalty and is_edge[level, node]:
                    edge = int(tails[level, node]), int(heads[level, node])
                    penalty_by_edge[edge] = min(penalty_by_edge.get(edge, 0) + penalty, bound)
        edges = np.array([*penalty_by_edge], np.int64).reshape(-1, 2)
        penalties = np.array([*penalty_by_edge.values()], np.int64)
        return (
            np.concatenate([edges_of_gains[0], edges[:, 0]]),
            np.concatenate([edges_of_gains[1], edges[:, 1]]),
            np.concatenate([edges_of_gains[2], penalties]),
        )

    def _most_conversions(self) -> int:
        """Cost of all possible conversions together."""
        problem = self.problem
        single = 0 if problem.use_prices is None else int(problem.use_prices.sum())
        return int(problem.shared_prices.sum()) + single

    def _add_conversions(self, threshold: int) -> None:
        """Add edges for conversions of values across a threshold."""
        import numpy as np

        problem, columns = self.problem, self.problem.graph.columns
        vertex = self.vertex[threshold]
        stored_side = np.where(problem.current_levels > threshold, _SOURCE, _SINK)
        producer_vertex = np.where(
            columns.value_role == GROUP, vertex[columns.value_producer], stored_side
        )
        if threshold >= problem.line.base:
            producer_vertex = np.where(problem.stays_inside, _SINK, producer_vertex)
        at_base = np.where(problem.line.base > threshold, _SOURCE, _SINK)
        fixed = np.where(columns.use_widened, at_base, stored_side[columns.use_value])
        use_vertex = np.where(columns.use_role == GROUP, vertex[columns.use_node], fixed)
        if problem.caps:
            least, most = problem.bounds
            use_vertex = np.where(
                least > threshold, _SOURCE, np.where(most <= threshold, _SINK, use_vertex)
            )
        is_edge = problem.is_convertible & (use_vertex != producer_vertex[columns.use_value])
        if problem.use_prices is not None:
            single = is_edge & (problem.use_prices[threshold] > 0)
            use_vertices, producers = use_vertex[single], producer_vertex[columns.use_value[single]]
            self._add(use_vertices, producers, problem.use_prices[threshold][single])
            self._add(producers, use_vertices, problem.use_prices[threshold][single])
        is_edge &= problem.are_shared[threshold]
        # One entry per value and use vertex: many uses at one vertex share one cast.
        values, use_vertices = np.divmod(
            distinct(columns.use_value[is_edge] * self.size + use_vertex[is_edge]), self.size
        )
        if not len(values):
            return
        is_single = np.bincount(values)[values] == 1
        prices, producers = problem.shared_prices[threshold], producer_vertex[values]
        self._add(use_vertices[is_single], producers[is_single], prices[values][is_single])
        self._add(producers[is_single], use_vertices[is_single], prices[values][is_single])
        self._add_gates(values[~is_single], use_vertices[~is_single], producer_vertex, prices)

    def _add_gates(
        self,
        values: "Integers",
        readers: "Integers",
        producer_vertex: "Integers",
        prices_of: "Integers",
    ) -> None:
        """Auxiliary vertices of values with several use vertices."""
        import numpy as np

        shared, gate = np.unique(values, return_inverse=True)
        prices, producers = prices_of[shared], producer_vertex[shared]
        narrowing = self.size + np.arange(len(shared))
        widening = narrowing + len(shared)
        self.size += 2 * len(shared)
        self._add(narrowing, producers, prices)
        self._add(producers, widening, prices)
        # As good as infinite capacity: the edge between gate and producer has the same.
        self._add(readers, narrowing[gate], prices[gate])
        self._add(widening[gate], readers, prices[gate])

    def _add(self, tails: "Integers", heads: "Integers", capacities: "Integers") -> None:
        """Add edges, paid if the tail is beyond and the head before; drop useless ones."""
        is_edge = (tails != heads) & (tails != _SINK) & (heads != _SOURCE) & (capacities > 0)
        self.edges.append((tails[is_edge], heads[is_edge], capacities[is_edge]))

    def solve(self) -> "NDArray[np.bool_]":
        """Which vertices are beyond, in the minimum cut with the most beyond."""
        import numpy as np

        from mezzo.ir.maxflow import farthest_cut

        self._build()
        tails, heads, capacities = (
            np.concatenate(column) for column in zip(*self.edges, strict=True)
        )
        return farthest_cut(self.size, tails, heads, capacities)
