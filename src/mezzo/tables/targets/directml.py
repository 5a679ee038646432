"""ONNX Runtime's DirectML provider, on any GPU of DirectX 12: from documents, never run by mezzo.

The rows are those of the documented list of kernels. As in onnxruntime-cuda, a range ends with the
last version a kernel is registered for. DirectML has no BF16.
"""

from functools import partial

from mezzo.formats.block_storage import BITS, BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.fusions import Constraint, Fusion, Stage, Step
from mezzo.tables.quantized_kernels import (
    Bias,
    Operand,
    OutputMode,
    QuantizedKernel,
    Storage,
    weight,
)
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, KernelListing, Target, kernels

_SINCE = "ONNX Runtime, main at 001d12d2"
_LISTED = "from documents, not run here: docs/OperatorKernels.md, microsoft/onnxruntime at 001d12d2"

_F16 = """
    Abs 6-13, Acos 7, Acosh 9, Add 7-14, Affine 1, ArgMax 1-13, ArgMin 1-13, Asin 7, Asinh 9,
    Atan 7, Atanh 9, AveragePool 7-19, BatchNormalization 7-15, Cast 6-21, CastLike 15-21,
    Ceil 6-13, Celu 12, Clip 6-13, Col2Im 18, Concat 4-13, ConcatFromSequence 11,
    ConstantOfShape 9-21, Conv 1-11, ConvTranspose 1-11, Cos 7, Cosh 9, Crop 1, CumSum 11-14,
    DFT 17-20, DepthToSpace 1-13, DequantizeLinear 10-21, Div 7-14, Dropout 7, Einsum 12, Elu 6,
    Equal 7-19, Erf 9-13, Exp 6-13, Expand 8-13, EyeLike 9, Flatten 1-21, Floor 6-13, GRU 7-14,
    Gather 1-13, GatherElements 11-13, GatherND 11-13, Gemm 7-13, GlobalAveragePool 1,
    GlobalLpPool 2, GlobalMaxPool 1, Greater 7-13, GreaterOrEqual 12-16, GridSample 16,
    HardSigmoid 6, Hardmax 1-13, Identity 1-21, If 7-19, ImageScaler 1, InstanceNormalization 6,
    IsNaN 9-20, LRN 1-13, LSTM 7-14, LayerNormalization 1-17, LeakyRelu 6-16, Less 7-13,
    LessOrEqual 12-16, Log 6-13, LogSoftmax 1-13, LpNormalization 1, LpPool 2-18, MatMul 1-13,
    Max 6-13, MaxPool 1-12, MaxRoiPool 1, MaxUnpool 9-11, Mean 6-13, MeanVarianceNormalization 1-13,
    Min 6-13, Mod 10-13, Mul 7-14, Neg 6-13, NonZero 9-13, OneHot 9-11, OptionalGetElement 15-18,
    OptionalHasElement 15-18, PRelu 7-16, Pad 2-21, ParametricSoftplus 1, Pow 7-15,
    QuantizeLinear 10-21, RNN 7-14, Reciprocal 6-13, ReduceL1 1-18, ReduceL2 1-18,
    ReduceLogSum 1-18, ReduceLogSumExp 1-18, ReduceMax 1-20, ReduceMean 1-18, ReduceMin 1-20,
    ReduceProd 1-18, ReduceSum 1-13, ReduceSumSquare 1-18, Relu 6-14, Reshape 5-21, Resize 10-19,
    ReverseSequence 10, RoiAlign 10-16, Round 11, STFT 17, ScaledTanh 1, Scatter 9-11,
    ScatterElements 11-16, ScatterND 11-16, Selu 6, SequenceAt 11, SequenceConstruct 11,
    SequenceEmpty 11, SequenceErase 11, SequenceInsert 11, SequenceLength 11, Shape 1-21, Shrink 9,
    Sigmoid 6-13, Sign 9-13, SimplifiedLayerNormalization 1, Sin 7, Sinh 9, Size 1-21, Slice 1-13,
    Softmax 1-13, Softplus 1, Softsign 1, SpaceToDepth 1-13, Split 2-18, Sqrt 6-13, Squeeze 1-21,
    Sub 7-14, Sum 6-13, Tan 7, Tanh 6-13, ThresholdedRelu 1-10, Tile 6-13, TopK 1-11,
    Transpose 1-21, Trilu 14, Unsqueeze 1-21, Upsample 7-10, Where 9-16
"""
_CONTRIB_F16 = """
    Attention, BiasAdd, BiasGelu, BiasSplitGelu, ConvTransposeWithDynamicPads, DequantizeLinear,
    EmbedLayerNormalization, FastGelu, FusedMatMul, FusedMatMulActivation, Gelu, GroupNorm,
    GroupQueryAttention, MatMulIntegerToFloat, MatMulNBits, MultiHeadAttention, NhwcConv,
    QAttention, QuantizeLinear, QuickGelu, RotaryEmbedding, SkipLayerNormalization,
    SkipSimplifiedLayerNormalization
"""

# The optimizer's rules for quantized operators, and the kernels that take what they make.
_QDQ = f"qdq_selector_action_transformer.cc, for the CPU and DirectML; {_LISTED}"
_S8 = Storage(DType.INT8)
_CUT = frozenset({"Clip", "Relu"})


def _data(position: int = 0, and_rest: bool = False) -> Operand:
    return Operand(position=position, also=(_S8,), and_rest=and_rest)


