"""Epilogues of quantized kernels: the bias that is added in INT32, and the operators fused after
it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mezzo.analysis.fusion.composites import composites_of
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.quantization import Quantization
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.tables.quantized_kernels import Bias, QuantizedKernel

# The optional bias operand of a matmul or convolution.
BIAS = 2


class Offset(NamedTuple):
    """A constant that a unit adds in INT32, scaled by the product of its operands' scales."""

    use: Use
    value: int


@dataclass(frozen=True, slots=True)
class Epilogues:
    """The epilogues of quantized kernels in a graph. `may_run`: per node, whether it may be
    quantized; `known`: quantization parameters by value id, None before calibration.
    """

    view: FusionView
    may_run: Sequence[bool]
    known: Mapping[int, Quantization] | None

    def offset(self, node: Node, kernel: QuantizedKernel) -> Offset | None:
        """The bias operand of a matmul or convolution, if it has to be stored in INT32; else
        None.
        """
        value = self.view.operand(node, BIAS) if kernel.bias is Bias.INT32 else None
        is_stored = value is not None and self.view.finite_weight(value) is not None
        return Offset(Use(node.id, BIAS), value) if value is not None and is_stored else None

    def added(self, node: Node) -> tuple[Node, Offset] | None:
        """The Add of a constant bias after a matmul or convolution; else None."""
        use = self._sole_use(node)
        reader = None if use is None else self.view.graph.nodes[use.node]
        if use is None or reader is None or reader.op != "Add" or not self.may_run[reader.id]:
            return None
        other = 1 - use.operand
        value = reader.inputs[other]
        if value is None or self.view.finite_weight(value) is None:
            return None
        is_vector = len(self.view.graph.shapes.get(value) or ()) == 1
        return (reader, Offset(Use(reader.id, other), value)) if is_vector else None

    def following(self, node: Node, kernel: QuantizedKernel) -> Iterator[tuple[int, ...]]:
        """The epilogue after a node, step by step; the last node of a step has its result."""
        step = self._step(node, kernel) if kernel.followers else ()
        while step:
            yield step
            step = self._step(self.view.graph.nodes[step[-1]], kernel)

    def sole_reader(self, node: Node) -> Node | None:
        """The only reader of a node's output, if it is an operator of one output in its scope."""
        use = self._sole_use(node)
        return None if use is None else self.view.graph.nodes[use.node]

    def _step(self, node: Node, kernel: QuantizedKernel) -> tuple[int, ...]:
        """The nodes of the operator or decomposed activation fused after a node; or empty."""
        composite = self._composite(node, kernel)
        use = None if composite else self._sole_use(node)
        if use is None:
            return composite
        reader = self.view.graph.nodes[use.node]
        if self.view.op(reader) not in kernel.followers or not self.may_run[reader.id]:
            return ()
        others = (value for at, value in enumerate(reader.inputs) if at != use.operand)
        if not all(value is None or self._is_per_channel(value) for value in others):
            return ()
        return () if kernel.is_cut and not self._is_kept(reader) else (reader.id,)

    def _composite(self, node: Node, kernel: QuantizedKernel) -> tuple[int, ...]:
        """The nodes of a decomposed activation, the only reader of `node`; or empty."""
        value = node.outputs[0]
        if value is None:
            return ()
        for composite in composites_of(self.view).get(value, ()):
            is_alone = all(use.node in composite.nodes for use in self.view.graph.uses[value])
            if (
                composite.name in kernel.followers
                and is_alone
                and all(self.may_run[n] for n in composite.nodes)
            ):
                return (*sorted(composite.nodes - {composite.end.id}), composite.end.id)
        return ()

    def _sole_use(self, node: Node) -> Use | None:
        """The only use of a node's output, by an operator of one output in the same scope; else
        None.
        """
        graph, value = self.view.graph, node.outputs[0]
        if value is None or len(graph.uses[value]) != 1 or not graph.values[value].is_castable:
            return None
        (use,) = graph.uses[value]
        reader = graph.nodes[use.node]
        is_operator = reader.kind is Kind.OP and len(reader.outputs) == 1
        is_near = reader.scope == node.scope and use not in graph.aliased
        return use if is_operator and is_near else None

    def _is_per_channel(self, value: int) -> bool:
        """Whether a constant is a scalar or varies along one axis: all other axes have length 1."""
        shape = self.view.graph.shapes.get(value)
        return (
            self.view.is_constant(value)
            and shape is not None
            and sum(size != 1 for size in shape) <= 1
        )

    def _is_kept(self, node: Node) -> bool:
        """Whether saturation to the integer range replaces a Relu or Clip: the quantized range is
        within its bounds.
        """
        value = node.outputs[0]
        parameters = None if self.known is None or value is None else self.known.get(value)
        if parameters is None:
            return self.known is None
        low, high = (
            (0.0, math.inf) if node.op == "Relu" else (self._bound(node, 1), self._bound(node, 2))
        )
        if low is None or high is None:
            return False
        first, last = (
            (end - parameters.zero_points[0]) * parameters.scales[0] for end in parameters.span
        )
        step = parameters.scales[0] / 2  # half a quantization step, below which ends count as equal
        return first >= low - step and last <= high + step

    def _bound(self, node: Node, operand: int) -> float | None:
        """A bound of a Clip; infinite without one, None if it is not constant."""
        if self.view.operand(node, operand) is None:
            return math.inf if operand > 1 else -math.inf
        return self.view.number(node, operand)
