"""Matmuls, convolutions and other contractions, which hardware accumulates in FP32."""

from mezzo.tables.facts import Cost, Function, OpFacts, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, BLAS and LAPACK operations; accumulation in FP32 for FP16"
    " and BF16 operands: NVIDIA PTX ISA 8.5 (mma, wgmma) and Intel AMX (TDPBF16PS, TDPFP16PS)"
)

FACTS: tuple[OpFacts, ...] = (
    # An activation follows.
    facts(
        "_addmm_activation",
        Cost.LINEAR,
        like="Gemm",
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
    ),
    facts("_convolution", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("_convolution_mode", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("_grouped_mm", Cost.LINEAR, like="MatMul"),
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
    ),
    facts(
        "addmm",
        Cost.LINEAR,
        like="Gemm",
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
    ),
    facts(
        "addmv",
        Cost.LINEAR,
        like="Gemm",
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
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
    ),
    facts("bilinear", Cost.LINEAR, like="Einsum"),
    facts("bmm", Cost.LINEAR, like="MatMul", function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("chain_matmul", Cost.LINEAR, like="MatMul"),
    facts("conv1d", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("conv2d", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("conv3d", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("conv_tbc", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("conv_transpose1d", Cost.LINEAR, like="ConvTranspose", transfer=Transfer.CONTRACT),
    facts("conv_transpose2d", Cost.LINEAR, like="ConvTranspose", transfer=Transfer.CONTRACT),
    facts("conv_transpose3d", Cost.LINEAR, like="ConvTranspose", transfer=Transfer.CONTRACT),
    facts("convolution", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("convolution_backward", Cost.LINEAR, like="Conv"),
    facts("convolution_overrideable", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("cudnn_convolution", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("cudnn_convolution_add_relu", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("cudnn_convolution_relu", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts(
        "cudnn_convolution_transpose", Cost.LINEAR, like="ConvTranspose", transfer=Transfer.CONTRACT
    ),
    facts("dot", Cost.LINEAR, like="Gemm"),
    facts("einsum", Cost.LINEAR, like="Einsum", transfer=Transfer.EINSUM),
    facts("ger", Cost.POINTWISE, like="Mul"),
    facts("inner", Cost.LINEAR, like="Gemm"),
    facts(
        "linalg_matmul",
        Cost.LINEAR,
        like="MatMul",
        function=Function.MATMUL,
        transfer=Transfer.CONTRACT,
    ),
    facts("linalg_multi_dot", Cost.LINEAR, like="MatMul"),
    facts("linalg_vecdot", Cost.LINEAR, like="Gemm"),
    facts("linear", Cost.LINEAR, like="Gemm", transfer=Transfer.CONTRACT),
    facts("linear_backward", Cost.LINEAR, like="Gemm"),
    facts(
        "matmul", Cost.LINEAR, like="MatMul", function=Function.MATMUL, transfer=Transfer.CONTRACT
    ),
    facts("miopen_convolution", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts(
        "miopen_convolution_transpose",
        Cost.LINEAR,
        like="ConvTranspose",
        transfer=Transfer.CONTRACT,
    ),
    facts("mkldnn_convolution", Cost.LINEAR, like="Conv", transfer=Transfer.CONTRACT),
    facts("mkldnn_linear_backward", Cost.LINEAR, like="Gemm"),
    facts("mm", Cost.LINEAR, like="Gemm", function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("mv", Cost.LINEAR, like="Gemm"),
    facts("outer", Cost.POINTWISE, like="Mul"),
    facts("tensordot", Cost.LINEAR, like="MatMul"),
    facts("vdot", Cost.LINEAR, like="Gemm"),
)
