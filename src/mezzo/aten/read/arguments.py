"""What a call reads, and which argument of its schema each operand stands in."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import fx

from mezzo.aten.read.attributes import operand_order, scalar_operands

Arguments = Sequence[tuple[str, fx.node.Argument]]


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
    return _operands_in(_arguments(node))


def operands_for_rules(node: fx.Node, op: str) -> list[Operand]:
    """What a call reads in the order in which rules take it, numbers among the tensors where the arithmetic takes them
    so.
    """
    arguments = _arguments(node)
    given = dict(arguments)
    by_name: dict[str, list[Operand]] = {name: [] for name in given}
    for operand in _operands_in(arguments):
        by_name[operand.argument].append(operand)
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


def _operands_in(arguments: Arguments) -> list[Operand]:
    found: list[Operand] = []
    for name, given in arguments:
        _note(given, name, found)
    return found


def _note(given: object, name: str, found: list[Operand]) -> None:
    """Note the nodes of an argument in the order in which `fx.map_arg` visits them."""
    if isinstance(given, fx.Node):
        found.append(Operand(given, name, len(found)))
    elif isinstance(given, tuple | list):
        for one in given:
            _note(one, name, found)
    elif isinstance(given, dict | slice):
        fx.map_arg(given, lambda one: _note(one, name, found))


def _arguments(node: fx.Node) -> Arguments:
    names = _names_of(node.target) if isinstance(node.target, torch._ops.OpOverload) else ()
    by_place = [(names[at] if at < len(names) else f"#{at}", given) for at, given in enumerate(node.args)]
    return [*by_place, *node.kwargs.items()]


@cache
def _names_of(target: torch._ops.OpOverload) -> tuple[str, ...]:
    """The names of an operator's arguments; of a schema each look makes them anew."""
    return tuple(argument.name for argument in target._schema.arguments)
