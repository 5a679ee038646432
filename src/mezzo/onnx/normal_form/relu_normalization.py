"""Relu in other words: Max with zero, Clip from zero on, Min behind them. Said as runtimes know it.

Rows of targets take Relu and Clip into the kernel before them; of Max and Min they know nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.normal_form.use_counts import Constants, UseCounts
from mezzo.onnx.read.origins import name_node, title_of
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape

# Before it the bounds of Clip are attributes.
_BOUNDS_ARE_OPERANDS = 11


class _Cut(NamedTuple):
    """What lies outside of two bounds becomes the bound; `value` is what is cut."""

    value: str
    low: float
    high: float

    def then(self, other: "_Cut") -> "_Cut":
        low, high = (min(max(bound, other.low), other.high) for bound in (self.low, self.high))
        return _Cut(self.value, low, high)


class Cutter:
    """Rewrites what cuts in one model, which it changes.

    `apart` are results of operators that stay; `shape_of` knows shapes of the model as it came.
    """

    def __init__(self, use_counts: UseCounts, apart: Set[str], shape_of: Callable[[str], Shape | None]) -> None:
        self.is_changed = False
        self._ledger, self._apart, self._shape_of = use_counts, apart, shape_of
        self._opset = default_opset(use_counts.model) or 0

    def cut_graph(self, graph: onnx.GraphProto, constants: Constants) -> None:
        """Say what cuts at zero as Relu, at zero and above it as Clip, and once what is said twice."""
        if self._opset < _BOUNDS_ARE_OPERANDS:
            return
        nodes = [*graph.node]
        users = {name: node for node in nodes for name in node.input}
        gone: set[int] = set()
        for node in nodes:
            cut = None if id(node) in gone else self._cut_of(node, constants)
            if cut is None or node.output[0] in self._apart:
                continue
            row = [node]
            while (following := self._next(row[-1], users, constants)) is not None:
                row.append(following[0])
                cut = cut.then(following[1])
            is_said = len(row) == 1 and (node.op_type == "Relu" or (node.op_type == "Clip" and cut.high < math.inf))
            if cut.low == 0.0 < cut.high and not is_said:
                self._write(row, cut)
                gone.update(map(id, row[1:]))
        for position in reversed(range(len(nodes))):
            if id(nodes[position]) in gone:
                del graph.node[position]

    def _next(
        self, node: onnx.NodeProto, users: Mapping[str, onnx.NodeProto], constants: Constants
    ) -> tuple[onnx.NodeProto, _Cut] | None:
        """The node that alone reads what a node makes, and cuts it."""
        user = self._ledger.sole_user(node.output[0], users)
        cut = None if user is None or user.output[0] in self._apart else self._cut_of(user, constants)
        return None if user is None or cut is None or cut.value != node.output[0] else (user, cut)

    def _cut_of(self, node: onnx.NodeProto, constants: Constants) -> _Cut | None:
        """What a node cuts, and where; None where that is not one pair of numbers."""
        if node.domain not in DEFAULT:
            return None
        match node.op_type:
            case "Relu":
                return _Cut(node.input[0], 0.0, math.inf)
            case "Clip":
                low, high = (
                    self._number(node.input[at], constants) if len(node.input) > at and node.input[at] else default
                    for at, default in ((1, -math.inf), (2, math.inf))
                )
                return None if low is None or high is None or low > high else _Cut(node.input[0], low, high)
            case "Max" | "Min" if len(node.input) == 2:
                return self._cut_beside(node, constants)
        return None

    def _cut_beside(self, node: onnx.NodeProto, constants: Constants) -> _Cut | None:
        """What Max or Min cuts: the operand beside a constant of one number, which makes no more axes of it."""
        for value, other in (node.input, reversed(node.input)):
            bound = self._number(other, constants, self._shape_of(value) or ())
            if bound is not None and value not in constants:
                is_max = node.op_type == "Max"
                return _Cut(value, bound if is_max else -math.inf, math.inf if is_max else bound)
        return None

    def _number(self, name: str, constants: Constants, beside: Shape = ()) -> float | None:
        """The one number of a constant in FP32, of no more axes than what stands beside it."""
        numbers = self._ledger.floats(constants.get(name))
        if numbers is None or numbers.size != 1 or numbers.ndim > len(beside) or np.isnan(numbers).any():
            return None
        return float(numbers.reshape(-1)[0])

    def _write(self, row: Sequence[onnx.NodeProto], cut: _Cut) -> None:
        """Let the first of some nodes do what all do."""
        first, last = row[0], row[-1]
        name_node(first, title_of(first))
        for node in row:
            self._ledger.leave(*node.input)
        self._ledger.reads[cut.value] += 1
        made, operands = last.output[0], [cut.value]
        if cut.high < math.inf:
            for word, bound in (("min", cut.low), ("max", cut.high)):
                tensor = numpy_helper.from_array(np.array(bound, np.float32))
                operands.append(self._ledger.new_initializer(f"{first.name}.{word}", tensor).name)
        del first.input[:]
        first.input.extend(operands)
        first.output[0] = made
        first.op_type = "Relu" if cut.high == math.inf else "Clip"
        self.is_changed = True
