"""Symbols of single elements along the last axes: which element of x each one is, times what.

A lane is the position of an element along the last axes of a tensor. Slices, splits, concatenations
and reshapes move lanes; products with tables scale them, and sums join them. So two spellings of a
rotation have the same lanes.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.lane_moves import Array, LaneMoves, Lanes, rank_of
from mezzo.analysis.raising.sizes import SizeReader, axes_of, axis_of
from mezzo.ir.nodes import Kind, Node

_MOST_LANES = 1024
_MOST_DEPTH = 24
_MOST_READ = 1 << 22  # elements of a constant
_ELEMENTWISE = frozenset({"Add", "Cast", "Cos", "Div", "Mul", "Neg", "Sin", "Sub"})
# Their first operand is moved along other axes, alike for all lanes.
_LEADING = frozenset({"Expand", "Gather", "Slice", "Squeeze", "Transpose", "Unsqueeze"})

Floats: TypeAlias = npt.NDArray[np.float32]


class Entry(NamedTuple):
    """An element of a tensor of factors: a value, and the lane along its last `axes` axes."""

    value: int
    lane: int
    axes: int


class Term(NamedTuple):
    """A lane of x times a number, and times an entry if `factor` is one."""

    lane: int
    number: float
    factor: Entry | None = None


Terms: TypeAlias = tuple[Term, ...]


class LaneReader:
    """Lanes of the values of a graph. `read` gives the elements of a constant."""

    def __init__(self, view: FusionView, read: Callable[[int], Floats | None]) -> None:
        self.sizes = SizeReader(view)
        self._moves = LaneMoves(view, self.sizes)
        self._view, self._read = view, read
        self._symbols: dict[Hashable, int] = {}
        self._meanings: list[Hashable] = []
        self._tables: dict[int, Lanes | None] = {}

    def symbol(self, meaning: Hashable) -> int:
        """The number of a symbol; equal meanings have one."""
        if meaning not in self._symbols:
            self._symbols[meaning] = len(self._meanings)
            self._meanings.append(meaning)
        return self._symbols[meaning]

    def same(self, left: Entry, right: Entry) -> bool:
        """Whether two entries are equal at all positions of the other axes."""
        if left == right:
            return True
        lanes = [self._entry(each) for each in (left, right)]
        return None not in lanes and lanes[0] == lanes[1]

    def _entry(self, entry: Entry) -> int | None:
        table = self.table(entry.value)
        if table is None or table.symbols.ndim != entry.axes:
            return None
        return int(table.symbols.flat[entry.lane])

    def terms(self, symbol: int) -> Terms:
        """What the lane of a value computed from x is: see `of_base`."""
        meaning = self._meanings[symbol]
        assert isinstance(meaning, tuple), "lanes of x are terms"
        return meaning

    def of_base(self, base: int, width: int, wanted: int) -> Lanes | None:
        """The lanes of a value in those of a base with `width` elements along its last axis; None
        if it reads another value than as a factor, or is computed by other operators.
        """
        whole = np.array([self.symbol((Term(lane, 1.0),)) for lane in range(width)], np.int64)
        found: dict[int, Lanes | None] = {base: Lanes(whole, rank_of(self._view, base) - 1)}
        return self._data(wanted, found, self._view.graph.values[base].producer)

    def _data(self, value: int, found: dict[int, Lanes | None], first: int) -> Lanes | None:
        value = self._view.origin(value)
        if value not in found:
            found[value] = None
            node = self._view.producer(value)
            if node.id > first and node.kind is Kind.OP and len(found) <= 2 * _MOST_DEPTH:
                operands = [
                    None if each is None else self._data(each, found, first) for each in node.inputs
                ]
                found[value] = self._computed(node, value, operands)
        return found[value]

    def _computed(self, node: Node, value: int, operands: Sequence[Lanes | None]) -> Lanes | None:
        match self._view.op(node), operands:
            case "Neg", [Lanes() as one]:
                return self._scaled(one, -1.0)
            case "Mul", [Lanes() as one, None]:
                return self._product(one, node.inputs[1])
            case "Mul", [None, Lanes() as one]:
                return self._product(one, node.inputs[0])
            case ("Add" | "Sub") as op, [Lanes() as one, Lanes() as other]:
                return self._sum(one, self._scaled(other, -1.0) if op == "Sub" else other)
            case _:
                return self._moves.moved(node, value, operands)

    def _scaled(self, lanes: Lanes, number: float) -> Lanes:
        scaled = [
            self.symbol(tuple(term._replace(number=term.number * number) for term in self.terms(s)))
            for s in map(int, lanes.symbols.flat)
        ]
        return lanes._replace(symbols=np.array(scaled, np.int64).reshape(lanes.symbols.shape))

    def _product(self, lanes: Lanes, table: int | None) -> Lanes | None:
        """Lanes times the entries of a tensor along the same axes."""
        if table is None:
            return None
        facts = self._view.graph.constants.get(table)
        if facts is not None and facts.number is not None:
            return self._scaled(lanes, facts.number)
        entries = self._entries(table, lanes)
        if entries is None:
            return None
        symbols, shape = lanes.symbols, entries.shape
        if np.broadcast_shapes(symbols.shape, shape) != symbols.shape:
            return None
        products = []
        for symbol, lane in zip(
            symbols.flat, np.broadcast_to(entries, symbols.shape).flat, strict=True
        ):
            terms = self.terms(int(symbol))
            if any(term.factor is not None for term in terms):
                return None
            factor = Entry(table, int(lane), entries.ndim)
            products.append(self.symbol(tuple(term._replace(factor=factor) for term in terms)))
        return lanes._replace(symbols=np.array(products, np.int64).reshape(symbols.shape))

    def _entries(self, table: int, lanes: Lanes) -> Array | None:
        """The lanes of a tensor of factors, along as many axes as those of x."""
        shape = self._view.graph.shapes.get(table)
        if shape is None or len(shape) > lanes.leading + lanes.symbols.ndim:
            return None
        last = shape[max(0, len(shape) - lanes.symbols.ndim) :]
        sizes = [size for size in last if size is not None]
        count = int(np.prod(sizes))
        if len(sizes) < len(last) or count > _MOST_LANES:
            return None
        return np.arange(count, dtype=np.int64).reshape(sizes)

    def _sum(self, left: Lanes, right: Lanes) -> Lanes | None:
        if left.symbols.shape != right.symbols.shape or left.leading != right.leading:
            return None
        pairs = zip(left.symbols.flat, right.symbols.flat, strict=True)
        sums = [self.symbol((*self.terms(int(a)), *self.terms(int(b)))) for a, b in pairs]
        return left._replace(symbols=np.array(sums, np.int64).reshape(left.symbols.shape))

    # -- tables ------------------------------------------------------------------------------------

    def table(self, value: int, depth: int = 0) -> Lanes | None:
        """The lanes of a value along its last axis, or the axes that it was split into; equal
        symbols are equal elements. None if its last axis has no known size.
        """
        value = self._view.origin(value)
        if value not in self._tables:
            self._tables[value] = None
            self._tables[value] = self._known(value, depth) or self._leaf(value)
        return self._tables[value]

    def _leaf(self, value: int) -> Lanes | None:
        shape = self._view.graph.shapes.get(value)
        size = shape[-1] if shape else 1
        if shape is None or size is None or size > _MOST_LANES:
            return None
        facts = self._view.graph.constants.get(value)
        is_read = facts is not None and facts.elements <= _MOST_READ
        stored = self._read(value) if is_read else None
        if stored is None or stored.ndim == 0:
            symbols = [self.symbol((value, lane)) for lane in range(size)]
        else:
            columns = np.ascontiguousarray(np.moveaxis(stored, -1, 0))
            symbols = [self.symbol((shape[:-1], column.tobytes())) for column in columns]
        return Lanes(np.array(symbols, np.int64), max(0, len(shape) - 1))

    def _known(self, value: int, depth: int) -> Lanes | None:
        node = self._view.producer(value)
        if node.kind is not Kind.OP or depth > _MOST_DEPTH:
            return None
        operands = [None if each is None else self.table(each, depth + 1) for each in node.inputs]
        op = self._view.op(node)
        if op in _ELEMENTWISE:
            return self._elementwise(node, value, operands)
        return self._moves.moved(node, value, operands) or self._along_others(node, value, operands)

    def _elementwise(
        self, node: Node, value: int, operands: Sequence[Lanes | None]
    ) -> Lanes | None:
        known = [lanes for lanes in operands if lanes is not None]
        rank = rank_of(self._view, value)
        if len(known) < len(operands) or any(lanes.symbols.ndim != 1 for lanes in known):
            return None
        columns = np.broadcast_arrays(*(lanes.symbols for lanes in known))
        key = (node.op, str(node.attributes.get("to", "")))
        symbols = [self.symbol((key, *map(int, each))) for each in zip(*columns, strict=True)]
        return Lanes(np.array(symbols, np.int64), rank - 1)

    def _along_others(
        self, node: Node, value: int, operands: Sequence[Lanes | None]
    ) -> Lanes | None:
        """An operator that moves elements along other axes than the last, alike for all lanes."""
        data, shape = operands[0] if operands else None, self._view.graph.shapes.get(value)
        if data is None or not shape or self._view.op(node) not in _LEADING:
            return None
        if data.symbols.shape != (shape[-1],) or not self._keeps_last(node):
            return None
        symbols = [self.symbol((node.id, int(symbol))) for symbol in data.symbols]
        return Lanes(np.array(symbols, np.int64), len(shape) - 1)

    def _keeps_last(self, node: Node) -> bool:
        rank = rank_of(self._view, node.inputs[0] or 0)
        match self._view.op(node):
            case "Transpose":
                return self._view.integers(node, "perm")[-1:] == (rank - 1,)
            case "Gather":
                return axis_of(node, rank, default=0) != rank - 1
            case "Slice":
                axes = axes_of(self._view, node, 3, rank)
                return axes is not None and rank - 1 not in axes
            case "Squeeze":
                axes = axes_of(self._view, node, 1, rank)
                return axes is not None and rank - 1 not in axes
            case "Unsqueeze":
                axes = axes_of(self._view, node, 1, rank_of(self._view, node.outputs[0] or 0))
                return axes is not None and rank not in axes[-1:]
            case _:
                return True  # Expand, of an axis of that size
