"""The cheapest assignment, exactly: a minimum s-t cut between low (source) and high (sink).

A node left high pays its gain; a value that is made in one precision and wanted in the other pays one cast, however
many uses want it: an auxiliary vertex stands for "some use wants it low" and another for "some use wants it high".
Nodes whose precision is given are contracted into the terminals, linked nodes into one. Among equal cuts the one with
most nodes low is taken, which makes the answer independent of the order of nodes.
Source: Picard and Ratliff, "Minimum cuts and related problems", Networks 5 (1975), for the construction.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from mezzo.graph import Kind, Role
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

    def assign(self, problem: Problem) -> Sequence[bool]:
        network = _Network(problem)
        low_vertices = network.solve()
        return [
            choice is Choice.LOW or (choice is Choice.FREE and low_vertices[vertex])
            for choice, vertex in zip(problem.choices, network.vertex, strict=True)
        ]


class _Network:
    """The flow network of a problem. `vertex` maps node ids; edges are parallel lists of (tail, head, capacity)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.vertex = self._vertices()
        self.tails: list[int] = []
        self.heads: list[int] = []
        self.capacities: list[int] = []
        for number, gain in enumerate(problem.gains):
            if gain and problem.choices[number] is Choice.FREE:
                self._edge(_SOURCE, self.vertex[number], gain)
        for value in range(len(problem.graph.values)):
            self._add_value(value)

    def _vertices(self) -> list[int]:
        choices, linked = self.problem.choices, self.problem.linked
        fixed: dict[int, int] = {}
        for number, choice in enumerate(choices):
            if choice is Choice.HIGH:
                fixed[linked[number]] = _SINK
        for number, choice in enumerate(choices):
            if choice is Choice.LOW:
                fixed.setdefault(linked[number], _SOURCE)
        self.size = 2
        vertices = [_SINK] * len(choices)
        for number, choice in enumerate(choices):
            if choice is Choice.LOW:
                vertices[number] = _SOURCE
            elif choice is Choice.FREE:
                root = linked[number]
                if root not in fixed:
                    fixed[root] = self.size
                    self.size += 1
                vertices[number] = fixed[root]
        return vertices

    def _edge(self, tail: int, head: int, capacity: int) -> None:
        """Pay `capacity` if `tail` is low and `head` is high."""
        if tail != head and tail != _SINK and head != _SOURCE:
            self.tails.append(tail)
            self.heads.append(head)
            self.capacities.append(capacity)

    def _add_value(self, number: int) -> None:
        problem = self.problem
        graph = problem.graph
        value = graph.values[number]
        uses = graph.uses[number]
        producer = graph.nodes[value.producer]
        if not uses or producer.kind is Kind.SOURCE or value.dtype not in (problem.high, problem.low):
            return
        port = 0 if len(producer.outputs) == 1 else producer.outputs.index(number)
        if producer.signature.outputs[port] is Role.GROUP:
            made = self.vertex[value.producer]
        else:
            made = _SOURCE if value.dtype is problem.low else _SINK
        readers = set()
        for use in uses:
            role = graph.nodes[use.node].signature.inputs[use.operand]
            if role is Role.GROUP:
                readers.add(self.vertex[use.node])
            elif role is Role.FIXED:
                readers.add(_SOURCE if value.dtype is problem.low and use not in graph.widened else _SINK)
        readers.discard(made)
        if readers:
            price = problem.cast_price(number)
            self._narrowing(made, readers, price)
            self._widening(made, readers, price)

    def _narrowing(self, made: int, readers: set[int], price: int) -> None:
        """Made high, wanted low by any of `readers`: one cast."""
        if made == _SOURCE:
            return
        if len(readers) == 1 or _SOURCE in readers:
            self._edge(_SOURCE if _SOURCE in readers else next(iter(readers)), made, price)
            return
        gate = self._gate()
        self._edge(gate, made, price)
        for reader in sorted(readers):
            self._edge(reader, gate, price)  # as good as infinite: the gate lets no more through

    def _widening(self, made: int, readers: set[int], price: int) -> None:
        """Made low, wanted high by any of `readers`: one cast."""
        if made == _SINK:
            return
        if len(readers) == 1 or _SINK in readers:
            self._edge(made, _SINK if _SINK in readers else next(iter(readers)), price)
            return
        gate = self._gate()
        self._edge(made, gate, price)
        for reader in sorted(readers):
            self._edge(gate, reader, price)

    def _gate(self) -> int:
        self.size += 1
        return self.size - 1

    def solve(self) -> list[bool]:
        """Say for each vertex whether it is low, in the cut with most vertices low."""
        import numpy as np
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        if not self.tails:
            return [vertex != _SINK for vertex in range(self.size)]
        edges = csr_array((np.array(self.capacities, np.int64), (self.tails, self.heads)), shape=(self.size, self.size))
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
        return [bool(x) for x in is_low]


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
