"""Tiled low-precision accumulation in MatMul, Gemm and Conv, as in hardware with FP16 accumulators.

The contracted axis is split into tiles of `tile` steps; the last may be shorter. Products within a
tile are summed in FP32, and the accumulator is rounded after each tile: acc = r(acc + partial),
from acc = 0. Gemm's alpha * acc + beta * C and Conv's bias follow in FP32. Conv contracts input
channels and kernel positions: a tile has as many whole channels as fit, at least one. Each group of
a grouped Conv is split in the same way.

Covers MatMul, Gemm and Conv of the default domain, and ConvTranspose where a target's table names
it: it contracts input channels, of which a tile has at least one. Einsum, Attention, recurrent and
reducing operators, and fused operators of other domains (FusedMatMul, FusedGemm) use FP32 sums.
Kernels of a target that sum otherwise are in low_sums.py.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from mezzo.contracts.plans import Accumulation
from mezzo.onnx.protos.lowcast import round_nodes
from mezzo.onnx.protos.node_builder import NodeBuilder
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.types import TO_ONNX

# Dimensions of a value, None for an unknown one; None alone for an unknown rank.
Shape = Sequence[int | None] | None
ShapeOf = Callable[[str], Shape]
_MOST_UNROLLED = 32
# Bounds of the work on one bounded sum: tiles at least, and elements that all tiles' results hold.
_LEAST_TILES, _MOST_ELEMENTS = 64, 1 << 26


def is_tiled(node: onnx.NodeProto) -> bool:
    """Whether the operator is one whose sums can be tiled."""
    return node.domain in DEFAULT and node.op_type in ("MatMul", "Gemm", "Conv")


def can_tile(node: onnx.NodeProto) -> bool:
    """Whether `tile` covers an operator of a target's table."""
    return is_tiled(node) or node.op_type == "ConvTranspose"


def tile(
    node: onnx.NodeProto,
    accumulation: Accumulation,
    fresh: Callable[[], str],
    shape_of: ShapeOf,
    *,
    is_bounded: bool = False,
) -> list[onnx.NodeProto]:
    """Build the nodes that replace an FP32 MatMul, Gemm or Conv (opset 13 or newer).

    `shape_of` returns an operand's shape. Up to 32 tiles of a known length are unrolled; otherwise
    a Loop iterates over tiles. `is_bounded`: tiles are longer where the result is so large that
    single terms would take minutes. `node` is not changed.
    """
    work = _Work(fresh)
    match node.op_type:
        case "MatMul":
            parts: _Parts = _MatMul(node, shape_of)
        case "Gemm":
            parts = _Gemm(node, shape_of)
        case "ConvTranspose":
            parts = _ConvTranspose(node, shape_of)
        case _:
            parts = _Conv(node, shape_of)
    low = TO_ONNX[accumulation.dtype]
    length, step = parts.length, parts.step(accumulation.tile)
    if length is not None and step is not None and length <= step * _MOST_UNROLLED:
        total = _unroll(parts, work, low, length, step)
    else:
        total = _loop(parts, work, low, accumulation.tile, is_bounded=is_bounded)
    parts.finish(work, total, node.output[0])
    return work.nodes


def _unroll(parts: "_Parts", work: "_Work", low: int, length: int, step: int) -> str:
    if length <= step:
        return work.round(parts.whole(work), low)
    total = ""
    for start in range(0, length, step):
        partial = parts.partial(
            work, work.integers(start), work.integers(min(start + step, length))
        )
        total = work.round(work.add("Add", total, partial) if total else partial, low)
    return total


def _loop(parts: "_Parts", work: "_Work", low: int, tile_length: int, *, is_bounded: bool) -> str:
    length = parts.length_node(work)
    step = parts.step_node(work, tile_length)
    one = work.integer(1)
    if is_bounded:
        elements = work.add("Max", work.add("Size", parts.whole(work)), one)
        most = work.add("Div", work.integer(_MOST_ELEMENTS), elements)
        most = work.add("Max", most, work.integer(_LEAST_TILES))
        step = work.add("Max", step, work.add("Div", length, most))
    trips = work.add("Div", work.add("Add", length, work.add("Sub", step, one)), step)
    trips = work.add("Max", trips, one)  # an empty axis has one empty tile
    body = _Work(work.fresh)
    index, goes_on, before = work.fresh(), work.fresh(), work.fresh()
    start = body.add("Mul", index, step)
    end = body.add("Min", body.add("Add", start, step), length)
    vector = body.integers(1)
    partial = parts.partial(
        body, body.add("Reshape", start, vector), body.add("Reshape", end, vector)
    )
    after = body.round(body.add("Add", before, partial), low)
    still = body.add("Identity", goes_on)
    graph = onnx.helper.make_graph(
        body.nodes,
        "tile",
        [
            _port(index, TensorProto.INT64),
            _port(goes_on, TensorProto.BOOL),
            _port(before, TensorProto.FLOAT),
        ],
        [_port(still, TensorProto.BOOL), _port(after, TensorProto.FLOAT)],
    )
    # -0.0 is the neutral element: -0.0 + x is x even for x = -0.0.
    nothing = work.constant(-0.0, np.float32)
    always = work.constant(True, np.bool_)
    return work.add("Loop", trips, always, nothing, body=graph)


