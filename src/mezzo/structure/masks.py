"""Masks: constants past the range that only ever reach a softmax, where any very negative number does the same."""

from collections.abc import Iterator, Mapping

from mezzo.core.facts import Cost, Function
from mezzo.core.nodes import Kind, Node, Role
from mezzo.structure import StructureRule, View

_COMBINES = frozenset(
    {Function.SELECT, Function.ADD, Function.SUBTRACT, Function.MULTIPLY, Function.MAXIMUM, Function.MINIMUM}
)
_ENDS = frozenset({Function.SOFTMAX, Function.LOG_SOFTMAX})

# This rule limits constants instead of denying nodes; see `mask_limits`.
RULES: tuple[StructureRule, ...] = ()


def mask_limits(view: View) -> Mapping[int, float]:
    """Bounds for the constants that are masks, by value id: half the range, so that adding logits cannot overflow.

    A row whose positions are all masked stays finite, where the largest finite number would overflow and give NaN.
    """
    graph = view.graph
    memo: dict[int, bool] = {}
    limit = view.low.max_finite / 2
    limits = {}
    for value, facts in graph.constants.items():
        if facts.largest <= limit:
            continue
        maker = graph.nodes[graph.values[value].producer]
        if maker.kind is Kind.INPUT:
            continue  # what a caller feeds is not stored
        starts = [maker] if maker.kind is Kind.OP else [graph.nodes[use.node] for use in graph.uses[value]]
        if starts and all(_reaches_softmax_only(view, start, memo) for start in starts):
            limits[value] = limit
    return limits


def _reaches_softmax_only(view: View, start: Node, memo: dict[int, bool]) -> bool:
    """Whether every path from a node leads through sums, selections and movements to a softmax. Linear over all
    starts.
    """
    order: list[Node] = []
    queue, seen = [start], {start.id}
    while queue:
        node = queue.pop()
        if node.id in memo:
            continue
        order.append(node)
        if _passes(view, node):
            for reader in _all_readers(view, node):
                if reader.id not in seen:
                    seen.add(reader.id)
                    queue.append(reader)
    # Nodes are numbered in order of use, so readers are settled before what they read.
    for node in sorted(order, key=lambda node: -node.id):
        if view.function(node) in _ENDS or _is_attention(view, node):
            memo[node.id] = True
        else:
            readers = list(_all_readers(view, node))
            memo[node.id] = _passes(view, node) and bool(readers) and all(memo.get(r.id, False) for r in readers)
    return memo[start.id]


def _passes(view: View, node: Node) -> bool:
    row = view.rows[node.id]
    return row is not None and (row.function in _COMBINES or row.keeps_values or row.cost is Cost.GENERATOR)


def _is_attention(view: View, node: Node) -> bool:
    row = view.rows[node.id]
    return row is not None and row.cost is Cost.ATTENTION


def _all_readers(view: View, node: Node) -> Iterator[Node]:
    """Every user of the node's floats, graph outputs included."""
    for value, role in zip(node.outputs, node.signature.outputs, strict=True):
        if value is not None and role is Role.GROUP:
            for use in view.graph.uses[value]:
                yield view.graph.nodes[use.node]
