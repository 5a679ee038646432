"""The target "onnx": all that the ONNX schema allows, at opsets that current runtimes load. The
default target for formats that no runtime's table of mezzo covers.
"""

from dataclasses import replace

from mezzo.formats.block_storage import BITS, BlockForm
from mezzo.formats.dtypes import STORED_AS, DType
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, weight
from mezzo.tables.target import Target


def _fp8(dtype: DType, op: str, *operands: Operand, **attributes: object) -> QuantizedKernel:
    (stored,) = STORED_AS[dtype]
    return QuantizedKernel(
        op=op,
        operands=tuple(
            replace(one, dtype=stored)
            for one in (Operand(position=0, is_symmetric=True), *operands)
        ),
        hands=OutputMode.EITHER,
        source=(
            "ONNX QuantizeLinear-19 and DequantizeLinear-19: a standard, and no kernel of anybody's"
        ),
        since="opset 19",
        attributes=attributes,
        format=dtype,
    )


_FP8 = tuple(
    row
    for dtype in (DType.QUANTIZED_E4M3, DType.QUANTIZED_E5M2)
    for row in (
        _fp8(dtype, "Conv", weight(1, 0)),
        _fp8(dtype, "Gemm", weight(1, 0), transB=1),
        _fp8(dtype, "Gemm", weight(1, -1), transB=frozenset({None, 0})),
        _fp8(dtype, "MatMul", weight(1, -1, rank=2)),
        _fp8(dtype, "MatMul", Operand(position=1, is_symmetric=True)),
    )
)
_OPTIONAL = frozenset({None, 0})
# A standard: who runs it may decode the whole weight at each run.
_IN_BLOCKS = tuple(
    BlockKernel(
        op=op,
        operand=operand,
        axis=axis,
        bits=bits,
        blocks=(32, 16, 64, 128, 256),
        floats=frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16}),
        form=BlockForm.DEQUANTIZE,
        attributes=attributes,
        source="ONNX DequantizeLinear-21: a standard, and no kernel of anybody's",
        since="opset 21",
    )
    for bits in BITS
    for op, operand, axis, attributes in (
        ("MatMul", 1, 0, {}),
        ("Gemm", 1, 0, {"transA": _OPTIONAL, "transB": _OPTIONAL}),
        ("Gemm", 1, 1, {"transA": _OPTIONAL, "transB": 1}),
        ("Gather", 0, 1, {"axis": _OPTIONAL}),
    )
)
TARGET = Target(
    name="onnx",
    also=(
        "schema",
        "spec",
    ),
    summary="what the ONNX schema allows, at no newer opset than the installed ONNX Runtime loads",
    newest={"onnx": 26},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    quantized=_FP8,
    in_blocks=_IN_BLOCKS,
    # In BF16 ONNX Runtime computes nothing on CPUs.
    default_for=(
        "bf16",
        "fp8-e5m2",
        "fp8-e5m2,fp16",
        "fp8-e5m2,bf16",
    ),
)
