"""Which neighbouring nodes of an FX graph are pieces of one operator that a decomposition took apart."""

from collections.abc import Callable, Iterator, Mapping
from operator import getitem
from typing import Any

import torch
from torch import fx

from mezzo.aten.program import packet_of
from mezzo.tables.facts import HEAVY, OpFacts

Facts = Callable[[str, str], OpFacts | None]


def dialect_and_op(target: object, facts: Facts) -> tuple[str, str]:
    """How facts name an operator: "packet.overload" where they know that overload, else the packet."""
    if isinstance(target, torch._ops.OpOverload):
        packet = packet_of(target)
        exact = f"{packet}.{target._overloadname}"
        dialect = target.namespace
        return dialect, exact if facts(dialect, exact) is not None else packet
    if isinstance(target, torch._ops.HigherOrderOperator):
        return "higher_order", str(target)
    return "python", getattr(target, "__name__", str(target))


def split(graph: fx.Graph, facts: Facts) -> Iterator[list[fx.Node]]:
    """Cut a graph's calls, in their order, into pieces of one operator; most stand alone.

    A piece and its getitems are one. What a decomposition made stays together where facts know the operator that it
    was, none of its pieces does most of a model's arithmetic, and nothing else stands between them. Views stand alone:
    neighbours may be two calls, and they take any type, where pieces compute in FP32.
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
    """The operator that several nodes were before a decomposition."""
    return pieces[0].meta.get("original_aten")


def _is_of_one(before: fx.Node, node: fx.Node, facts: Facts) -> bool:
    """Whether two neighbours are pieces of one call of one operator. Most differ in what is looked at first."""
    one, other = before.meta, node.meta
    original, same = one.get("original_aten"), other.get("original_aten")
    if original is None or same is None or (original is not same and str(original) != str(same)):
        return False  # by its name: copies of an operator stand in metadata, which are equal to none
    return (
        one.get("seq_nr") == other.get("seq_nr")
        and one.get("stack_trace") == other.get("stack_trace")
        and _origins(one) == _origins(other)
        and next(reversed(one.get("nn_module_stack") or {}), None)
        == next(reversed(other.get("nn_module_stack") or {}), None)
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


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _settle(pieces: list[fx.Node], facts: Facts) -> Iterator[list[fx.Node]]:
    """Hand pieces on as one, or one by one where they are no operator that facts know."""
    if len(pieces) == 1:
        yield pieces
        return
    calls = [piece for piece in pieces if piece.target is not getitem]
    original = composite_of(pieces)
    is_one = len(calls) > 1 and all(str(call.target) != str(original) for call in calls)
    is_one = is_one and not all(_is_view(call) for call in calls)
    if is_one and facts(*dialect_and_op(original, facts)) is not None:
        yield pieces
        return
    for piece in pieces:
        yield [piece]
