"""Matmuls, convolutions and other contractions, which hardware accumulates in FP32."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; accumulation in FP32 for FP16 and BF16"
    " operands: NVIDIA PTX ISA 8.5 (mma, wgmma) and Intel AMX (TDPBF16PS, TDPFP16PS)"
)

FACTS: tuple[OpFacts, ...] = (
    facts("CausalConvWithState", Cost.LINEAR),
    facts("Conv", Cost.LINEAR, transfer=Transfer.CONTRACT, scaling="x, y, x+y -> x+y"),
    facts("ConvTranspose", Cost.LINEAR, transfer=Transfer.CONTRACT, scaling="x, y, x+y -> x+y"),
    # The offsets share the type of the data: they are coordinates in pixels.
    facts("DeformConv", Cost.LINEAR, Risk.POSITION),
    # The determinant of an N x N matrix is a sum of products of N factors.
    facts("Det", Cost.OTHER, Risk.PRODUCT),
    facts("Einsum", Cost.LINEAR, transfer=Transfer.EINSUM, scaling="x, y -> x+y"),
    # Not Function.MATMUL: it adds a third operand.
    facts(
        "Gemm",
        Cost.LINEAR,
        numbers=("alpha", "beta"),
        transfer=Transfer.CONTRACT,
        scaling="x, y, x+y -> x+y",
    ),
    facts(
        "MatMul",
        Cost.LINEAR,
        function=Function.MATMUL,
        transfer=Transfer.CONTRACT,
        scaling="x, y -> x+y",
    ),
)
