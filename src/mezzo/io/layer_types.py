"""Names of compute types and of conversion layers in runtimes' profiles."""

import re

from mezzo.formats.dtypes import DType

# Type names of ONNX Runtime, OpenVINO and TensorRT, in lower case.
_WORDS = {
    "f64": DType.FLOAT64, "double": DType.FLOAT64, "fp64": DType.FLOAT64,
    "f32": DType.FLOAT32, "float": DType.FLOAT32, "fp32": DType.FLOAT32, "tf32": DType.FLOAT32,
    "f16": DType.FLOAT16, "float16": DType.FLOAT16, "half": DType.FLOAT16, "fp16": DType.FLOAT16,
    "bf16": DType.BFLOAT16, "bfloat16": DType.BFLOAT16,
    "f8e4m3": DType.FLOAT8E4M3FN, "float8e4m3fn": DType.FLOAT8E4M3FN, "fp8": DType.FLOAT8E4M3FN,
    "f8e5m2": DType.FLOAT8E5M2, "float8e5m2": DType.FLOAT8E5M2,
    "i64": DType.INT64, "int64": DType.INT64, "i32": DType.INT32, "int32": DType.INT32,
    "i16": DType.INT16, "int16": DType.INT16, "u16": DType.UINT16, "uint16": DType.UINT16,
    "u64": DType.UINT64, "uint64": DType.UINT64, "u32": DType.UINT32, "uint32": DType.UINT32,
    "i8": DType.INT8, "int8": DType.INT8, "u8": DType.UINT8, "uint8": DType.UINT8,
    "i4": DType.INT4, "int4": DType.INT4, "u4": DType.UINT4, "uint4": DType.UINT4,
    "bool": DType.BOOL, "boolean": DType.BOOL, "string": DType.STRING,
}  # fmt: skip
# Layers that only change a type or a layout, a line each: ONNX, ONNX Runtime, OpenVINO, TensorRT.
_CONVERSIONS = frozenset(
    {
        "cast", "quantizelinear", "dequantizelinear", "dynamicquantizelinear",
        "reorderinput", "reorderoutput", "memcpyfromhost", "memcpytohost",
        "reorder", "convert", "fakequantize",
        "reformat",
    }
)  # fmt: skip


def type_called(words: str) -> DType | None:
    """The dtype of the first known type name in a text: "Row major linear FP16 format" is FP16."""
    return next(
        (_WORDS[word] for word in re.findall(r"[a-z0-9]+", words.lower()) if word in _WORDS), None
    )


def is_conversion(op: str) -> bool:
    """Whether a layer of this kind only changes a type or a layout."""
    return op.lower() in _CONVERSIONS
