"""What a call reads, and which argument of its schema each operand stands in."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import fx

from mezzo.frontends.torch.attributes import operand_order, scalar_operands


class Operand(NamedTuple):
    """What a call reads. `argument` is its name in the schema, its position where the call has none. `place` counts the
    nodes among the arguments in the order in which they are visited. A number that the arithmetic takes as it takes
    tensors has neither node nor place.
    """

    node: fx.Node | None
    argument: str
    place: int | None
    number: float | None = None


def operands_of(node: fx.Node) -> list[Operand]:
    """The nodes that a call reads, one entry for each place it is read at."""
    found: list[Operand] = []
    for name, given in _arguments(node):
        fx.map_arg(given, _noting(found, name))
    return found


def operands_for_rules(node: fx.Node, op: str) -> list[Operand]:
    """What a call reads in the order in which rules take it, numbers among the tensors where the arithmetic takes them
    so.
    """
    by_name: dict[str, list[Operand]] = {name: [] for name, _ in _arguments(node)}
    for operand in operands_of(node):
        by_name[operand.argument].append(operand)
    given = dict(_arguments(node))
    for name in scalar_operands(op):
        number = given.get(name)
        if isinstance(number, int | float) and not isinstance(number, bool):
            by_name[name] = [Operand(None, name, None, float(number))]
    first = [name for name in operand_order(op) if name in by_name]
    ordered = [*first, *(name for name in by_name if name not in first)]
    return [operand for name in ordered for operand in by_name[name]]


def plain_arguments(node: fx.Node) -> Mapping[str, object]:
    """A call's arguments by the schema's names, those that are nodes apart."""
    return {name: given for name, given in _arguments(node) if name and not isinstance(given, fx.Node)}


def _noting(found: list[Operand], name: str) -> Callable[[fx.Node], fx.Node]:
    def note(one: fx.Node) -> fx.Node:
        found.append(Operand(one, name, len(found)))
        return one

    return note


def _arguments(node: fx.Node) -> Iterator[tuple[str, fx.node.Argument]]:
    schema = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()
    for position, given in enumerate(node.args):
        yield (schema[position].name if position < len(schema) else f"#{position}"), given
    yield from node.kwargs.items()
