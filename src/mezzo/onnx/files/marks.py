"""Lazy conversion of external weights: tensors marked as rounded, widened or quantized; no I/O.

A marked tensor refers to a payload (its bytes in a file) through `external_data`.
"""

import json
from copy import deepcopy

import onnx

from mezzo.formats.dtypes import DType
from mezzo.onnx.files.blobs import LIMIT, QUANTIZED, THROUGH
from mezzo.onnx.files.quantized_payloads import QuantizedPayload
from mezzo.onnx.protos.payloads import EXTERNAL
from mezzo.onnx.schema.types import FROM_ONNX, TO_ONNX


def is_marked(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor refers to a payload instead of containing its data."""
    return bool(tensor.data_location == EXTERNAL)


def mark_rounded(
    tensor: onnx.TensorProto, low: DType, limit: float | None, name: str
) -> onnx.TensorProto:
    """A marked FP32 tensor: the payload rounded to `low`, finite values clamped to `limit`."""
    result = _copy_mark(tensor, name)
    entry = next((entry for entry in result.external_data if entry.key == THROUGH), None)
    if entry is None:
        entry = result.external_data.add(key=THROUGH, value="[]")
    entry.value = json.dumps([*json.loads(entry.value), [low.value, limit]])
    return result


def mark_widened(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """A marked FP32 tensor: the values that a low-precision tensor has when written."""
    low, limit = FROM_ONNX[tensor.data_type], None
    bare = _copy_mark(tensor, tensor.name)
    for place, entry in enumerate(bare.external_data):
        if entry.key == LIMIT:
            limit = float(entry.value)
            del bare.external_data[place]
            break
    return mark_rounded(bare, low, limit, tensor.name)


def mark_quantized(
    tensor: onnx.TensorProto, quantized: QuantizedPayload, dtype: DType, name: str
) -> onnx.TensorProto:
    """A marked tensor: an FP32 payload quantized, and dequantized again if `dtype` is FP32."""
    result = _copy_mark(tensor, name)
    result.external_data.add(key=QUANTIZED, value=quantized.to_text())
    result.data_type = TO_ONNX[dtype]
    return result


def _copy_mark(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    """A copy of the marked tensor, declared FP32."""
    result = deepcopy(tensor)
    result.name, result.data_type = name, onnx.TensorProto.FLOAT
    return result
