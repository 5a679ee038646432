"""Operator lists, downstream: an operator reads low what can be had low anyway.

Allow (target operators) runs low and has its operands cast. Clear (neutral) follows if any operand can be had low,
infer (widest type) if all can, so that it needs no cast of its own. Deny gets FP32 back. A value can be had low if its
maker runs low, or if an allowed operator that runs low reads it. Weights decide nothing.
Source: MXNet 1.x and 2.x AMP (`ReducePrecision`, `low_precision_pass.cc`). There the answer depends on which reader of
a value stands first, mended only in part by the two sweeps of 2.x. Here it is the least fixpoint, and what a neutral
operator has cast for itself counts for nobody else. What crosses the border of a branch or a loop, which MXNet does not
convert, follows like infer.
"""

from collections.abc import Sequence, Set
from typing import ClassVar

from mezzo.contracts.coloring import ColouringStrategy, makers, makes_low, settle, start
from mezzo.contracts.problem import Choice, Split
from mezzo.ir.nodes import Kind, Role
from mezzo.tables.policy import Category


class Lists(ColouringStrategy):
    name: ClassVar[str] = "lists"
    summary: ClassVar[str] = "allow converts, clear follows one low operand, infer needs all of them low (MXNet)"
    because: ClassVar[str] = "its operands decide"

    def colour(self, split: Split) -> Sequence[bool]:
        def spread(demoted: Set[int]) -> list[bool]:
            return _Spread(split, demoted).run()

        return settle(split, spread)


class _Spread:
    """The least fixpoint: what can be had low, and who follows."""

    def __init__(self, split: Split, demoted: Set[int]) -> None:
        self.split = split
        self.is_low = start(split)
        self.missing: dict[int, int] = {}  # by undecided node: operands that cannot be had low so far
        self.available: set[int] = set()
        self.found: list[int] = []  # values that can be had low, their readers not yet told
        for node in split.graph.nodes:
            if split.choices[node.id] is not Choice.FREE or node.id in demoted:
                continue
            if split.categories[node.id] is Category.ALLOW:
                self._take(node.id)
                for value, maker in makers(split, node):
                    if maker is not None:
                        self._offer(value)
            elif split.categories[node.id] in (Category.INFER, Category.CLEAR):
                self.missing[node.id] = sum(maker is not None for _, maker in makers(split, node))

    def run(self) -> list[bool]:
        graph = self.split.graph
        for value in range(len(graph.values)):
            if makes_low(self.split, self.is_low, value):
                self._offer(value)
        while self.found:
            value = self.found.pop()
            for use in graph.uses[value]:
                role = graph.nodes[use.node].signature.inputs[use.operand]
                # What a loop carries back decides nothing here: it agrees, or `settle` demotes the tie.
                if role is Role.GROUP and graph.values[value].producer < use.node:
                    self._tell(use.node)
        return self.is_low

    def _tell(self, number: int) -> None:
        """One more operand of a node can be had low."""
        node = self.split.graph.nodes[number]
        if number not in self.missing:
            return
        self.missing[number] -= 1
        needs_one = self.split.categories[number] is Category.CLEAR and node.kind is not Kind.TIE
        if needs_one or self.missing[number] == 0:
            del self.missing[number]
            self._take(number)

    def _take(self, number: int) -> None:
        """Run a node low: what it makes can then be had low."""
        self.is_low[number] = True
        for value in self.split.graph.nodes[number].outputs:
            if value is not None and makes_low(self.split, self.is_low, value):
                self._offer(value)

    def _offer(self, value: int) -> None:
        if value not in self.available:
            self.available.add(value)
            self.found.append(value)
