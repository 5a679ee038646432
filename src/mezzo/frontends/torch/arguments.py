"""What a call reads, and which argument of its schema each operand stands in."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import fx


class Operand(NamedTuple):
    """A node among a call's arguments. `argument` is its name in the schema, "" where the call has none."""

    node: fx.Node
    argument: str


def operands_of(node: fx.Node) -> list[Operand]:
    """What a call reads, one entry for each place it is read at, in the order in which places are visited."""
    found: list[Operand] = []
    for name, given in _arguments(node):
        fx.map_arg(given, _noting(found, name))
    return found


def _noting(found: list[Operand], name: str) -> Callable[[fx.Node], fx.Node]:
    def note(one: fx.Node) -> fx.Node:
        found.append(Operand(one, name))
        return one

    return note


def _arguments(node: fx.Node) -> Iterator[tuple[str, fx.node.Argument]]:
    schema = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()
    for position, given in enumerate(node.args):
        yield (schema[position].name if position < len(schema) else ""), given
    yield from node.kwargs.items()
