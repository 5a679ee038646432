"""Two-colouring of nodes, shared by colouring strategies: iteration over thresholds, node
neighbours, and agreement of linked nodes.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence, Set

import numpy as np

from mezzo.contracts.problem import Choice, Problem, Split
from mezzo.contracts.strategy import Strategy
from mezzo.ir.columns import Bools, Ints
from mezzo.ir.nodes import Kind, Node, Role

# Colours free nodes, given the demoted ones; all other nodes keep the colour of their `choices`.
Colour = Callable[[Set[int]], list[bool]]


class ColouringStrategy(Strategy):
    """A strategy that colours nodes in two. With more levels it works outwards from the base: first
    the nodes above it, level by level, then those of the rest below it.
    """

    @abstractmethod
    def colour(self, split: Split) -> Sequence[bool]:
        """For each node, whether it runs low, beyond the threshold. Must respect `choices` and
        `linked`.
        """

    def assign(self, problem: Problem) -> Sequence[int]:
        while True:
            levels = self._walk(problem)
            apart = _apart(problem, levels)
            if not apart.any():
                assigned: list[int] = levels.tolist()
                return assigned
            problem = problem.without(levels, apart)

    def _walk(self, problem: Problem) -> Ints:
        line = problem.line
        levels = np.full(len(problem.graph.nodes), line.base, np.int64)
        for threshold in (*line.thresholds[line.base :], *reversed(line.thresholds[: line.base])):
            split = problem.split(threshold, levels)
            crosses = np.array(self.colour(split), bool) & ~problem.is_absent
            levels[crosses] += 1 if threshold >= line.base else -1
        return levels


def _apart(problem: Problem, levels: Ints) -> Bools:
    """Nodes that are further from the base than nodes they are linked with, and need not be.

    Two nodes that cross a threshold together may not have the same levels beyond it.
    """
    line = problem.line
    is_apart = np.zeros(len(levels), bool)
    for threshold, roots in zip(line.thresholds, problem.linked, strict=True):
        linked = np.array(roots, np.int64)
        is_far = (levels > threshold) if threshold >= line.base else (levels <= threshold)
        stays = np.zeros(len(levels), bool)  # per root: whether a node of the group has not crossed
        stays[linked[~is_far & ~problem.is_absent]] = True
        is_apart |= is_far & stays[linked]
    for level in line.others:
        is_apart &= (levels != level) | problem.side(level).has_choice(Choice.FREE)
    is_apart &= levels != line.base
    return is_apart


def settle(split: Split, colour: Colour) -> Sequence[bool]:
    """Repeat a colouring until linked nodes agree and each loop-carried value has one precision.

    The tie of a loop-carried value is coloured before its body: the carried value counts as
    agreeing, and the tie is demoted if the body disagrees. Each round demotes a node for good, or
    is the last.
    """
    demoted: set[int] = set()
    while True:
        is_low = colour(demoted)
        disagreeing = _disagreeing(split, is_low) - demoted
        if not disagreeing:
            return is_low
        demoted |= disagreeing


def start(split: Split) -> list[bool]:
    """Which nodes are fixed to low."""
    return [choice is Choice.LOW for choice in split.choices]


def makers(split: Split, node: Node) -> Iterator[tuple[int, Node | None]]:
    """Each float operand in the node's group: the value and its producer; None for a weight or
    another source.

    Loop-carried values are left out: they agree, or `settle` demotes the tie.
    """
    graph = split.graph
    for value, role in zip(node.inputs, node.signature.inputs, strict=True):
        if value is None or role is not Role.GROUP:
            continue
        producer = graph.nodes[graph.values[value].producer]
        if producer.kind is Kind.SOURCE:
            yield value, None
        elif producer.id < node.id:
            yield value, producer


def makes_low(split: Split, is_low: Sequence[bool], value: int) -> bool:
    """Whether a value's producer outputs it in low precision: it runs low, the value is in its
    group, and its output is not kept high.
    """
    graph = split.graph
    producer = graph.nodes[graph.values[value].producer]
    if (
        value not in producer.outputs
        or producer.signature.outputs[producer.outputs.index(value)] is not Role.GROUP
    ):
        return bool(split.holds_low[value])
    return is_low[producer.id] and producer.id not in split.high_outputs


def readers(split: Split, node: Node) -> Iterator[tuple[Node, Role]]:
    """Every use of a float result in the node's group: the node, and the role of its input."""
    graph = split.graph
    for value, role in zip(node.outputs, node.signature.outputs, strict=True):
        if value is not None and role is Role.GROUP:
            for use in graph.uses[value]:
                user = graph.nodes[use.node]
                yield user, user.signature.inputs[use.operand]


def _disagreeing(split: Split, is_low: Sequence[bool]) -> set[int]:
    """Nodes that cannot stay low: a linked node is high, or a loop-carried value is high."""
    graph = split.graph
    high_groups = {
        split.linked[number]
        for number, choice in enumerate(split.choices)
        if choice is not Choice.ABSENT and not is_low[number]
    }
    disagreeing = set()
    for node in graph.nodes:
        if not is_low[node.id] or split.choices[node.id] is not Choice.FREE:
            continue
        carries_high = node.kind is Kind.TIE and any(
            value is not None
            and graph.values[value].producer > node.id
            and graph.nodes[graph.values[value].producer].kind
            is not Kind.SOURCE  # a weight is available in each dtype
            and not makes_low(split, is_low, value)
            for value in node.inputs
        )
        if carries_high or split.linked[node.id] in high_groups:
            disagreeing.add(node.id)
    return disagreeing
