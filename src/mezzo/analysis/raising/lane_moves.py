"""Operators that move elements along the last axes of a tensor: what they do to its lanes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.sizes import SizeReader, axes_of, axis_of
from mezzo.ir.nodes import Node

Array: TypeAlias = npt.NDArray[np.int64]


class Lanes(NamedTuple):
    """Symbols of the elements along the last axes, and the number of axes before them."""

    symbols: Array
    leading: int


class LaneMoves:
    """What operators of a graph do to lanes."""

    def __init__(self, view: FusionView, sizes: SizeReader) -> None:
        self._view, self._sizes = view, sizes

    def moved(self, node: Node, value: int, operands: Sequence[Lanes | None]) -> Lanes | None:
        """Lanes that an operator moves along the last axes; None if it does anything else."""
        op = self._view.op(node)
        if op == "Concat":
            return self._concatenated(node, operands)
        if not operands or operands[0] is None or op not in _MOVES:
            return None
        return _MOVES[op](self, node, value, operands[0])

    def _concatenated(self, node: Node, operands: Sequence[Lanes | None]) -> Lanes | None:
        known = [lanes for lanes in operands if lanes is not None]
        if not known or len(known) < len(operands) or len({lanes.leading for lanes in known}) > 1:
            return None
        leading, ndim = known[0].leading, known[0].symbols.ndim
        axis = axis_of(node, leading + ndim, default=-1) - leading
        if axis < 0 or any(lanes.symbols.ndim != ndim for lanes in known):
            return None
        shapes = {np.delete(lanes.symbols.shape, axis).tobytes() for lanes in known}
        if len(shapes) > 1:
            return None
        return Lanes(np.concatenate([lanes.symbols for lanes in known], axis), leading)

    def sliced(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        axes = axes_of(self._view, node, 3, lanes.leading + lanes.symbols.ndim)
        if axes is None or len(axes) != 1 or axes[0] < lanes.leading:
            return None
        bounds = [self._sizes.number(node.operand(place)) for place in (1, 2)]
        step = 1 if node.operand(4) is None else self._sizes.number(node.operand(4))
        if None in bounds or step is None or step < 1:
            return None
        index = [slice(None)] * lanes.symbols.ndim
        index[axes[0] - lanes.leading] = slice(bounds[0], bounds[1], step)
        return lanes._replace(symbols=lanes.symbols[tuple(index)])

    def split(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        axis = axis_of(node, lanes.leading + lanes.symbols.ndim, default=0) - lanes.leading
        if axis < 0:
            return None
        count, size = len(node.outputs), lanes.symbols.shape[axis]
        stated = self._view.integers(node, "split")
        second = node.operand(1)
        if second is not None:
            stated = self._view.graph.integers.get(self._view.origin(second), ())
        sizes = stated or ((size // count,) * count if size % count == 0 else ())
        if len(sizes) != count or sum(sizes) != size:
            return None
        parts = np.split(lanes.symbols, np.cumsum(sizes)[:-1].tolist(), axis)
        return lanes._replace(symbols=parts[node.outputs.index(value)])

    def gathered(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        axis = axis_of(node, lanes.leading + lanes.symbols.ndim, default=0) - lanes.leading
        indices = self._view.origin(node.inputs[1] or 0)
        taken = self._view.graph.integers.get(indices)
        shape = self._view.graph.shapes.get(indices)
        if axis < 0 or not taken or shape is None or len(shape) > 1:
            return None
        size = lanes.symbols.shape[axis]
        if any(not -size <= each < size for each in taken):
            return None
        chosen = np.array(taken) if shape else taken[0]
        return lanes._replace(symbols=np.take(lanes.symbols, chosen, axis))

    def reshaped(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        """A reshape within the last axes."""
        before = self._view.graph.shapes.get(node.inputs[0] or 0)
        after = self._view.graph.shapes.get(value)
        target = self._view.graph.integers.get(self._view.origin(node.operand(1) or 0), ())
        if before is None or after is None:
            return None
        first, then = before[: lanes.leading], after[: lanes.leading]
        is_copied = not any(target[: lanes.leading]) and not node.attributes.get("allowzero", 0)
        copies = is_copied and len(target) >= lanes.leading
        if not copies and (None in first or first != then):
            return None
        sizes = [size for size in after[lanes.leading :] if size is not None]
        if len(sizes) < len(after) - lanes.leading or np.prod(sizes) != lanes.symbols.size:
            return None
        return lanes._replace(symbols=lanes.symbols.reshape(sizes))

    def unsqueezed(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        axes = axes_of(self._view, node, 1, rank_of(self._view, value))
        if axes is None or min(axes) < lanes.leading:
            return None
        places = tuple(axis - lanes.leading for axis in axes)
        return lanes._replace(symbols=np.expand_dims(lanes.symbols, places))

    def squeezed(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        axes = axes_of(self._view, node, 1, lanes.leading + lanes.symbols.ndim)
        if axes is None or min(axes) < lanes.leading:
            return None
        places = tuple(axis - lanes.leading for axis in axes)
        if any(lanes.symbols.shape[place] != 1 for place in places):
            return None
        return lanes._replace(symbols=np.squeeze(lanes.symbols, places))

    def transposed(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        """A transposition of the last axes among each other."""
        order, leading = self._view.integers(node, "perm"), lanes.leading
        if order[:leading] != tuple(range(leading)) or len(order) != leading + lanes.symbols.ndim:
            return None
        return lanes._replace(
            symbols=lanes.symbols.transpose([n - leading for n in order[leading:]])
        )

    def expanded(self, node: Node, value: int, lanes: Lanes) -> Lanes | None:
        """A repetition along the last axes, of a table."""
        before = self._view.graph.shapes.get(node.inputs[0] or 0)
        after = self._view.graph.shapes.get(value)
        if before is None or after is None or before[: lanes.leading] != after[: lanes.leading]:
            return None
        sizes = after[lanes.leading :]
        if None in before[: lanes.leading] or None in sizes or lanes.symbols.ndim != len(sizes):
            return None
        repeated = np.broadcast_to(lanes.symbols, [size or 1 for size in sizes])
        return lanes._replace(symbols=repeated)


_Move = Callable[[LaneMoves, Node, int, Lanes], Lanes | None]
_MOVES: Mapping[str, _Move] = {
    "Expand": LaneMoves.expanded,
    "Gather": LaneMoves.gathered,
    "Reshape": LaneMoves.reshaped,
    "Slice": LaneMoves.sliced,
    "Split": LaneMoves.split,
    "Squeeze": LaneMoves.squeezed,
    "Transpose": LaneMoves.transposed,
    "Unsqueeze": LaneMoves.unsqueezed,
}
# Operators between x and its lanes.
STEPS = frozenset({*_MOVES, "Add", "Concat", "Mul", "Neg", "Sub"}) - {"Expand"}


def rank_of(view: FusionView, value: int) -> int:
    shape = view.graph.shapes.get(value)
    return 0 if shape is None else len(shape)
