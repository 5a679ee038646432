"""The cheapest assignment, exactly: a minimum s-t cut between low (source) and high (sink).

A node left high pays its gain, a node run low its penalty and its loss, if it has any; a value that is made in one
precision and wanted in the other pays one cast, however many uses want it: an auxiliary vertex stands for "some use
wants it low" and another for "some use wants it high". Nodes whose precision is given are contracted into the
terminals, linked nodes into one. Among equal cuts the one with most nodes low is taken, which makes the answer
independent of the order of nodes.
Source: Picard and Ratliff, "Minimum cuts and related problems", Networks 5 (1975), for the construction.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from mezzo.columns import ANY, GROUP
from mezzo.strategy import Choice, Problem, Strategy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_SOURCE, _SINK = 0, 1
# scipy's capacities are int32, and an edge and its reverse are added. A larger capacity makes all be scaled down.
_LARGEST = (1 << 30) - 1


class MinCut(Strategy):
    name: ClassVar[str] = "mincut"
    summary: ClassVar[str] = "the exact optimum of work saved against casts made, as a minimum cut (default)"
    because: ClassVar[str] = "fewest bytes cast"
    leaves: ClassVar[tuple[str, str]] = ("casts-cost-more", "running it low would gain less than its casts cost")

    def assign(self, problem: Problem) -> Sequence[bool]:
        network = _Network(problem)
        is_low = network.solve()[network.vertex]
        found: list[bool] = (problem.has_choice(Choice.LOW) | (problem.has_choice(Choice.FREE) & is_low)).tolist()
        return found


class _Network:
    """The flow network of a problem. `vertex` maps node ids; edges are arrays of (tail, head, capacity)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.vertex = self._vertices()
        self.edges: list[tuple[Integers, Integers, Integers]] = []

    def _vertices(self) -> "Integers":
        """Vertex of each node: a terminal where its precision is given, else one for all that are linked."""
        import numpy as np

        problem, linked = self.problem, np.array(self.problem.linked, np.int64)
        given = np.full(len(linked), -1, np.int64)  # per root
        given[linked[problem.has_choice(Choice.LOW)]] = _SOURCE
        given[linked[problem.has_choice(Choice.HIGH)]] = _SINK
        free = problem.has_choice(Choice.FREE)
        roots = np.unique(linked[free & (given[linked] < 0)])
        given[roots] = 2 + np.arange(len(roots))
        self.size = 2 + len(roots)
        found: Integers = np.where(free, given[linked], np.where(problem.has_choice(Choice.LOW), _SOURCE, _SINK))
        return found

    def _build(self) -> None:
        import numpy as np

        problem, columns = self.problem, self.problem.graph.columns
        vertex, balance = self.vertex, self._balance()
        high, low = np.flatnonzero(balance > 0), np.flatnonzero(balance < 0)
        self._add(np.full(len(high), _SOURCE), high, balance[high])
        self._add(low, np.full(len(low), _SINK), -balance[low])
        held = np.where(columns.holds(problem.low), _SOURCE, _SINK)
        made = np.where(columns.value_role == GROUP, vertex[columns.value_producer], held)
        fixed = np.where(columns.holds(problem.low)[columns.use_value] & ~columns.use_widened, _SOURCE, _SINK)
        reader = np.where(columns.use_role == GROUP, vertex[columns.use_node], fixed)
        counts = problem.is_planned[columns.use_value] & (columns.use_role != ANY) & (reader != made[columns.use_value])
        # One entry per value and reading vertex: many uses by one vertex are one cast.
        pairs = np.unique(np.stack([columns.use_value[counts], reader[counts]], axis=1), axis=0)
        if not len(pairs):
            return
        values, readers = pairs[:, 0], pairs[:, 1]
        alone = np.bincount(values)[values] == 1
        prices, makers = problem.cast_prices[values], made[values]
        self._add(readers[alone], makers[alone], prices[alone])
        self._add(makers[alone], readers[alone], prices[alone])
        self._add_gates(values[~alone], readers[~alone], made)

    def _balance(self) -> "Integers":
        """What each vertex pays if it is high, less what it pays if it is low.

        What both sides would pay is paid in any cut, so only the difference is an edge: a large gain against a large
        penalty takes no room from the small ones.
        """
        import numpy as np

        problem = self.problem
        free, gains = problem.has_choice(Choice.FREE), problem.gains
        balance = np.zeros(2 + self.size, np.int64)
        np.add.at(balance, self.vertex[free], gains[free])
        if problem.penalties is not None:
            # All high costs less than `enough`. So a penalty that large is never worth paying, and how much larger it
            # is does not matter; it may be past what an array holds.
            enough = int(np.maximum(gains, 0).sum() + problem.cast_prices.sum()) + 1
            paid = [0] * len(balance)
            for number in np.flatnonzero(free).tolist():
                paid[self.vertex[number]] = min(paid[self.vertex[number]] + problem.penalties[number], enough)
            balance -= np.array(paid, np.int64)
        return balance

    def _add_gates(self, values: "Integers", readers: "Integers", made: "Integers") -> None:
        """Values with several readers: one vertex for "some want it low", one for "some want it high"."""
        import numpy as np

        shared, at = np.unique(values, return_inverse=True)
        prices, makers = self.problem.cast_prices[shared], made[shared]
        narrowing = self.size + np.arange(len(shared))
        widening = narrowing + len(shared)
        self.size += 2 * len(shared)
        self._add(narrowing, makers, prices)
        self._add(makers, widening, prices)
        # As good as infinite: the gate lets no more through.
        self._add(readers, narrowing[at], prices[at])
        self._add(widening[at], readers, prices[at])

    def _add(self, tails: "Integers", heads: "Integers", capacities: "Integers") -> None:
        """Pay a capacity if its tail is low and its head is high."""
        counts = (tails != heads) & (tails != _SINK) & (heads != _SOURCE) & (capacities > 0)
        self.edges.append((tails[counts], heads[counts], capacities[counts]))

    def solve(self) -> "NDArray[np.bool_]":
        """Say for each vertex whether it is low, in the cut with most vertices low."""
        import numpy as np
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        self._build()
        starts, ends, weights = (np.concatenate(column) for column in zip(*self.edges, strict=True))
        if not len(starts):
            everything: NDArray[np.bool_] = np.arange(self.size) != _SINK
            return everything
        edges = csr_array((weights, (starts, ends)), shape=(self.size, self.size))
        edges.sum_duplicates()
        tails, heads = np.repeat(np.arange(self.size), np.diff(edges.indptr)), edges.indices
        largest = int(_capped(tails, heads, edges.data).max())
        if largest > _LARGEST:
            edges.data = np.maximum((edges.data * (_LARGEST / largest)).astype(np.int64), 1)
        capacities = np.minimum(_capped(tails, heads, edges.data), _LARGEST).astype(np.int32)
        matrix = csr_array((capacities, heads, edges.indptr), shape=edges.shape)
        flow = maximum_flow(matrix, _SOURCE, _SINK).flow
        residual = csr_array(matrix.astype(np.int64) - flow.astype(np.int64))
        residual.data = np.maximum(residual.data, 0)
        residual.eliminate_zeros()
        # High is exactly what still reaches the sink; everything else can be low at the same cost.
        doomed = breadth_first_order(csr_array(residual.T), _SINK, return_predecessors=False)
        is_low = np.ones(self.size, bool)
        is_low[doomed] = False
        return is_low


def _capped(tails: "Integers", heads: "Integers", capacities: "Integers") -> "Integers":
    """Hold the terminals' edges to what can flow through their other ends, and one unit more.

    The unit says that such an edge is not what limits. So the answer is the same, and heavy gains need no scaling.
    """
    import numpy as np

    size = int(max(tails.max(), heads.max())) + 1
    leaving = np.bincount(tails, capacities, size).astype(np.int64) + 1
    reaching = np.bincount(heads, capacities, size).astype(np.int64) + 1
    capped = np.where(tails == _SOURCE, np.minimum(capacities, leaving[heads]), capacities)
    return np.where(heads == _SINK, np.minimum(capped, reaching[tails]), capped)
