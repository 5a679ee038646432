"""Grouping of decomposed operators: adjacent FX nodes that came from one original call."""

from collections.abc import Callable, Iterator, Mapping
from operator import getitem
from typing import Any

from torch import fx

from mezzo.aten.program import packet_of
from mezzo.aten.torch_internals import HigherOrderOperator, OpOverload, overload_of
from mezzo.tables.facts import HEAVY, OpFacts

Facts = Callable[[str, str], OpFacts | None]


def dialect_and_op(target: object, facts: Facts) -> tuple[str, str]:
    """The dialect and name under which facts list a target. "packet.overload" if that overload has
    its own row, else the packet's name.
    """
    if isinstance(target, OpOverload):
        packet = packet_of(target)
        exact = f"{packet}.{overload_of(target)}"
        dialect = target.namespace
        return dialect, exact if facts(dialect, exact) is not None else packet
    if isinstance(target, HigherOrderOperator):
        return "higher_order", str(target)
    return "python", getattr(target, "__name__", str(target))


def split(graph: fx.Graph, facts: Facts) -> Iterator[list[fx.Node]]:
    """Group a graph's calls, in order, by the operator that they were decomposed from.

    A call and its getitems form one group. The pieces of a decomposition stay together if the
    original operator has facts, no piece is a heavy operator (matmul, convolution), and they are
    adjacent. Views form groups of their own: adjacent views may come from two calls, and they
    accept any type, whereas pieces of a composite compute in FP32.
    """
    pieces: list[fx.Node] = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if pieces and not _is_of_one(pieces[-1], node, facts):
            yield from _settle(pieces, facts)
            pieces = []
        pieces.append(node)
    if pieces:
        yield from _settle(pieces, facts)


def composite_of(pieces: list[fx.Node]) -> object:
    """The operator that a group of nodes was decomposed from."""
    return pieces[0].meta.get("original_aten")


def _is_of_one(before: fx.Node, node: fx.Node, facts: Facts) -> bool:
    """Whether two adjacent nodes are pieces of one call. The most selective checks come first."""
    before_meta, node_meta = before.meta, node.meta
    op, node_op = before_meta.get("original_aten"), node_meta.get("original_aten")
    if op is None or node_op is None or (op is not node_op and str(op) != str(node_op)):
        # Compared by name: metadata may hold copies of an operator, which compare unequal.
        return False
    return (
        before_meta.get("seq_nr") == node_meta.get("seq_nr")
        and before_meta.get("stack_trace") == node_meta.get("stack_trace")
        and _origins(before_meta) == _origins(node_meta)
        and next(reversed(before_meta.get("nn_module_stack") or {}), None)
        == next(reversed(node_meta.get("nn_module_stack") or {}), None)
        and not _is_heavy(before, facts)
        and not _is_heavy(node, facts)
    )


def _origins(meta: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(source.name for source in meta.get("from_node") or ())


def _is_heavy(node: fx.Node, facts: Facts) -> bool:
    if node.target is getitem:
        return False
    row = facts(*dialect_and_op(node.target, facts))
    return row is not None and row.cost in HEAVY


def is_view(node: fx.Node) -> bool:
    """Whether a call returns a view."""
    return isinstance(node.target, OpOverload) and node.target.is_view


def _settle(pieces: list[fx.Node], facts: Facts) -> Iterator[list[fx.Node]]:
    """Yield the pieces as one group, or singly if they are no composite that facts list."""
    if len(pieces) == 1:
        yield pieces
        return
    calls = [piece for piece in pieces if piece.target is not getitem]
    original = composite_of(pieces)
    is_composite = len(calls) > 1 and all(str(call.target) != str(original) for call in calls)
    is_composite = is_composite and not all(map(is_view, calls))
    if is_composite and facts(*dialect_and_op(original, facts)) is not None:
        yield pieces
        return
    for piece in pieces:
        yield [piece]
