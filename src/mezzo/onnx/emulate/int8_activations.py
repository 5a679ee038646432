"""Rounding of activations to INT8 as kernels do that read weights in blocks: per row, and per block
of the summed axis, symmetric, with the largest magnitude at 127. ONNX Runtime's MatMulNBits does so
at accuracy level 4, OpenVINO's CPU plug-in by its dynamic quantization.

Source: runs of ONNX Runtime 1.32 and OpenVINO 2026.4.1 on x86, which differ by FP32's eps.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import onnx

from mezzo.formats.block_storage import ROUNDS_ACTIVATIONS, BlockStorage
from mezzo.ir.weight_reads import weight_reads
from mezzo.onnx.protos.metadata import ACTIVATION_BLOCK, number_of
from mezzo.onnx.protos.node_builder import NodeBuilder
from mezzo.onnx.read.reading import OnnxReading

_HIGHEST = 127.0
# Replaces the largest magnitude of a block of zeros.
_TINY = 2.0**-100
# Adding and subtracting it rounds a smaller FP32 number to nearest even, at any opset.
_ROUNDER = 1.5 * 2.0**23
_PAD_INPUTS_SINCE = 11


class SummedAxis(NamedTuple):
    """The axis over which a product sums: its elements, and those of a block."""

    length: int
    block: int


def int8_products(
    reading: OnnxReading, in_blocks: Mapping[int, BlockStorage]
) -> dict[int, SummedAxis]:
    """The products, by node id, of weights for whose kernels activations are rounded."""
    products = {}
    for value, storage in in_blocks.items():
        if not storage.rounded_activations:
            continue
        length = reading.handles.tensors[value].dims[storage.axis]
        for use, _ in weight_reads(reading.graph, value):
            if use.operand == 1:  # not the table of a Gather
                products[use.node] = SummedAxis(length, storage.rounded_activations)
    return products


def summed_axis(node: onnx.NodeProto) -> SummedAxis | None:
    """Of a product in a file whose activations are rounded; None of other operators."""
    block = number_of(node, ACTIVATION_BLOCK)
    if block and node.op_type in ("Gemm", "MatMul", "MatMulNBits"):
        return SummedAxis(block, block)
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type != "MatMulNBits" or numbers.get("accuracy_level") != ROUNDS_ACTIVATIONS:
        return None
    return SummedAxis(numbers["K"], numbers["block_size"])


def round_operand(
    node: onnx.NodeProto, axis: SummedAxis | None, opset: int, fresh: Callable[[], str]
) -> list[onnx.NodeProto]:
    """Nodes that round the activations of a product, which then reads them; none without `axis`."""
    if axis is None:
        return []
    nodes = _round_activations(node.input[0], axis, opset, fresh)
    node.input[0] = nodes[-1].output[0]
    return nodes


def _round_activations(
    source: str, axis: SummedAxis, opset: int, fresh: Callable[[], str]
) -> list[onnx.NodeProto]:
    """Nodes that round an FP32 value of shape [..., length]; the last one has the result."""
    length, block = axis
    work = NodeBuilder(fresh)

    def reshape(value: str, *dims: int) -> str:
        return work.add("Reshape", value, work.constant(dims, np.int64))

    def extend(value: str, count: int) -> str:
        """Add columns of zeros to a matrix, or cut off columns."""
        ends = [0, 0, 0, count]
        if opset < _PAD_INPUTS_SINCE:
            return work.add("Pad", value, pads=ends)
        return work.add("Pad", value, work.constant(ends, np.int64))

    filling = -length % block
    matrix = reshape(source, -1, length)
    blocks = reshape(extend(matrix, filling) if filling else matrix, -1, 1, block)
    largest = work.add("GlobalMaxPool", work.add("Abs", blocks))
    largest = work.add("Max", largest, work.constant(_TINY, np.float32))
    highest = work.constant(_HIGHEST, np.float32)
    scales = work.add("Div", largest, highest)
    # Ties depend on the order: the kernel multiplies by the reciprocal scale.
    exact = work.add("Mul", blocks, work.add("Div", highest, largest))
    rounder = work.constant(_ROUNDER, np.float32)
    steps = work.add("Sub", work.add("Add", exact, rounder), rounder)
    rounded = reshape(work.add("Mul", steps, scales), -1, length + filling)
    rounded = extend(rounded, -filling) if filling else rounded
    work.add("Reshape", rounded, work.add("Shape", source))
    return work.nodes
