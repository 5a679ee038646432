"""Correctly rounded casts from FP64 and wide integers to FP16 or BF16, without double rounding.

Runtimes cast these types through FP32, which rounds twice. The result differs from a single
rounding only where the FP32 value lies exactly midway between two neighbours in the low format
while the original does not. The nodes built here then select the neighbour on the original's
side. All steps are exact in FP64.
"""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from mezzo.onnx.protos.node_builder import NodeBuilder

# The next value after the largest finite one if the exponent range went on: replaces infinity.
_EDGE: dict[int, float] = {TensorProto.FLOAT16: 2.0**16, TensorProto.BFLOAT16: 2.0**128}
# FP32 represents every integer in FP16's range exactly, so integers reach FP16 with one rounding.
_TWICE_ROUNDED: dict[int, frozenset[str]] = {
    TensorProto.FLOAT16: frozenset({"tensor(double)"}),
    TensorProto.BFLOAT16: frozenset(
        {"tensor(double)", "tensor(int32)", "tensor(uint32)", "tensor(int64)", "tensor(uint64)"}
    ),
}
# Integers that FP64 may have to round.
_BEYOND_DOUBLE = {"tensor(int64)": TensorProto.INT64, "tensor(uint64)": TensorProto.UINT64}
_FIRST_OPSET = 9  # Where; BF16 came later


def rounds_twice(text: str, low: int, opset: int) -> bool:
    """Whether a cast of this type to `low` rounds twice in runtimes and `narrow` can correct it."""
    return opset >= _FIRST_OPSET and text in _TWICE_ROUNDED[low]


def narrow(source: str, text: str, low: int, fresh: Callable[[], str]) -> list[onnx.NodeProto]:
    """Build nodes whose last output is an FP32 value that rounds to `low` as `source` would.

    `text` is the ONNX type string of `source`.
    """
    work = NodeBuilder(fresh)
    wide = source if text == "tensor(double)" else work.cast(source, TensorProto.DOUBLE)
    single = work.cast(wide, TensorProto.FLOAT)
    middle = work.cast(single, TensorProto.DOUBLE)
    rest = work.add("Sub", wide, middle)
    if text in _BEYOND_DOUBLE:
        rest = work.add("Add", rest, _lost_by_double(work, source, wide, _BEYOND_DOUBLE[text]))
    edge = work.constant(_EDGE[low], np.float64)
    lowest = work.constant(-_EDGE[low], np.float64)
    nearest = work.add("Max", work.add("Min", _pass_through(work, single, low), edge), lowest)
    gap = work.add("Sub", middle, nearest)
    # Mirroring the nearest value at the middle yields the other neighbour, but only for a midpoint.
    mirrored = work.add("Add", middle, gap)
    other = work.cast(mirrored, TensorProto.FLOAT)
    drift = work.add("Abs", work.add("Sub", _pass_through(work, other, low), mirrored))
    zero = work.constant(0.0, np.float64)
    is_tie = work.add("Not", work.add("Greater", drift, zero))
    is_beyond = work.add("Greater", work.add("Mul", rest, gap), zero)
    work.add("Where", work.add("And", is_tie, is_beyond), other, single)
    return work.nodes


def _lost_by_double(work: NodeBuilder, source: str, wide: str, element: int) -> str:
    """The integer minus its FP64 value. Wraparound past 2**63 still gives the right difference."""
    back = work.cast(work.cast(wide, element), TensorProto.INT64)
    whole = source if element == TensorProto.INT64 else work.cast(source, TensorProto.INT64)
    return work.cast(work.add("Sub", whole, back), TensorProto.DOUBLE)


def _pass_through(work: NodeBuilder, source: str, low: int) -> str:
    """Cast to `low` and back to FP64."""
    return work.cast(work.cast(source, low), TensorProto.DOUBLE)
