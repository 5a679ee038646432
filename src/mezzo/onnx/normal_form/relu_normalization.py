"""Relu normalization: rewrites Max(x, 0), Clip(x, 0, ...) and a Min after them as Relu or Clip.

Target tables list Relu and Clip as fused into the kernel before them, but not Max and Min.
"""

import math
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.normal_form.use_counts import GraphUses
from mezzo.onnx.protos.entries import remove_where
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape

# The first opset in which the bounds of Clip are operands, not attributes.
_BOUNDS_ARE_OPERANDS = 11


class _Clamp(NamedTuple):
    """A clamp of `value` to [low, high]."""

    value: str
    low: float
    high: float

    def then(self, other: "_Clamp") -> "_Clamp":
        low, high = (min(max(bound, other.low), other.high) for bound in (self.low, self.high))
        return _Clamp(self.value, low, high)


def normalize_clamps(
    uses: GraphUses, apart: Set[str], shape_of: Callable[[str], Shape | None]
) -> bool:
    """Rewrite chains of clamps of a graph with lower bound 0 as Relu, or as Clip if bounded above.

    `apart` are results of operators to keep; `shape_of` returns shapes of the original model. True
    if there were any.
    """
    if (default_opset(uses.counts.model) or 0) < _BOUNDS_ARE_OPERANDS:
        return False
    return _Rewriter(uses, apart, shape_of).rewrite()


class _Rewriter:
    def __init__(
        self, uses: GraphUses, apart: Set[str], shape_of: Callable[[str], Shape | None]
    ) -> None:
        self._uses, self._apart, self._shape_of = uses, apart, shape_of

    def rewrite(self) -> bool:
        nodes, is_changed = [*self._uses.graph.node], False
        removed: set[int] = set()
        for node in nodes:
            clamp = None if id(node) in removed else self._clamp_of(node)
            if clamp is None or node.output[0] in self._apart:
                continue
            chain = [node]
            while (successor := self._next(chain[-1])) is not None:
                chain.append(successor[0])
                clamp = clamp.then(successor[1])
            is_normal = len(chain) == 1 and (
                node.op_type == "Relu" or (node.op_type == "Clip" and clamp.high < math.inf)
            )
            if clamp.low == 0.0 < clamp.high and not is_normal:
                self._write(chain, clamp)
                removed.update(map(id, chain[1:]))
                is_changed = True
        remove_where(self._uses.graph.node, lambda node: id(node) in removed)
        return is_changed

    def _next(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, _Clamp] | None:
        """The only user of a node's output and its clamp, if it is one."""
        user = self._uses.sole_user(node.output[0])
        if user is None or user.output[0] in self._apart:
            return None
        clamp = self._clamp_of(user)
        return None if clamp is None or clamp.value != node.output[0] else (user, clamp)

    def _clamp_of(self, node: onnx.NodeProto) -> _Clamp | None:
        """The clamp that a node computes; None if it is none with constant scalar bounds."""
        if node.domain not in DEFAULT:
            return None
        match node.op_type:
            case "Relu":
                return _Clamp(node.input[0], 0.0, math.inf)
            case "Clip":
                low = self._bound(node, 1, -math.inf)
                high = self._bound(node, 2, math.inf)
                if low is None or high is None or low > high:
                    return None
                return _Clamp(node.input[0], low, high)
            case "Max" | "Min" if len(node.input) == 2:
                return self._clamp_to_constant(node)
        return None

    def _bound(self, clip: onnx.NodeProto, position: int, default: float) -> float | None:
        """A bound of a Clip; None if it is computed."""
        is_bounded = len(clip.input) > position and clip.input[position]
        return self._number(clip.input[position]) if is_bounded else default

    def _clamp_to_constant(self, node: onnx.NodeProto) -> _Clamp | None:
        """The clamp of Max or Min with a constant scalar that adds no axes."""
        for value, bound_name in (node.input, reversed(node.input)):
            bound = self._number(bound_name, self._shape_of(value) or ())
            if bound is not None and value not in self._uses.constants:
                is_max = node.op_type == "Max"
                return _Clamp(value, bound if is_max else -math.inf, math.inf if is_max else bound)
        return None

    def _number(self, name: str, shape: Shape = ()) -> float | None:
        """The value of a one-element FP32 constant of at most the rank of `shape`, else None."""
        numbers = self._uses.floats(name)
        if (
            numbers is None
            or numbers.size != 1
            or numbers.ndim > len(shape)
            or np.isnan(numbers).any()
        ):
            return None
        return float(numbers.reshape(-1)[0])

    def _write(self, chain: Sequence[onnx.NodeProto], clamp: _Clamp) -> None:
        """Replace a chain of clamps by one Relu or Clip with the last output."""
        first, last = chain[0], chain[-1]
        name_node(first)
        counts = self._uses.counts
        for node in chain:
            counts.leave(*node.input)
        counts.reads[clamp.value] += 1
        result, operands = last.output[0], [clamp.value]
        if clamp.high < math.inf:
            for word, bound in (("min", clamp.low), ("max", clamp.high)):
                tensor = numpy_helper.from_array(np.array(bound, np.float32))
                operands.append(counts.new_initializer(f"{first.name}.{word}", tensor).name)
        del first.input[:]
        first.input.extend(operands)
        first.output[0] = result
        first.op_type = "Relu" if clamp.high == math.inf else "Clip"
