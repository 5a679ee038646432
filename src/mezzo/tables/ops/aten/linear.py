"""Matmuls, convolutions and other contractions, which hardware accumulates in FP32."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, Function, OpFacts, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, BLAS and LAPACK operations; accumulation in FP32 for FP16"
    " and BF16 operands: NVIDIA PTX ISA 8.5 (mma, wgmma) and Intel AMX (TDPBF16PS, TDPFP16PS)"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_grouped_mm", Cost.LINEAR, like="MatMul", scaling="x, y -> x+y"),
    facts("_trilinear", Cost.LINEAR, like="Einsum"),
    # Not Function.MATMUL: they add a third operand. The order of operands is that of
    # `mezzo.aten.read.attributes`.
    facts(
        "addbmm",
        Cost.LINEAR,
        like="MatMul",
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
        scaling="x, y, x+y -> x+y",
    ),
    # Products of two vectors, each with each: no axis is summed over.
    facts(
        "addr",
        Cost.POINTWISE,
        like="Mul",
        numbers=(
            "alpha",
            "beta",
        ),
    ),
    facts(
        "baddbmm",
        Cost.LINEAR,
        like="MatMul",
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
        scaling="x, y, x+y -> x+y",
    ),
    facts("bilinear", Cost.LINEAR, like="Einsum"),
    facts("chain_matmul", Cost.LINEAR, like="MatMul"),
    facts("convolution_backward", Cost.LINEAR, like="Conv"),
    facts("dot", Cost.LINEAR, like="Gemm", scaling="x, y -> x+y"),
    facts("ger", Cost.POINTWISE, like="Mul", scaling="x, y -> x+y"),
    facts("inner", Cost.LINEAR, like="Gemm", scaling="x, y -> x+y"),
    facts("linalg_multi_dot", Cost.LINEAR, like="MatMul"),
    facts("linalg_vecdot", Cost.LINEAR, like="Gemm", scaling="x, y -> x+y"),
    facts(
        "linear", Cost.LINEAR, like="Gemm", transfer=Transfer.CONTRACT, scaling="x, y, x+y -> x+y"
    ),
    facts("linear_backward", Cost.LINEAR, like="Gemm"),
    facts("mkldnn_linear_backward", Cost.LINEAR, like="Gemm"),
    facts(
        "mm",
        Cost.LINEAR,
        like="Gemm",
        function=Function.MATMUL,
        transfer=Transfer.CONTRACT,
        scaling="x, y -> x+y",
    ),
    facts("mv", Cost.LINEAR, like="Gemm", scaling="x, y -> x+y"),
    facts("outer", Cost.POINTWISE, like="Mul", scaling="x, y -> x+y"),
    facts("tensordot", Cost.LINEAR, like="MatMul"),
    facts("vdot", Cost.LINEAR, like="Gemm"),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    # An activation follows.
    "_addmm_activation": "Gemm",
    "_convolution": "Conv",
    "_convolution_mode": "Conv",
    "addmm": "Gemm",
    "addmv": "Gemm",
    "bmm": "MatMul",
    "conv1d": "Conv",
    "conv2d": "Conv",
    "conv3d": "Conv",
    "conv_tbc": "Conv",
    "conv_transpose1d": "ConvTranspose",
    "conv_transpose2d": "ConvTranspose",
    "conv_transpose3d": "ConvTranspose",
    "convolution": "Conv",
    "convolution_overrideable": "Conv",
    "cudnn_convolution": "Conv",
    "cudnn_convolution_add_relu": "Conv",
    "cudnn_convolution_relu": "Conv",
    "cudnn_convolution_transpose": "ConvTranspose",
    "einsum": "Einsum",
    "linalg_matmul": "MatMul",
    "matmul": "MatMul",
    "miopen_convolution": "Conv",
    "miopen_convolution_transpose": "ConvTranspose",
    "mkldnn_convolution": "Conv",
}
