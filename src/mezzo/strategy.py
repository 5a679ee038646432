"""What a strategy is given and gives back, and what an assignment costs. A strategy is a pure function of a Problem."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from mezzo.dtypes import DType
from mezzo.facts import Cost
from mezzo.graph import Graph, Kind, Node, Role
from mezzo.policy import GRANTED, Category
from mezzo.target import Costs


class Choice(enum.Enum):
    """What a strategy may do with a node. ABSENT: the node has no floating compute group."""

    ABSENT = "absent"
    FREE = "free"
    HIGH = "high"
    LOW = "low"

    __hash__ = object.__hash__


@dataclass(frozen=True)
class Problem:
    """A graph with what is wanted and possible, per node id. Two precisions; `linked` nodes must agree.

    `choices` already unite policy, target, schema and the caller's contract; `categories` matter where FREE. `worths`
    say for how many casts each node is worth running low.
    """

    graph: Graph
    high: DType
    low: DType
    choices: tuple[Choice, ...]
    categories: tuple[Category | None, ...]
    worths: tuple[int, ...]
    costs_of: tuple[Cost | None, ...]
    prices: Costs

    @cached_property
    def linked(self) -> tuple[int, ...]:
        """Per node the smallest id of the nodes it must agree with: those that share a value that cannot be cast."""
        parent = list(range(len(self.graph.nodes)))

        def find(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for value, uses in zip(self.graph.values, self.graph.uses, strict=True):
            if value.is_castable:
                continue
            for use in uses:
                node = self.graph.nodes[use.node]
                if node.signature.inputs[use.operand] is Role.ANY:
                    continue
                first, second = sorted((find(value.producer), find(use.node)))
                parent[second] = first
        return tuple(find(node) for node in range(len(parent)))

    @cached_property
    def gains(self) -> tuple[int, ...]:
        """What each node saves by running low, in the unit of `Costs`."""
        return tuple(self._gain(node) for node in range(len(self.graph.nodes)))

    def _gain(self, number: int) -> int:
        category = self.categories[number]
        node = self.graph.nodes[number]
        if node.kind is not Kind.OP or category is None or category is Category.CLEAR:
            return 0
        values = self.graph.values
        signature = node.signature
        elements = sum(
            values[v].elements
            for ports, roles in ((node.inputs, signature.inputs), (node.outputs, signature.outputs))
            for v, role in zip(ports, roles, strict=True)
            if v is not None and role is Role.GROUP
        )
        repeats = self.graph.scopes[node.scope].repeats
        moved = 2 * elements * repeats  # two bytes fewer for each element read or written
        if category is not Category.ALLOW:
            return moved
        is_movement = self.costs_of[number] is Cost.MOVEMENT
        if is_movement and self.worths[number] < GRANTED and self._resizes(node):
            return moved  # its cast belongs on the small side, wherever that is
        heavy = self.costs_of[number] in (Cost.LINEAR, Cost.ATTENTION, Cost.RECURRENT)
        return self.worths[number] * self.prices.cast_launch * repeats + moved * (self.prices.linear_factor if heavy else 1)

    def _resizes(self, node: Node) -> bool:
        """Whether a movement's result is much smaller or larger than what it reads (Slice, Gather, Expand)."""
        values = self.graph.values
        read, made = (
            sum(values[v].elements for v, role in zip(ports, roles, strict=True) if v is not None and role is Role.GROUP)
            for ports, roles in ((node.inputs, node.signature.inputs), (node.outputs, node.signature.outputs))
        )
        return max(read, made) > 2 * min(read, made)

    def cast_price(self, value: int) -> int:
        """Price of one cast of a value inside the graph: it reads one form and writes the other."""
        held = self.graph.values[value]
        return (self.prices.cast_launch + 6 * held.elements) * self.graph.scopes[held.scope].repeats


class Strategy(ABC):
    """One algorithm. `name` is its option, `summary` its line in the table."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def assign(self, problem: Problem) -> Sequence[bool]:
        """Say for each node whether it runs low. Must respect `choices` and `linked`; ABSENT nodes are ignored."""


def casts_of(problem: Problem, is_low: Sequence[bool]) -> list[tuple[int, DType]]:
    """The casts an assignment needs: one per value and dtype that some use wants and no form provides."""
    graph, needed = problem.graph, []
    for number, uses in enumerate(graph.uses):
        value = graph.values[number]
        producer = graph.nodes[value.producer]
        if producer.kind is Kind.SOURCE or value.dtype not in (problem.high, problem.low):
            continue
        port = producer.outputs.index(number)
        native = is_low[producer.id] if producer.signature.outputs[port] is Role.GROUP else value.dtype is problem.low
        wants = {wants_low(problem, is_low, use.node, use.operand, number) for use in uses} - {None, native}
        needed += [(number, problem.low if want else problem.high) for want in wants]
    return needed


def wants_low(problem: Problem, is_low: Sequence[bool], node: int, operand: int, value: int) -> bool | None:
    """Whether a use wants its value low; None if it takes it as it comes."""
    role = problem.graph.nodes[node].signature.inputs[operand]
    if role is Role.ANY:
        return None
    if role is Role.GROUP:
        return is_low[node]
    held = problem.graph.values[value].dtype is problem.low
    return held and (node, operand) not in problem.graph.widened


def cost(problem: Problem, is_low: Sequence[bool]) -> int:
    """What an assignment costs: gains forgone and casts made, in the unit of `Costs`. Min-cut's is the least."""
    total = sum(
        gain
        for gain, low, choice in zip(problem.gains, is_low, problem.choices, strict=True)
        if not low and choice is not Choice.ABSENT
    )
    return total + sum(problem.cast_price(value) for value, _ in casts_of(problem, is_low))
