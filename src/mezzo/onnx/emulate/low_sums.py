"""Sums of reductions, pools and softmax in a low format, as a target's kernels make them.

A sum of n terms in `lanes` accumulators: each takes every lanes-th term and is rounded after each,
then they are added in pairs. The count that a mean divides by is rounded too: 65,536 is infinite in
FP16. Where the axes are not known to be the last ones, and within a window of AveragePool, the sum
is rounded once, which shows overflow but not the rounding of each addition.

Covers operators of the default domain; MatMul, Gemm and Conv are in tiles.py.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto

from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import DType
from mezzo.onnx.emulate.tiles import ShapeOf, can_tile, is_tiled, tile
from mezzo.onnx.protos.lowcast import round_nodes
from mezzo.onnx.protos.node_builder import NodeBuilder
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.types import TO_ONNX
from mezzo.tables.sums import LowSum

_AXES_AS_INPUT = 18  # the first opset in which the axes of all reductions are an operand
_TERMS = {"ReduceL1": "Abs", "ReduceLogSumExp": "Exp"}
_RESULTS = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}
_SQUARES = frozenset({"ReduceL2", "ReduceSumSquare"})


def has_low_sum(node: onnx.NodeProto, accumulation: Accumulation, dtype: DType) -> bool:
    """Whether an operator that runs in a format sums in the format of the accumulation."""
    if accumulation.kernels is None:
        return is_tiled(node)
    return node.domain in DEFAULT and _row_of(node, accumulation, dtype) is not None


def sum_low(
    node: onnx.NodeProto,
    accumulation: Accumulation,
    dtype: DType,
    fresh: Callable[[], str],
    shape_of: ShapeOf,
    opset: int,
) -> list[onnx.NodeProto]:
    """Build the nodes that replace an FP32 operator which has a low sum (opset 13 or newer)."""
    if accumulation.kernels is None:
        return tile(node, accumulation, fresh, shape_of)
    row = _row_of(node, accumulation, dtype)
    assert row is not None, "the operator was asked for"
    if can_tile(node):
        own = Accumulation(row.dtype, row.tile)
        return tile(node, own, fresh, shape_of, is_bounded=True)
    work = _LowSums(fresh=fresh, row=row, opset=opset)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    match node.op_type:
        case "Softmax":
            result = work.softmax(node.input[0], attributes.get("axis", -1))
        case "GlobalAveragePool":
            result = work.global_mean(node)
        case "AveragePool":
            result = work.mean_of_windows(node, attributes["kernel_shape"])
        case _:
            result = work.reduction(node)
    return [*work.nodes, onnx.helper.make_node("Identity", [result], [node.output[0]])]


def _row_of(node: onnx.NodeProto, accumulation: Accumulation, dtype: DType) -> LowSum | None:
    rows = accumulation.kernels or ()
    return next((row for row in rows if row.dtype is dtype and node.op_type in row.ops), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LowSums(NodeBuilder):
    """Builder of the nodes of one operator, for a model of that opset."""

    row: LowSum
    opset: int

    def reduction(self, node: onnx.NodeProto) -> str:
        """A Reduce operator: its terms, their sum and the function of the sum."""
        op, terms = node.op_type, node.input[0]
        if op in _SQUARES:
            terms = self.rounded(self.add("Mul", terms, terms))
        elif op in _TERMS:
            terms = self.rounded(self.add(_TERMS[op], terms))
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        axes = attributes.pop("axes", None)
        operands = [name for name in node.input[1:2] if name]
        if axes is not None:
            operands = [self.constant(list(axes), np.int64)]
        exact = self.add("ReduceSum", terms, *operands, **attributes)
        last = _count_last(axes)
        if last is None:
            total = self.rounded(exact)
        else:
            flat = self.add("Flatten", terms, axis=-last)
            total = self.add("Reshape", self.sum_rows(flat), self.add("Shape", exact))
        if op == "ReduceMean":
            return self.add("Div", total, self.rounded_count(terms, exact))
        return self.add(_RESULTS[op], total) if op in _RESULTS else total

    def global_mean(self, node: onnx.NodeProto) -> str:
        """GlobalAveragePool."""
        source = node.input[0]
        exact = self.add("GlobalAveragePool", source)
        total = self.sum_rows(self.add("Flatten", source, axis=2))
        total = self.add("Reshape", total, self.add("Shape", exact))
        return self.add("Div", total, self.rounded_count(source, exact))

    def mean_of_windows(self, node: onnx.NodeProto, kernel: Sequence[int]) -> str:
        """AveragePool. Windows at the border count as whole."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.output[:] = [self.fresh()]
        self.nodes.append(copy)
        count = self.constant(math.prod(kernel), np.float32)
        total = self.rounded(self.add("Mul", copy.output[0], count))
        return self.add("Div", total, self.rounded(count))

    def softmax(self, source: str, axis: int) -> str:
        """Softmax: exponentials of differences from the maximum, and their sum."""
        axes = self.constant([axis], np.int64)
        if self.opset < _AXES_AS_INPUT:
            largest = self.add("ReduceMax", source, axes=[axis])
        else:
            largest = self.add("ReduceMax", source, axes)
        terms = self.rounded(self.add("Exp", self.rounded(self.add("Sub", source, largest))))
        if axis != -1:
            return self.add("Div", terms, self.rounded(self.add("ReduceSum", terms, axes)))
        total = self.sum_rows(self.add("Flatten", terms, axis=-1))
        return self.add("Div", terms, self.add("Reshape", total, self.add("Shape", largest)))

    def sum_rows(self, terms: str) -> str:
        """The sum of each row of a matrix."""
        one, lanes = self.constant([1], np.int64), self.constant([self.row.lanes], np.int64)
        zero = self.constant([0], np.int64)
        shape = self.add("Shape", terms)
        rows = self.add("Slice", shape, zero, one)
        length = self.add("Slice", shape, one, self.constant([2], np.int64))
        least = self.constant([self.row.least_terms], np.int64)
        width = self.add("Where", self.add("Less", length, least), one, lanes)
        steps = self.add("Div", self.add("Add", length, self.add("Sub", width, one)), width)
        missing = self.add("Sub", self.add("Mul", steps, width), length)
        padding = self.add("Concat", zero, zero, zero, missing, axis=0)
        padded = self.add("Pad", terms, padding)
        parts = self.add("Reshape", padded, self.add("Concat", rows, steps, width, axis=0))
        parts = self.add("Transpose", parts, perm=[1, 0, 2])
        start = self.add("ConstantOfShape", self.add("Concat", rows, width, axis=0))
        total = self.add("Scan", start, parts, body=self._addition(), num_scan_inputs=1)
        idle = self.add("Concat", zero, zero, zero, self.add("Sub", lanes, width), axis=0)
        total = self.add("Pad", total, idle)
        half = self.row.lanes // 2
        while half:
            middle = self.constant([half], np.int64)
            end = self.constant([2 * half], np.int64)
            first = self.add("Slice", total, zero, middle, one)
            second = self.add("Slice", total, middle, end, one)
            total = self.rounded(self.add("Add", first, second))
            half //= 2
        return total

    def _addition(self) -> onnx.GraphProto:
        """The body of a Scan over terms: adds one to each accumulator."""
        body = replace(self, nodes=[])
        before, term = self.fresh(), self.fresh()
        after = body.rounded(body.add("Add", before, term))
        ports = [
            onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None])
            for name in (before, term, after)
        ]
        return onnx.helper.make_graph(body.nodes, "addition", ports[:2], ports[2:])

    def rounded_count(self, source: str, result: str) -> str:
        """The number of elements for each result, as a low float."""
        one = self.constant(1, np.int64)
        count = self.add("Max", self.add("Size", result), one)
        return self.rounded(
            self.cast(self.add("Div", self.add("Size", source), count), TensorProto.FLOAT)
        )

    def rounded(self, source: str) -> str:
        result = self.fresh()
        self.nodes.extend(round_nodes(source, result, TO_ONNX[self.row.dtype], self.fresh))
        return result


def _count_last(axes: Sequence[int] | None) -> int | None:
    """The number of axes, if they are known to be the last ones."""
    if axes is None or sorted(axes) != list(range(-len(axes), 0)):
        return None
    return len(axes)
