"""Payload of a TensorProto: its fields, checks of type, shape and size, and its replacement."""

from collections.abc import Mapping, Sequence

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import DType, size_bits
from mezzo.onnx.schema.types import FROM_ONNX

EXTERNAL = onnx.TensorProto.EXTERNAL
_MAX_ELEMENTS = 1 << 62
# TensorProto fields whose packed bytes equal the raw_data encoding.
RAW_FIELD, FLOAT_FIELD, DOUBLE_FIELD = 9, 4, 10
PACKED_DTYPES: Mapping[int, frozenset[DType]] = {
    FLOAT_FIELD: frozenset({DType.FLOAT32, DType.COMPLEX64}),
    DOUBLE_FIELD: frozenset({DType.FLOAT64, DType.COMPLEX128}),
}
PAYLOAD_FIELDS = (
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
    "string_data",
)  # fmt: skip


def element_dtype(tensor: onnx.TensorProto, where: str) -> DType:
    """The element type. Raises ModelError if ONNX does not define it."""
    dtype = FROM_ONNX.get(tensor.data_type)
    if dtype is None:
        raise ModelError(
            f"{where}: element type number {tensor.data_type} is unknown; valid are"
            f" {min(FROM_ONNX)} to {max(FROM_ONNX)}"
        )
    return dtype


def count_elements(dims: Sequence[int], where: str) -> int:
    """Element count of a shape. Raises ModelError: a negative dimension, or more than 2**62."""
    if dims and min(dims) < 0:
        raise ModelError(
            f"{where}: the shape {shape_text(dims)} has a negative dimension; export the model"
            " again"
        )
    if 0 in dims:
        return 0
    count = 1
    for size in dims:
        count *= size
        if count > _MAX_ELEMENTS:
            raise ModelError(
                f"{where}: the shape {shape_text(dims)} has more than 2**62 elements; export the"
                " model again"
            )
    return count


def shape_text(dims: Sequence[int]) -> str:
    """A shape for error messages."""
    return (
        str(list(dims)) if len(dims) <= 10 else f"[{dims[0]}, {dims[1]}, … {len(dims)} dimensions]"
    )


def payload_bytes(dtype: DType, elements: int) -> int:
    """Size of elements in raw_data, where those under 8 bits are packed."""
    return (elements * size_bits(dtype) + 7) // 8


def check_payload(tensor: onnx.TensorProto, size_bytes: int, where: str) -> tuple[DType, int]:
    """Return dtype and element count. Raises ModelError if the payload size does not match."""
    dtype = element_dtype(tensor, where)
    if dtype is DType.STRING:
        raise ModelError(
            f"{where}: strings are stored as raw bytes, which ONNX does not allow; export the model"
            " again"
        )
    elements = count_elements(tensor.dims, where)
    needed = payload_bytes(dtype, elements)
    if size_bytes != needed:
        raise ModelError(
            f"{where}: the data has {size_bytes} bytes, the shape {shape_text(tensor.dims)} of"
            f" {dtype} needs {needed}; the file is damaged, get it again"
        )
    return dtype, elements


def set_payload(tensor: onnx.TensorProto, data: bytes) -> None:
    """Replace the payload, or a marker, by embedded bytes."""
    clear_payload(tensor)
    tensor.raw_data = data


def clear_payload(tensor: onnx.TensorProto) -> None:
    """Remove the payload and where it is, keeping name, type and shape."""
    for name in PAYLOAD_FIELDS:
        tensor.ClearField(name)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
