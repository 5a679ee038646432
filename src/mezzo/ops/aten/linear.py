"""Products and sums over a contracted axis, which hardware accumulates in FP32 whatever its operands are."""

from mezzo.core.facts import Cost, Function, OpFacts, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, BLAS and LAPACK operations; accumulation in FP32 for FP16 and BF16 "
    "operands: NVIDIA PTX ISA 8.5 (mma, wgmma) and Intel AMX (TDPBF16PS, TDPFP16PS)"
)

FACTS: tuple[OpFacts, ...] = (
    # An activation follows.
    facts(
        "_addmm_activation",
        Cost.LINEAR,
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
    ),
    facts("_convolution", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("_convolution_mode", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("_grouped_mm", Cost.LINEAR),
    facts("_trilinear", Cost.LINEAR),
    # Not Function.MATMUL: they add a third operand. The order of operands is that of `frontends.torch.attributes`.
    facts(
        "addbmm",
        Cost.LINEAR,
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
    ),
    facts(
        "addmm",
        Cost.LINEAR,
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
    ),
    facts(
        "addmv",
        Cost.LINEAR,
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
        numbers=(
            "alpha",
            "beta",
        ),
    ),
    facts(
        "baddbmm",
        Cost.LINEAR,
        numbers=(
            "alpha",
            "beta",
        ),
        transfer=Transfer.CONTRACT,
    ),
    facts("bilinear", Cost.LINEAR),
    facts("bmm", Cost.LINEAR, function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("chain_matmul", Cost.LINEAR),
    facts("conv1d", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("conv2d", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("conv3d", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("conv_tbc", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("conv_transpose1d", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("conv_transpose2d", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("conv_transpose3d", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("convolution", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("convolution_backward", Cost.LINEAR),
    facts("convolution_overrideable", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("cudnn_convolution", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("cudnn_convolution_add_relu", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("cudnn_convolution_relu", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("cudnn_convolution_transpose", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("dot", Cost.LINEAR),
    facts("einsum", Cost.LINEAR, transfer=Transfer.EINSUM),
    facts("ger", Cost.POINTWISE),
    facts("inner", Cost.LINEAR),
    facts("linalg_matmul", Cost.LINEAR, function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("linalg_multi_dot", Cost.LINEAR),
    facts("linalg_vecdot", Cost.LINEAR),
    facts("linear", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("linear_backward", Cost.LINEAR),
    facts("matmul", Cost.LINEAR, function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("miopen_convolution", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("miopen_convolution_transpose", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("mkldnn_convolution", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("mkldnn_linear_backward", Cost.LINEAR),
    facts("mm", Cost.LINEAR, function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("mv", Cost.LINEAR),
    facts("outer", Cost.POINTWISE),
    facts("tensordot", Cost.LINEAR),
    facts("vdot", Cost.LINEAR),
)
