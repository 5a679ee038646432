"""A graph with its operators' facts: what structure rules and fusion patterns both look at."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar, cast

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function, OpFacts

Found = TypeVar("Found")


@dataclass(frozen=True)
class GraphView:
    """`rows` are the facts by node id, None where no table knows the operator."""

    graph: Graph
    rows: tuple[OpFacts | None, ...]

    def function(self, node: Node) -> Function:
        row = self.rows[node.id]
        return Function.NONE if row is None else row.function

    def once(self, search: Callable[[Self], Found]) -> Found:
        """What a search finds in this view, made once: rules or patterns of one family share it."""
        if search not in self._searches:
            self._searches[search] = search(self)
        return cast("Found", self._searches[search])  # kept under the search that returned it

    @cached_property
    def _searches(self) -> dict[object, object]:
        return {}
