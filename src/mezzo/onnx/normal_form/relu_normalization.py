"""Relu normalization: rewrites Max(x, 0), Clip(x, 0, ...) and a Min after them as Relu or Clip.

Target tables list Relu and Clip as fused into the kernel before them, but not Max and Min.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.normal_form.use_counts import Constants, UseCounts
from mezzo.onnx.protos.entries import remove_where
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape

# The first opset in which the bounds of Clip are operands, not attributes.
_BOUNDS_ARE_OPERANDS = 11


class _Cut(NamedTuple):
    """A clamp of `value` to [low, high]."""

    value: str
    low: float
    high: float

    def then(self, other: "_Cut") -> "_Cut":
        low, high = (min(max(bound, other.low), other.high) for bound in (self.low, self.high))
        return _Cut(self.value, low, high)


class Cutter:
    """Rewrites clamps in one model, in place.

    `apart` are results of operators to keep; `shape_of` returns shapes of the original model.
    """

    def __init__(
        self, use_counts: UseCounts, apart: Set[str], shape_of: Callable[[str], Shape | None]
    ) -> None:
        self.is_changed = False
        self._ledger, self._apart, self._shape_of = use_counts, apart, shape_of
        self._opset = default_opset(use_counts.model) or 0

    def cut_graph(self, graph: onnx.GraphProto, constants: Constants) -> None:
        """Rewrite chains of clamps with lower bound 0 as Relu, or as Clip if bounded above."""
        if self._opset < _BOUNDS_ARE_OPERANDS:
            return
        nodes = [*graph.node]
        users = {name: node for node in nodes for name in node.input}
        removed: set[int] = set()
        for node in nodes:
            clamp = None if id(node) in removed else self._cut_of(node, constants)
            if clamp is None or node.output[0] in self._apart:
                continue
            chain = [node]
            while (successor := self._next(chain[-1], users, constants)) is not None:
                chain.append(successor[0])
                clamp = clamp.then(successor[1])
            is_normal = len(chain) == 1 and (
                node.op_type == "Relu" or (node.op_type == "Clip" and clamp.high < math.inf)
            )
            if clamp.low == 0.0 < clamp.high and not is_normal:
                self._write(chain, clamp)
                removed.update(map(id, chain[1:]))
        remove_where(graph.node, lambda node: id(node) in removed)

    def _next(
        self, node: onnx.NodeProto, users: Mapping[str, onnx.NodeProto], constants: Constants
    ) -> tuple[onnx.NodeProto, _Cut] | None:
        """The only user of a node's output and its clamp, if it is one."""
        user = self._ledger.sole_user(node.output[0], users)
        clamp = (
            None if user is None or user.output[0] in self._apart else self._cut_of(user, constants)
        )
        return (
            None
            if user is None or clamp is None or clamp.value != node.output[0]
            else (user, clamp)
        )

    def _cut_of(self, node: onnx.NodeProto, constants: Constants) -> _Cut | None:
        """The clamp that a node computes; None if it is none with constant scalar bounds."""
        if node.domain not in DEFAULT:
            return None
        match node.op_type:
            case "Relu":
                return _Cut(node.input[0], 0.0, math.inf)
            case "Clip":
                low, high = (
                    (
                        self._number(node.input[position], constants)
                        if len(node.input) > position and node.input[position]
                        else default
                    )
                    for position, default in ((1, -math.inf), (2, math.inf))
                )
                return (
                    None
                    if low is None or high is None or low > high
                    else _Cut(node.input[0], low, high)
                )
            case "Max" | "Min" if len(node.input) == 2:
                return self._cut_beside(node, constants)
        return None

    def _cut_beside(self, node: onnx.NodeProto, constants: Constants) -> _Cut | None:
        """The clamp of Max or Min with a constant scalar that adds no axes."""
        for value, bound_name in (node.input, reversed(node.input)):
            bound = self._number(bound_name, constants, self._shape_of(value) or ())
            if bound is not None and value not in constants:
                is_max = node.op_type == "Max"
                return _Cut(value, bound if is_max else -math.inf, math.inf if is_max else bound)
        return None

    def _number(self, name: str, constants: Constants, shape: Shape = ()) -> float | None:
        """The value of a one-element FP32 constant of at most the rank of `shape`, else None."""
        numbers = self._ledger.floats(constants.get(name))
        if (
            numbers is None
            or numbers.size != 1
            or numbers.ndim > len(shape)
            or np.isnan(numbers).any()
        ):
            return None
        return float(numbers.reshape(-1)[0])

    def _write(self, chain: Sequence[onnx.NodeProto], clamp: _Cut) -> None:
        """Replace a chain of clamps by one Relu or Clip with the last output."""
        first, last = chain[0], chain[-1]
        name_node(first)
        for node in chain:
            self._ledger.leave(*node.input)
        self._ledger.reads[clamp.value] += 1
        result, operands = last.output[0], [clamp.value]
        if clamp.high < math.inf:
            for word, bound in (("min", clamp.low), ("max", clamp.high)):
                tensor = numpy_helper.from_array(np.array(bound, np.float32))
                operands.append(self._ledger.new_initializer(f"{first.name}.{word}", tensor).name)
        del first.input[:]
        first.input.extend(operands)
        first.output[0] = result
        first.op_type = "Relu" if clamp.high == math.inf else "Clip"
        self.is_changed = True
