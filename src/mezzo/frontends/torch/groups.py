"""Which neighbouring nodes of an FX graph are pieces of one operator that a decomposition took apart."""

from collections.abc import Callable, Iterator
from operator import getitem

import torch
from torch import fx

from mezzo.core.facts import HEAVY, OpFacts
from mezzo.frontends.torch.program import packet_of

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
    was, none of its pieces does most of a model's arithmetic, and nothing else stands between them.
    """
    pieces: list[fx.Node] = []
    key: object = None
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        own = _key_of(node, facts)
        if pieces and not (own is not None and own == key):
            yield from _settle(pieces, facts)
            pieces = []
        pieces.append(node)
        key = own
    if pieces:
        yield from _settle(pieces, facts)


def composite_of(pieces: list[fx.Node]) -> object:
    """The operator that several nodes were before a decomposition."""
    return pieces[0].meta.get("original_aten")


def _key_of(node: fx.Node, facts: Facts) -> object:
    """What pieces of one call of one operator share; None of what is no piece."""
    original = node.meta.get("original_aten")
    if original is None:
        return None
    if node.target is not getitem:
        dialect, op = dialect_and_op(node.target, facts)
        row = facts(dialect, op)
        if row is not None and row.cost in HEAVY:
            return None
    origins = tuple(source.name for source in node.meta.get("from_node") or ())
    stack = node.meta.get("nn_module_stack") or {}
    # By its name: copies of an operator stand in metadata, which are equal to none.
    return str(original), origins, node.meta.get("seq_nr"), next(reversed(stack), None), node.meta.get("stack_trace")


def _settle(pieces: list[fx.Node], facts: Facts) -> Iterator[list[fx.Node]]:
    """Hand pieces on as one, or one by one where they are no operator that facts know."""
    calls = [piece for piece in pieces if piece.target is not getitem]
    original = composite_of(pieces)
    is_one = len(calls) > 1 and all(str(call.target) != str(original) for call in calls)
    if is_one and facts(*dialect_and_op(original, facts)) is not None:
        yield pieces
        return
    for piece in pieces:
        yield [piece]
