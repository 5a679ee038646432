"""Sizes of axes, as numbers or as symbols, where shape inference does not follow.

Exporters compute the sizes of a reshape from those of other values. Two values whose size along an
axis is one symbol have it equal, whatever it is.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Kind, Node

_MOST_DEPTH = 32


class Symbol(NamedTuple):
    """The unknown size of an axis of a value."""

    value: int
    axis: int


class Quotient(NamedTuple):
    """A number times unknown sizes, over others."""

    number: int
    above: "tuple[Symbol | Quotient, ...]"
    below: "tuple[Symbol | Quotient, ...]"


Size: TypeAlias = int | Symbol | Quotient


class SizeReader:
    """Sizes in a graph."""

    def __init__(self, view: FusionView) -> None:
        self._view = view

    @cached_property
    def _found(self) -> dict[int, tuple[Size, ...] | None]:
        return {}

    def of(self, value: int, depth: int = 0) -> tuple[Size, ...] | None:
        """The sizes of a value's axes; None if its rank is unknown."""
        value = self._view.origin(value)
        if value not in self._found:
            shape = self._view.graph.shapes.get(value)
            own = None if shape is None else tuple(Symbol(value, n) for n in range(len(shape)))
            self._found[value] = own
            if shape is not None and own is not None:
                is_traced = None in shape and depth < _MOST_DEPTH
                traced = self._traced(value, len(shape), depth + 1) if is_traced else own
                known = zip(shape, traced or own, strict=True)
                self._found[value] = tuple(other if size is None else size for size, other in known)
        return self._found[value]

    def last(self, value: int) -> int | None:
        """The number of elements along the last axis; None if unknown."""
        sizes = self.of(value)
        return sizes[-1] if sizes and isinstance(sizes[-1], int) else None

    def number(self, value: int | None, depth: int = 0) -> int | None:
        """An integer that is stored or computed from known sizes; None for others."""
        size = self._computed(value, depth)
        return size if isinstance(size, int) else None

    def _traced(self, value: int, rank: int, depth: int) -> tuple[Size, ...] | None:
        """The sizes of an operator's result; None if they are not followed."""
        node = self._view.producer(value)
        if node.kind is not Kind.OP or not node.inputs or node.inputs[0] is None:
            return None
        data = self.of(node.inputs[0], depth)
        sizes = None if data is None else self._result(node, value, data, depth)
        return sizes if sizes is not None and len(sizes) == rank else None

    def _result(
        self, node: Node, value: int, data: tuple[Size, ...], depth: int
    ) -> tuple[Size, ...] | None:
        match self._view.op(node):
            case "Transpose":
                order = self._view.integers(node, "perm")
                return tuple(data[axis] for axis in order) if len(order) == len(data) else None
            case "Reshape":
                return self._reshaped(node, value, data, depth)
            case "Squeeze":
                gone = axes_of(self._view, node, 1, len(data))
                return tuple(size for n, size in enumerate(data) if gone and n not in gone)
            case "Split":
                axis = axis_of(node, len(data), default=0)
                return (*data[:axis], Symbol(value, axis), *data[axis + 1 :])
            case "Slice":
                return self._sliced(node, value, data, depth)
            case "Add" | "Sub" | "Mul" | "Div" if node.inputs[1] is not None:
                other = self.of(node.inputs[1], depth)
                return None if other is None else _broadcast(value, data, other)
            case "MatMul" if node.inputs[1] is not None and len(data) > 1:
                other = self.of(node.inputs[1], depth)
                return (*data[:-1], other[1]) if other is not None and len(other) == 2 else None
            case "LayerNormalization" | "Neg" | "Softmax":
                return data
            case _:
                return None

    def _sliced(
        self, node: Node, value: int, data: tuple[Size, ...], depth: int
    ) -> tuple[Size, ...] | None:
        axes = axes_of(self._view, node, 3, len(data))
        if axes is None:
            return None
        sizes = list(data)
        for axis in axes:
            sizes[axis] = Symbol(value, axis)
        bounds = [self.number(node.operand(place), depth) for place in (1, 2)]
        size, step = data[axes[0]], 1 if node.operand(4) is None else self.number(node.operand(4))
        if len(axes) == 1 and isinstance(size, int) and None not in bounds and step == 1:
            sizes[axes[0]] = len(range(size)[slice(*bounds)])
        return tuple(sizes)

    def _reshaped(
        self, node: Node, value: int, data: tuple[Size, ...], depth: int
    ) -> tuple[Size, ...] | None:
        target = self._view.origin(node.inputs[1] or 0)
        sizes: list[Size | None] = list(self._view.graph.integers.get(target, ()))
        parts = self._view.producer(target)
        if not sizes and parts.kind is Kind.OP and self._view.op(parts) == "Concat":
            sizes = [self._computed(part, depth) for part in parts.inputs]
        if not sizes or None in sizes[len(data) :]:
            return None
        if not node.attributes.get("allowzero", 0):
            sizes = [data[n] if size == 0 else size for n, size in enumerate(sizes)]
        result = [Symbol(value, n) if size is None else size for n, size in enumerate(sizes)]
        if result.count(-1) == 1:
            rest = _quotient(data, [size for size in result if size != -1])
            place = result.index(-1)
            result[place] = Symbol(value, place) if rest is None else rest
        return tuple(result)

    def _computed(self, value: int | None, depth: int) -> Size | None:
        if value is None or depth > _MOST_DEPTH:
            return None
        value = self._view.origin(value)
        numbers = self._view.graph.integers.get(value, ())
        if len(numbers) == 1:
            return numbers[0]
        node = self._view.producer(value)
        match self._view.op(node) if node.kind in (Kind.OP, Kind.SOURCE) else "":
            case "Cast" | "Unsqueeze" | "Squeeze":
                return self._computed(node.inputs[0], depth + 1)
            case "Gather":
                return self._gathered(node, depth + 1)
            case ("Add" | "Sub" | "Mul" | "Div") as op:
                left, right = (self._computed(each, depth + 1) for each in node.inputs)
                is_known = isinstance(left, int) and isinstance(right, int)
                return _calculate(op, left, right) if is_known else None
            case _:
                return None

    def _gathered(self, node: Node, depth: int) -> Size | None:
        """An entry of a shape."""
        shape = self._view.producer(self._view.origin(node.inputs[0] or 0))
        if self._view.op(shape) != "Shape" or shape.attributes.get("start", 0):
            return None
        index, sizes = self.number(node.inputs[1], depth), self.of(shape.inputs[0] or 0, depth)
        if index is None or sizes is None or not -len(sizes) <= index < len(sizes):
            return None
        return sizes[index]


