"""What rules share: their type, and the walks that all of them take."""

from collections.abc import Callable, Sequence

from mezzo.analysis.fusion.view import View
from mezzo.ir.nodes import Node, Use
from mezzo.tables.fused_operators import Fused

DIALECT = "com.microsoft"

# The operator that says what the nodes of a unit do, in graph order; None where none does.
Rule = Callable[[View, Sequence[Node]], Fused | None]


def end_of(view: View, nodes: Sequence[Node]) -> Node | None:
    """The one node of some whose result is read outside of them; None where there are several."""
    inside = {node.id for node in nodes}
    ends = [node for node in nodes if view.escapes(node, inside)]
    return ends[0] if len(ends) == 1 else None


def in_order(nodes: Sequence[Node], end: Node) -> tuple[int, ...]:
    """The ids of nodes, their end last."""
    return (*sorted({node.id for node in nodes} - {end.id}), end.id)


def use_of(view: View, node: Node, value: int | None) -> Use | None:
    """The use by which a node reads a value, seen through what hands it on."""
    return next((Use(node.id, at) for at, one in enumerate(node.inputs) if view.same(one, value)), None)


def vector_of(view: View, node: Node, size: int | None = None) -> Use | None:
    """The use of a constant of one axis, of so many numbers if that is said; None where a node reads none, or two."""
    found = []
    for operand, value in enumerate(node.inputs):
        shape = view.shape(node, operand)
        if view.is_constant(value) and shape is not None and len(shape) == 1 and size in (None, shape[0]):
            found.append(Use(node.id, operand))
    return found[0] if len(found) == 1 else None


def keeps_rank(view: View, node: Node, beside: Sequence[int | None] | None) -> bool:
    """Whether no constant that a node reads has more axes than what it stands beside."""
    rank = 0 if beside is None else len(beside)
    for operand, value in enumerate(node.inputs):
        if view.is_constant(value):
            shape = view.shape(node, operand)
            if shape is None or len(shape) > rank:
                return False
    return True