def _port(name: str, element: int) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(
        name, element, [] if element != TensorProto.FLOAT else None
    )


class _Work(NodeBuilder):
    __slots__ = ()

    def like(self, node: onnx.NodeProto, inputs: Sequence[str], dropped: Sequence[str] = ()) -> str:
        """A copy of the operator with other inputs, without the attributes `dropped`."""
        attributes = [attribute for attribute in node.attribute if attribute.name not in dropped]
        copy = onnx.NodeProto(
            op_type=node.op_type, input=inputs, output=[self.fresh()], attribute=attributes
        )
        self.nodes.append(copy)
        return str(copy.output[0])

    def integers(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)

    def integer(self, number: int) -> str:
        return self.constant(number, np.int64)

    def slice(self, source: str, start: str, end: str, axes: str) -> str:
        return self.add("Slice", source, start, end, axes)

    def length(self, source: str, axis: int) -> str:
        """Length of one axis, a scalar."""
        return self.add("Gather", self.add("Shape", source), self.integer(axis))

    def round(self, source: str, low: int) -> str:
        self.nodes.extend(round_nodes(source, result := self.fresh(), low, self.fresh))
        return result


class _Parts:
    """Tiling of one operator: its contracted axis, and the sum over a part of that axis."""

    def __init__(self, node: onnx.NodeProto, shape_of: ShapeOf) -> None:
        self.node = node
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.first, self.second = node.input[0], node.input[1]
        self.extra = node.input[2] if len(node.input) > 2 else ""
        self.shapes = shape_of(self.first), shape_of(self.second)

    length: int | None = None

    def step(self, tile_length: int) -> int | None:
        """Steps of the contracted axis per tile; None if known only at run time."""
        return tile_length

    def length_node(self, work: _Work) -> str:
        """Name of the contracted axis' length, a scalar computed at run time."""
        raise NotImplementedError

    def step_node(self, work: _Work, tile_length: int) -> str:
        return work.integer(tile_length)

    def whole(self, work: _Work) -> str:
        """The whole sum as one tile."""
        return work.like(self.node, [self.first, self.second])

    def partial(self, work: _Work, start: str, end: str) -> str:
        """The sum from `start` to `end`, integer vectors of one element."""
        raise NotImplementedError

    def finish(self, work: _Work, total: str, result: str) -> None:
        """Compute the operator's output, named `result`, from the sum."""
        work.nodes.append(onnx.helper.make_node("Identity", [total], [result]))


class _MatMul(_Parts):
    def __init__(self, node: onnx.NodeProto, shape_of: ShapeOf) -> None:
        super().__init__(node, shape_of)
        first, second = self.shapes
        lengths = [
            shape[axis]
            for shape, axis in ((first, -1), (second, -2))
            if shape and len(shape) >= -axis
        ]
        if second and len(second) == 1:
            lengths.append(second[0])
        self.length = next((length for length in lengths if length is not None), None)

    def length_node(self, work: _Work) -> str:
        return work.length(self.first, -1)

    def partial(self, work: _Work, start: str, end: str) -> str:
        if self.shapes[1] is not None:
            axis = work.integers(-min(len(self.shapes[1]), 2))
        else:  # unknown rank: axis -2, or -1 of a vector
            rank = work.add("Shape", work.add("Shape", self.second))
            axis = work.add("Neg", work.add("Min", rank, work.integers(2)))
        cut = (
            work.slice(self.first, start, end, work.integers(-1)),
            work.slice(self.second, start, end, axis),
        )
        return work.like(self.node, cut)


