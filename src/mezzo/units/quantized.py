"""Which nodes a target runs together on quantized operands: a kernel's operator with those that it takes in.

Pure functions over a graph and a target's rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mezzo.core.joining import joined
from mezzo.core.nodes import Kind, Node, Role, Use
from mezzo.core.quantized_kernels import Hands, Operand, QuantizedKernel
from mezzo.units.view import View


class Read(NamedTuple):
    """A value that a unit reads quantized, and how."""

    use: Use
    value: int
    operand: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedUnit:
    """Nodes that run as one quantized kernel: its operator first, then those that it takes in, one behind the other.

    `result` is what the last of them makes.
    """

    kernel: QuantizedKernel
    nodes: tuple[int, ...]
    reads: tuple[Read, ...]
    result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How a value has to be held that may be quantized. Values of one `group` have the same parameters: the group is
    the smallest of them.
    """

    style: Operand
    group: int


def quantized_units(
    view: View, kernels: Sequence[QuantizedKernel], may_run: Sequence[bool]
) -> tuple[QuantizedUnit, ...]:
    """The units of a graph, each node in one at most. `may_run`: by node, whether it may run quantized at all."""
    rows: dict[tuple[str, str], list[QuantizedKernel]] = {}
    for kernel in kernels:
        rows.setdefault((kernel.dialect, kernel.op), []).append(kernel)
    found, taken = [], set[int]()
    for node in view.graph.nodes:
        if node.kind is not Kind.OP or not may_run[node.id] or node.id in taken:
            continue
        for kernel in rows.get((node.signature.dialect, node.op), ()):
            reads = _reads(view, node, kernel)
            if reads is None:
                continue
            nodes = (node, *_taken_in(view, node, kernel, may_run))
            result = nodes[-1].outputs[0]
            assert result is not None, "what a kernel makes is read"
            numbers = tuple(one.id for one in nodes)
            taken.update(numbers)
            found.append(QuantizedUnit(kernel=kernel, nodes=numbers, reads=reads, result=result))
            break
    return tuple(found)


def _reads(view: View, node: Node, kernel: QuantizedKernel) -> tuple[Read, ...] | None:
    """What a node reads quantized as a kernel's row says; None where it is not the row's."""
    if not kernel.fits(node.signature.dialect, node.op, node.signature.version, node.attributes):
        return None
    if not node.outputs or node.outputs[0] is None or any(value is not None for value in node.outputs[1:]):
        return None
    found = []
    for operand in kernel.operands:
        value = node.inputs[operand.position] if operand.position < len(node.inputs) else None
        if value is None or node.signature.inputs[operand.position] is not Role.GROUP:
            return None
        if operand.is_weight != view.is_constant(value) or (operand.is_weight and not _is_plain(view, value)):
            return None
        found.append(Read(Use(node.id, operand.position), value, operand))
    return tuple(found)


def _is_plain(view: View, value: int) -> bool:
    """Whether a weight can be quantized: it is stored, and all its numbers are finite."""
    facts, maker = view.graph.constants.get(value), view.graph.nodes[view.graph.values[value].producer]
    return facts is not None and maker.kind is Kind.SOURCE and not (facts.has_infinity or facts.has_nan)


def _taken_in(view: View, node: Node, kernel: QuantizedKernel, may_run: Sequence[bool]) -> Iterator[Node]:
    """The operators behind a node that its kernel takes in: each the only reader of the one before it."""
    graph = view.graph
    while kernel.followers:
        value = node.outputs[0]
        assert value is not None, "each of them makes something"
        readers = graph.uses[value]
        if len(readers) != 1 or not graph.values[value].is_castable:
            return
        node, use = graph.nodes[readers[0].node], readers[0]
        others = [one for at, one in enumerate(node.inputs) if at != use.operand and one is not None]
        is_one = node.kind is Kind.OP and len(node.outputs) == 1 and node.scope == graph.values[value].scope
        if not is_one or view.op(node) not in kernel.followers or not may_run[node.id]:
            return
        if use in graph.aliased or not all(map(view.is_constant, others)):
            return
        yield node


def held_values(units: Sequence[QuantizedUnit]) -> Mapping[int, Held]:
    """How each value has to be held that some unit reads or makes quantized, by value id.

    Where readers ask for different styles, one with zero at zero suits all; axes that differ leave one scale.
    """
    styles: dict[int, Operand] = {}
    pairs = []
    for unit in units:
        for read in unit.reads:
            styles[read.value] = _united(styles.get(read.value), read.operand)
            if unit.kernel.hands is Hands.READ:
                pairs.append((read.value, unit.result))
        if unit.kernel.hands is not Hands.FLOATS and not unit.reads[0].operand.is_weight:
            styles.setdefault(unit.result, unit.reads[0].operand)
    size = max((value for pair in pairs for value in pair), default=-1) + 1
    groups = joined(range(size), pairs)
    for value in sorted(styles):  # those of a group agree
        group = groups[value] if value < size else value
        styles[group] = _united(styles.get(group), styles[value])
    group_of = {value: groups[value] if value < size else value for value in sorted(styles)}
    return {value: Held(style=styles[group], group=group) for value, group in group_of.items()}


def _united(one: Operand | None, other: Operand) -> Operand:
    if one is None or one == other:
        return other
    first = one if one.is_symmetric or not other.is_symmetric else other
    axis = one.axis if one.axis == other.axis else None
    return Operand(
        position=first.position,
        dtype=first.dtype,
        is_symmetric=first.is_symmetric,
        is_weight=one.is_weight and other.is_weight,
        axis=axis,
    )
