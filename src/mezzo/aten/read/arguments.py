"""Operands of ATen calls, matched to the schema's argument names."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from torch import fx

from mezzo.aten.read.attributes import operand_order, scalar_operands
from mezzo.aten.torch_internals import OpOverload, schema_of

Arguments = Sequence[tuple[str, fx.node.Argument]]


class CallOperand(NamedTuple):
    """One operand of a call. `argument` is its name in the schema, or its position if the call has
    no schema. `place` is its index among the node arguments, in traversal order. A Python scalar
    used like a tensor has neither node nor place, and an optional tensor that is left out before
    another one has no number either.
    """

    node: fx.Node | None
    argument: str
    place: int | None
    number: float | None = None


def operands_of(node: fx.Node) -> list[CallOperand]:
    """The nodes among a call's arguments, one entry per occurrence."""
    return _operands_in(_arguments(node))


def operands_for_rules(node: fx.Node, op: str) -> list[CallOperand]:
    """A call's operands in the order that structure rules expect. Includes numbers where the
    operator accepts a number in place of a tensor.
    """
    arguments = _arguments(node)
    by_argument = dict(arguments)
    by_name: dict[str, list[CallOperand]] = {name: [] for name in by_argument}
    for operand in _operands_in(arguments):
        by_name[operand.argument].append(operand)
    if isinstance(node.target, OpOverload):
        for name in _optional_of(node.target):
            if by_argument.get(name, name) is None:
                by_name[name] = [CallOperand(None, name, None)]
    for name in scalar_operands(op):
        number = by_argument.get(name)
        if isinstance(number, int | float) and not isinstance(number, bool):
            by_name[name] = [CallOperand(None, name, None, float(number))]
    leading = [name for name in operand_order(op) if name in by_name]
    ordered = [*leading, *(name for name in by_name if name not in leading)]
    operands = [operand for name in ordered for operand in by_name[name]]
    while operands and operands[-1].node is None and operands[-1].number is None:
        operands.pop()
    return operands


def with_argument(
    node: fx.Node, name: str, value: object
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's positional and named arguments with another value for one of them."""
    assert isinstance(node.target, OpOverload), "other calls have no names of arguments"
    names = _names_of(node.target)
    place = names.index(name)
    if place < len(node.args):
        return (*node.args[:place], value, *node.args[place + 1 :]), dict(node.kwargs)
    return node.args, {**node.kwargs, name: value}


def plain_arguments(node: fx.Node) -> Mapping[str, object]:
    """A call's non-node arguments by their schema names."""
    return {
        name: value for name, value in _arguments(node) if name and not isinstance(value, fx.Node)
    }


def _operands_in(arguments: Arguments) -> list[CallOperand]:
    operands: list[CallOperand] = []
    for name, argument in arguments:
        _note(argument, name, operands)
    return operands


def _note(argument: object, name: str, operands: list[CallOperand]) -> None:
    """Append the nodes in an argument, in the order in which `fx.map_arg` visits them."""
    if isinstance(argument, fx.Node):
        operands.append(CallOperand(argument, name, len(operands)))
    elif isinstance(argument, tuple | list):
        for item in argument:
            _note(item, name, operands)
    elif isinstance(argument, dict | slice):
        fx.map_arg(argument, lambda item: _note(item, name, operands))


def _arguments(node: fx.Node) -> Arguments:
    names = _names_of(node.target) if isinstance(node.target, OpOverload) else ()
    by_place = [
        (names[at] if at < len(names) else f"#{at}", value) for at, value in enumerate(node.args)
    ]
    return [*by_place, *node.kwargs.items()]


@cache
def _optional_of(target: OpOverload) -> tuple[str, ...]:
    """The arguments that may be left out, or else are a tensor."""
    arguments = schema_of(target).arguments
    return tuple(each.name for each in arguments if str(each.type) == "Optional[Tensor]")


@cache
def _names_of(target: OpOverload) -> tuple[str, ...]:
    """An operator's argument names. Cached: each access to a schema's arguments rebuilds them."""
    return tuple(argument.name for argument in schema_of(target).arguments)