def axes_of(view: FusionView, node: Node, place: int, rank: int) -> list[int] | None:
    """The axes that a node names as an attribute or an operand, counted from the front, in order;
    None if they are computed.
    """
    axes = view.integers(node, "axes")
    value = node.operand(place)
    if value is not None:
        axes = view.graph.integers.get(view.origin(value), ())
    return sorted(axis % rank for axis in axes) if axes and rank else None


def axis_of(node: Node, rank: int, *, default: int) -> int:
    """The axis that a node names, counted from the front."""
    axis = node.attributes.get("axis", default)
    return int(axis) % rank if isinstance(axis, int) and rank else -1


def _broadcast(value: int, left: Sequence[Size], right: Sequence[Size]) -> tuple[Size, ...]:
    rank = max(len(left), len(right))
    wide = [(1,) * (rank - len(each)) + tuple(each) for each in (left, right)]
    return tuple(_joint(value, n, a, b) for n, (a, b) in enumerate(zip(*wide, strict=True)))


def _joint(value: int, axis: int, left: Size, right: Size) -> Size:
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    known = [size for size in (left, right) if isinstance(size, int)]
    return known[0] if known else Symbol(value, axis)


def _quotient(sizes: Sequence[Size], others: Sequence[Size]) -> Size | None:
    """A product of sizes over that of others, reduced; None if it is no whole number."""
    above, below = Counter(sizes), Counter(others)
    above, below = above - below, below - above
    (count, over), (parts, under) = _factors(above), _factors(below)
    if parts < 1 or count % parts:
        return None
    number = count // parts
    if not over and not under:
        return number
    return (
        over[0] if number == 1 and len(over) == 1 and not under else Quotient(number, over, under)
    )


def _factors(sizes: Counter[Size]) -> tuple[int, tuple[Symbol | Quotient, ...]]:
    """The product of the numbers, and the rest in order."""
    number = math.prod(size for size in sizes.elements() if isinstance(size, int))
    symbols = [size for size in sizes.elements() if not isinstance(size, int)]
    return number, tuple(sorted(symbols, key=repr))


def _calculate(op: str, left: Size | None, right: Size | None) -> int | None:
    """A sum, difference, product or quotient of numbers that are not negative."""
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    match op:
        case "Add":
            return left + right
        case "Sub":
            return left - right
        case "Mul":
            return left * right
        case _:
            return left // right if right > 0 <= left else None
