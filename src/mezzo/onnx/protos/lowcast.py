"""Nodes that round FP32 numbers to a low format and come back, and the numpy types of the formats.

Rounding is to nearest, ties to even. What passes a format's range becomes infinite, and NaN in E4M3FN, which has no
infinity: an overflow must show. So FP8 casts are made with saturate=0, though ONNX's default clamps.
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
from mezzo.onnx.schema.schema import quantized_since
from mezzo.onnx.schema.types import TO_ONNX

FP8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
# What rounds past the largest number: beyond 464 in E4M3FN, whose 448 is even; from 61440 on in E5M2, whose 57344 is
# odd. ONNX Runtime 1.31 gives 448 and NaN between there and the next power of two, so these go by way of infinity.
_LARGEST_KEPT: dict[int, float] = {
    TensorProto.FLOAT8E4M3FN: 464.0,
    TensorProto.FLOAT8E5M2: float(np.nextafter(np.float32(61440), np.float32(0))),
}
# The first opset whose Cast knows the format, and with tiled sums: Slice with axes as operands, Min of integers.
_FIRST_OPSET = {DType.FLOAT16: 6, DType.BFLOAT16: 13, DType.FLOAT8E4M3FN: 19, DType.FLOAT8E5M2: 19}
_FIRST_TILED = 13
FORMATS = frozenset(_FIRST_OPSET) | QUANTIZED


def least_opset(formats: Collection[DType], accumulation: Accumulation | None) -> int:
    """The first opset that has what an emulation in these formats takes."""
    wanted = [quantized_since(dtype) if dtype in QUANTIZED else _FIRST_OPSET[dtype] for dtype in formats]
    if accumulation is not None:
        wanted += [_FIRST_TILED, _FIRST_OPSET.get(accumulation.dtype, 1)]
    return max(wanted, default=1)


def raise_opset(model: onnx.ModelProto, formats: Collection[DType], accumulation: Accumulation | None) -> None:
    """Take `model`, in place, to the first opset that has what an emulation needs.

    Raises: ContractError if some operator cannot take the step with its meaning kept.
    """
    opset, needed = default_opset(model), least_opset(formats, accumulation)
    if opset is None:  # the twin adds the default domain, at the first opset that knows BF16
        model.opset_import.append(onnx.helper.make_opsetid("", max(13, needed)))
        return
    if opset >= needed:
        return
    reached, upgraded = reach(model, needed)
    if reached < needed:
        node = upgraded.obstacles[0]
        why = f"tiled sums in {accumulation.dtype}" if accumulation is not None else ", ".join(map(str, formats))
        raise ContractError(
            f"the model has opset {opset} and emulating {why} takes opset {needed}, but node {node.node!r} "
            f"({node.op}) cannot go to opset {node.version}, as {node.because}; export it at opset {needed} or newer"
        )
    model.CopyFrom(upgraded.model)


def round_nodes(source: str, result: str, low: int, fresh: Callable[[], str]) -> list[onnx.NodeProto]:
    """Make the nodes that round the FP32 value `source` to `low`, `result` being FP32 again."""
    nodes: list[onnx.NodeProto] = []
    narrow = fresh()
    if low in FP8:
        source = show_overflow(source, low, fresh, nodes)
        nodes.append(onnx.helper.make_node("Cast", [source], [narrow], to=low, saturate=0))
    else:
        nodes.append(onnx.helper.make_node("Cast", [source], [narrow], to=low))
    nodes.append(onnx.helper.make_node("Cast", [narrow], [result], to=TensorProto.FLOAT))
    return nodes


def show_overflow(source: str, low: int, fresh: Callable[[], str], nodes: list[onnx.NodeProto]) -> str:
    """Append the nodes that make numbers beyond an FP8 format infinite; returns the name of the result."""

    def add(op: str, *inputs: str) -> str:
        nodes.append(onnx.helper.make_node(op, inputs, [fresh()]))
        return str(nodes[-1].output[0])

    def constant(number: float) -> str:
        nodes.append(onnx.helper.make_node("Constant", [], [fresh()], value_float=number))
        return str(nodes[-1].output[0])

    is_beyond = add("Greater", add("Abs", source), constant(_LARGEST_KEPT[low]))
    return add("Where", is_beyond, add("Mul", source, constant(float("inf"))), source)


def round_array(values: npt.NDArray[np.float32], dtype: DType) -> npt.NDArray[np.float32]:
    """Round numbers to a format and come back."""
    with np.errstate(all="ignore"):
        low = values.astype(onnx.helper.tensor_dtype_to_np_dtype(TO_ONNX[dtype]))
        back: npt.NDArray[np.float32] = low.astype(np.float32)
        return back
