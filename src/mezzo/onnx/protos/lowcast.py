"""Simulated low-precision rounding: Cast pairs that round FP32 values to a low format and back.

Rounding is to nearest, ties to even. Overflow becomes infinity, or NaN in E4M3FN, which has no
infinity, so that it stays visible. So FP8 casts have saturate=0, though ONNX's default clamps.
"""

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from mezzo.common.errors import ContractError
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.onnx.edit.opset import default_opset, reach
from mezzo.onnx.protos.node_builder import NodeBuilder
from mezzo.onnx.schema.schema import quantized_since
from mezzo.onnx.schema.types import TO_ONNX

FP8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
# The largest number that does not overflow: 464 in E4M3FN, whose maximum 448 is even; just below
# 61440 in E5M2, whose maximum 57344 is odd. ONNX Runtime 1.31 returns 448 and NaN between that and
# the next power of two, so larger numbers are set to infinity before the Cast.
_LARGEST_KEPT: dict[int, float] = {
    TensorProto.FLOAT8E4M3FN: 464.0,
    TensorProto.FLOAT8E5M2: float(np.nextafter(np.float32(61440), np.float32(0))),
}
# The first opset whose Cast supports the format; for tiled sums (_FIRST_TILED), the first with
# Slice axes as operands and Min of integers.
_FIRST_OPSET = {DType.FLOAT16: 6, DType.BFLOAT16: 13, DType.FLOAT8E4M3FN: 19, DType.FLOAT8E5M2: 19}
_FIRST_TILED = 13
FORMATS = frozenset(_FIRST_OPSET) | QUANTIZED


def least_opset(formats: Collection[DType], accumulation: Accumulation | None) -> int:
    """The first opset that supports an emulation in these formats and accumulation."""
    required = [
        quantized_since(dtype) if dtype in QUANTIZED else _FIRST_OPSET[dtype] for dtype in formats
    ]
    if accumulation is not None:
        required += [_FIRST_TILED, _FIRST_OPSET.get(accumulation.dtype, 1)]
    return max(required, default=1)


def raise_opset(
    model: onnx.ModelProto, formats: Collection[DType], accumulation: Accumulation | None
) -> None:
    """Upgrade `model`, in place, to the first opset that supports the emulation.

    Raises: ContractError if an operator cannot be converted to that opset.
    """
    opset, needed = default_opset(model), least_opset(formats, accumulation)
    # The emulation adds operators of the default domain, at the first opset with BF16.
    if opset is None:
        model.opset_import.append(onnx.helper.make_opsetid("", max(13, needed)))
        return
    if opset >= needed:
        return
    reached, upgraded = reach(model, needed)
    if reached < needed:
        node = upgraded.obstacles[0]
        why = (
            f"tiled sums in {accumulation.dtype}"
            if accumulation is not None
            else ", ".join(map(str, formats))
        )
        raise ContractError(
            f"the model has opset {opset} and emulating {why} takes opset {needed}, but node"
            f" {node.node!r} ({node.op}) cannot go to opset {node.version}, as {node.because};"
            f" export it at opset {needed} or newer"
        )
    model.CopyFrom(upgraded.model)


def reach_sums(
    model: onnx.ModelProto, formats: Collection[DType], accumulation: Accumulation | None
) -> Accumulation | None:
    """Upgrade `model` as `raise_opset` does, and return the accumulation that it can be emulated
    with: None in place of a target's, if that needs a newer opset than the model can reach.
    """
    try:
        raise_opset(model, formats, accumulation)
    except ContractError:
        if accumulation is None or accumulation.kernels is None:
            raise
        raise_opset(model, formats, None)
        return None
    return accumulation


def round_nodes(
    source: str, result: str, low: int, fresh: Callable[[], str]
) -> list[onnx.NodeProto]:
    """Nodes that round the FP32 value `source` to `low` and back to the FP32 value `result`."""
    work = NodeBuilder(fresh)
    if low in FP8:
        narrow = work.add("Cast", show_overflow(work, source, low), to=low, saturate=0)
    else:
        narrow = work.cast(source, low)
    nodes = work.nodes
    nodes.append(onnx.helper.make_node("Cast", [narrow], [result], to=TensorProto.FLOAT))
    return nodes


def show_overflow(work: NodeBuilder, source: str, low: int) -> str:
    """Set numbers beyond an FP8 format's range to infinity; returns the name of the result."""
    largest = work.constant(_LARGEST_KEPT[low], np.float32)
    infinity = work.constant(np.inf, np.float32)
    is_beyond = work.add("Greater", work.add("Abs", source), largest)
    return work.add("Where", is_beyond, work.add("Mul", source, infinity), source)


def round_array(values: npt.NDArray[np.float32], dtype: DType) -> npt.NDArray[np.float32]:
    """Round an array to a format and convert it back to FP32."""
    with np.errstate(all="ignore"):
        low = values.astype(onnx.helper.tensor_dtype_to_np_dtype(TO_ONNX[dtype]))
        back: npt.NDArray[np.float32] = low.astype(np.float32)
        return back
