"""What strategies that colour nodes share: the nodes around a node, and the agreement of what cannot be cast."""

from collections.abc import Callable, Iterator, Sequence, Set

from mezzo.graph import Kind, Node, Role
from mezzo.strategy import Choice, Problem

# Colours free nodes, given which of them may not be low; what is not free keeps what `choices` say.
Colour = Callable[[Set[int]], list[bool]]


def settle(problem: Problem, colour: Colour) -> Sequence[bool]:
    """Repeat a colouring until linked nodes agree and loops hand back what they were given.

    A tie of loop state is judged before its body: what it carries back counts as agreeing, and if the body disagrees
    the tie is demoted. Each round demotes a node for good, or ends.
    """
    demoted: set[int] = set()
    while True:
        is_low = colour(demoted)
        disagreeing = _disagreeing(problem, is_low) - demoted
        if not disagreeing:
            return is_low
        demoted |= disagreeing


def start(problem: Problem) -> list[bool]:
    """Nodes whose precision is given."""
    return [choice is Choice.LOW for choice in problem.choices]


def makers(problem: Problem, node: Node) -> Iterator[tuple[int, Node | None]]:
    """Each float operand in the node's group: the value, and its maker, None where that is a weight or another source.

    What a loop carries back is left out: it agrees, or `settle` demotes the tie.
    """
    graph = problem.graph
    for value, role in zip(node.inputs, node.signature.inputs, strict=True):
        if value is None or role is not Role.GROUP:
            continue
        maker = graph.nodes[graph.values[value].producer]
        if maker.kind is Kind.SOURCE:
            yield value, None
        elif maker.id < node.id:
            yield value, maker


def makes_low(problem: Problem, is_low: Sequence[bool], value: int) -> bool:
    """Whether a value's maker hands it on low: it runs low, in the value's group, and is not asked to hand on high."""
    graph = problem.graph
    maker = graph.nodes[graph.values[value].producer]
    if value not in maker.outputs or maker.signature.outputs[maker.outputs.index(value)] is not Role.GROUP:
        return graph.values[value].dtype is problem.low
    return is_low[maker.id] and maker.id not in problem.hands_on_high


def readers(problem: Problem, node: Node) -> Iterator[tuple[Node, Role]]:
    """Everyone who reads a float result in the node's group, with the role of the reading port."""
    graph = problem.graph
    for value, role in zip(node.outputs, node.signature.outputs, strict=True):
        if value is not None and role is Role.GROUP:
            for use in graph.uses[value]:
                reader = graph.nodes[use.node]
                yield reader, reader.signature.inputs[use.operand]


def _disagreeing(problem: Problem, is_low: Sequence[bool]) -> set[int]:
    """Nodes that cannot stay low: a linked node is high, or a loop hands back what is high."""
    graph = problem.graph
    high_groups = {
        problem.linked[number]
        for number, choice in enumerate(problem.choices)
        if choice is not Choice.ABSENT and not is_low[number]
    }
    found = set()
    for node in graph.nodes:
        if not is_low[node.id] or problem.choices[node.id] is not Choice.FREE:
            continue
        carries_high = node.kind is Kind.TIE and any(
            value is not None
            and graph.values[value].producer > node.id
            and graph.nodes[graph.values[value].producer].kind is not Kind.SOURCE  # a weight is had in each dtype
            and not makes_low(problem, is_low, value)
            for value in node.inputs
        )
        if carries_high or problem.linked[node.id] in high_groups:
            found.add(node.id)
    return found