class _Gemm(_Parts):
    def __init__(self, node: onnx.NodeProto, shape_of: ShapeOf) -> None:
        super().__init__(node, shape_of)
        self.axes = (
            0 if self.attributes.get("transA") else 1,
            1 if self.attributes.get("transB") else 0,
        )
        lengths = [
            shape[axis]
            for shape, axis in zip(self.shapes, self.axes, strict=True)
            if shape is not None
        ]
        self.length = next((length for length in lengths if length is not None), None)

    def length_node(self, work: _Work) -> str:
        return work.length(self.first, self.axes[0])

    def whole(self, work: _Work) -> str:
        return work.like(self.node, [self.first, self.second], dropped=("alpha", "beta"))

    def partial(self, work: _Work, start: str, end: str) -> str:
        cut = [
            work.slice(source, start, end, work.integers(axis))
            for source, axis in zip((self.first, self.second), self.axes, strict=True)
        ]
        return work.like(self.node, cut, dropped=("alpha", "beta"))

    def finish(self, work: _Work, total: str, result: str) -> None:
        alpha, beta = self.attributes.get("alpha", 1.0), self.attributes.get("beta", 1.0)
        if alpha != 1.0:
            total = work.add("Mul", total, work.constant(alpha, np.float32))
        if self.extra and beta != 0.0:
            extra = self.extra
            if beta != 1.0:
                extra = work.add("Mul", extra, work.constant(beta, np.float32))
            total = work.add("Add", total, extra)
        super().finish(work, total, result)


class _Conv(_Parts):
    def __init__(self, node: onnx.NodeProto, shape_of: ShapeOf) -> None:
        super().__init__(node, shape_of)
        self.groups = int(self.attributes.get("group", 1))
        weight = self.shapes[1]
        kernel = self.attributes.get("kernel_shape") or (None if weight is None else weight[2:])
        self.positions = math.prod(kernel) if kernel is not None and None not in kernel else None
        self.length = None if weight is None else weight[1]

    def step(self, tile_length: int) -> int | None:
        return None if self.positions is None else max(1, tile_length // max(1, self.positions))

    def length_node(self, work: _Work) -> str:
        return work.length(self.second, 1)

    def step_node(self, work: _Work, tile_length: int) -> str:
        step = self.step(tile_length)
        if step is not None:
            return work.integer(step)
        lengths = work.slice(
            work.add("Shape", self.second), work.integers(2), work.integers(2**31), work.integers(0)
        )
        positions = work.add("ReduceProd", lengths, keepdims=0)
        one = work.integer(1)
        return work.add(
            "Max", work.add("Div", work.integer(tile_length), work.add("Max", positions, one)), one
        )

    def partial(self, work: _Work, start: str, end: str) -> str:
        weight = work.slice(self.second, start, end, work.integers(1))
        data = self._channels(work, self.first, 1, start, end)
        return work.like(self.node, [data, weight])

    def _channels(self, work: _Work, source: str, axis: int, start: str, end: str) -> str:
        """The channels from `start` to `end` of every group, which lie along an axis."""
        if self.groups == 1:
            return work.slice(source, start, end, work.integers(axis))
        scalar = work.integers()
        ends = [work.add("Reshape", place, scalar) for place in (start, end)]
        within = work.add("Range", *ends, work.integer(1))
        groups = work.constant(np.arange(self.groups)[:, None], np.int64)
        firsts = work.add("Mul", groups, self.length_node(work))
        places = work.add("Reshape", work.add("Add", firsts, within), work.integers(-1))
        return work.add("Gather", source, places, axis=axis)

    def finish(self, work: _Work, total: str, result: str) -> None:
        if self.extra:
            rank = work.add("Shape", work.add("Shape", self.second))
            ones = onnx.helper.make_tensor("value", TensorProto.INT64, [1], [1])
            spatial = work.add(
                "ConstantOfShape", work.add("Sub", rank, work.integers(2)), value=ones
            )
            column = work.add(
                "Reshape", self.extra, work.add("Concat", work.integers(-1), spatial, axis=0)
            )
            total = work.add("Add", total, column)
        super().finish(work, total, result)


class _ConvTranspose(_Conv):
    """The filter is [input channels, output channels of a group, ...kernel]."""

    def __init__(self, node: onnx.NodeProto, shape_of: ShapeOf) -> None:
        super().__init__(node, shape_of)
        weight = self.shapes[1]
        channels = None if weight is None else weight[0]
        self.length = None if channels is None else channels // self.groups

    def length_node(self, work: _Work) -> str:
        return work.add("Div", work.length(self.second, 0), work.integer(self.groups))

    def step_node(self, work: _Work, tile_length: int) -> str:
        step = self.step(tile_length)
        return work.integer(1 if step is None else step)

    def partial(self, work: _Work, start: str, end: str) -> str:
        data = self._channels(work, self.first, 1, start, end)
        return work.like(self.node, [data, self._channels(work, self.second, 0, start, end)])