_kernel = partial(
    QuantizedKernel, hands=OutputMode.INTEGERS, source=_QDQ, since=_SINCE, followers=_CUT,
    is_cut=True,
)  # fmt: skip
_moving = partial(QuantizedKernel, hands=OutputMode.READ, source=_QDQ, since=_SINCE)
# No kernel is listed for what the optimizer makes of Gemm, LeakyRelu, Mul, Softmax and Where.
_QUANTIZED = (
    _kernel(op="Conv", operands=(_data(), weight(1, axis=0)), bias=Bias.INT32),
    _kernel(op="MatMul", operands=(_data(), weight(1, axis=-1, rank=2)), hands=OutputMode.EITHER),
    _kernel(op="MatMul", operands=(_data(), _data(1)), hands=OutputMode.EITHER),
    _kernel(op="Add", operands=(_data(), _data(1))),
    *(_kernel(op=op, operands=(_data(),)) for op in ("AveragePool", "GlobalAveragePool")),
    *(
        _kernel(op=op, operands=(_data(and_rest=op == "Concat"),), followers=frozenset())
        for op in ("Concat", "Sigmoid")
    ),
    *(
        _moving(op=op, operands=(_data(),))
        for op in ("Gather", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
    ),
)

# A bias as its sixth input is refused, and that is where a Gemm's goes; GatherBlockQuantized has no
# kernel.
_IN_BLOCKS = tuple(
    BlockKernel(
        op="MatMul",
        axis=0,
        bits=bits,
        blocks=(32, 16, 64, 128, 256),
        block_multiple=1,
        floats=frozenset({HIGH, DType.FLOAT16}),
        form=BlockForm.FUSED,
        source=(
            "from documents, not run here: DmlOperatorMatMulNBits.cpp, microsoft/onnxruntime: four"
            " and eight bits, whole blocks, zero points, no bias; speed not known"
        ),
        since=_SINCE,
    )
    for bits in BITS
)

_OPTIMIZER = "graph_transformer_utils.cc, microsoft/onnxruntime ({})"
_HELPER = "FusionHelpers::TryGetFusedOp, microsoft/onnxruntime: {} and one activation"
_ACTIVATIONS = frozenset({
    "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
})  # fmt: skip
_AFTER = Stage(activations=_ACTIVATIONS)
# Norms are DirectML's own operator in the type of their operands: DmlOperatorLayerNormalization.cpp
# converts to FP32 only where these differ.
_fusion = partial(Fusion, since=_SINCE, constraint=Constraint(formats=frozenset({DType.FLOAT16})))
_FUSIONS = (
    _fusion(
        pattern="matmul",
        source=f"{_OPTIMIZER.format('MatMulAddFusion')}; {_HELPER.format('Gemm')}",
        form="gemm",
        epilogues=((_AFTER,),),
    ),
    _fusion(
        pattern="gemm-activation",
        source=_HELPER.format("Gemm"),
        operators=frozenset({"Gemm"}),
        epilogues=((_AFTER,),),
    ),
    _fusion(
        pattern="convolution",
        source=f"{_OPTIMIZER.format('ConvBNFusion')}; {_HELPER.format('Conv, ConvTranspose')}",
        operators=frozenset({"Conv", "ConvTranspose"}),
        epilogues=((Stage(step=Step.SCALE_CHANNELS, most=4), _AFTER),),
    ),
    _fusion(pattern="bias-gelu", source=_OPTIMIZER.format("BiasGeluFusion")),
    _fusion(pattern="gelu", source=_OPTIMIZER.format("GeluFusion, FastGeluFusion"), form="usual"),
    _fusion(pattern="silu", source=_OPTIMIZER.format("QuickGeluFusion")),
    _fusion(pattern="skip-layer-norm", source=_OPTIMIZER.format("SkipLayerNormFusion")),
    _fusion(pattern="layer-norm", source=_OPTIMIZER.format("LayerNormFusion")),
    _fusion(pattern="matmul-scale", source=_OPTIMIZER.format("MatMulScaleFusion")),
)

TARGET = Target(
    name="directml",
    also=(
        "dml",
        "windows",
        "directx",
        "dx12",
        "gpu",
        "ort-dml",
        "ort-directml",
        "onnxruntime-directml",
        "DmlExecutionProvider",
    ),
    runtime=Runtime(
        package="onnxruntime-directml",
        hardware="Windows and a GPU of DirectX 12",
        elsewhere="pip install onnxruntime-directml, on Windows",
    ),
    summary="what ONNX Runtime's DirectML provider has kernels for; from documents, not run here",
    # The newest of the listed kernels.
    newest={"onnx": 21},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    fusions=_FUSIONS,
    quantized=_QUANTIZED,
    notes=(
        # DmlOperator::AllowHalfPrecisionComputation
        "DirectML may sum in FP16 where all operands of an operator are FP16: compare on your GPU.",
        "These rows are from documents: mezzo never ran DirectML.",
    ),
    listings=(
        KernelListing(
            dtype=DType.FLOAT16,
            kernels=kernels("onnx", _F16) + kernels("com.microsoft", _CONTRIB_F16),
            because="no DirectML kernel in f16 (it would leave the GPU)",
            source=_LISTED,
            since=_SINCE,
        ),
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=(),
            because="DirectML has no BF16, so no kernel",
            source=_LISTED,
            since=_SINCE,
        ),
    ),
    # Of INT8 the documents do not say whether it is faster.
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="DirectML computes FP16 in half precision where the GPU can",
            source=(
                "from documents, not run here: DML_EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION,"
                " learn.microsoft.com/windows/win32/api/directml; DmlOperator.cpp"
            ),
            since=_SINCE,
            short="half precision where the GPU can",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because="DirectML has no BF16: nothing runs in it; take fp16",
            source=_LISTED,
            since=_SINCE,
        ),
    ),
)
