"""A graph with the facts of its operators, the input of structure rules and fusion patterns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar, cast

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Cost, Function, OpFacts, Transfer

Found = TypeVar("Found")


@dataclass(frozen=True)
class GraphView:
    """A graph and its operators' facts: `rows`, by node id, None for unknown operators."""

    graph: Graph
    rows: tuple[OpFacts | None, ...]

    def function(self, node: Node) -> Function:
        row = self.rows[node.id]
        return Function.NONE if row is None else row.function

    def transfer(self, node: Node) -> Transfer | None:
        row = self.rows[node.id]
        return None if row is None else row.transfer

    def cost(self, node: Node) -> Cost | None:
        row = self.rows[node.id]
        return None if row is None else row.cost

    def keeps_values(self, node: Node) -> bool:
        """Whether each element of a node's result is one of its operands'."""
        row = self.rows[node.id]
        return row is not None and row.keeps_values

    def moves(self, node: Node) -> bool:
        """Whether a node is data movement that keeps values."""
        return self.keeps_values(node) and self.cost(node) is Cost.MOVEMENT

    def once(self, search: Callable[[Self], Found]) -> Found:
        """The cached result of a search in this view, shared by related rules."""
        if search not in self._searches:
            self._searches[search] = search(self)
        return cast("Found", self._searches[search])  # the key is the search that returned it

    @cached_property
    def _searches(self) -> dict[object, object]:
        return {}
