"""ONNX Runtime's CUDA provider: its kernels by operator, version and type. Operators without a
kernel leave the GPU.

The rows are those of the documented list of kernels, verified on the provider with
`tools/probe_runtimes.py`. A kernel serves the versions it is registered for, many up to 13 or 18;
newer versions than documented were observed to run. Operators that the provider decomposes into
others have no kernel here: sessions of larger models fail on them. A range starts before the first
version whose schema allows the type, so that raising the opset to 13 is seen to help. Raising it to
22 is not: it would gain a few BF16 kernels (Conv, AveragePool) and take MaxPool, among others, off
the GPU.
"""

from functools import partial

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HALF_FORMATS, HIGH, DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.fusions import Constraint, Fusion, Inside, Stage, Step
from mezzo.tables.runtime import NVIDIA_GPU, Runtime
from mezzo.tables.target import Gain, KernelListing, RaisedOperator, Refusal, Target, kernels

_SINCE = "ONNX Runtime 1.31.1"
_SOURCE = (
    f"docs/OperatorKernels.md, microsoft/onnxruntime at 001d12d2; probe of {_SINCE} on an H100"
)
_HARDWARE = "Support Matrix, Hardware and Precision, NVIDIA TensorRT-RTX 1.4"
_BECAUSE = "no CUDA kernel in {} (it would leave the GPU)"

_BOTH = """
    Attention 23-24, Cast 6-23, Compress 9-11, Concat 4-13, ConcatFromSequence 11,
    ConstantOfShape 9-25, Dropout 7-13, DynamicSlice 1, Expand 8-13, Flatten 1-25, Gather 1-13,
    GatherElements 11-13, Gelu 20, Identity 1-25, If 1-19, IsInf 10-20, IsNaN 9-20,
    LayerNormalization 1-17, Loop 1-19, MatMul 1-13, Max 6-13, Min 6-13, RMSNormalization 23,
    ReduceSum 1-13, Reshape 1-25, ReverseSequence 10, RotaryEmbedding 23, Scan 8-19, Scatter 9-10,
    ScatterElements 11-18, ScatterND 11-18, SequenceAt 11, SequenceConstruct 11, SequenceEmpty 11,
    SequenceErase 11, SequenceInsert 11, SequenceLength 11, Shape 1-23, Sign 9-13,
    SimplifiedLayerNormalization 1, Size 1-13, Slice 1-13, Softmax 1-13, Split 2-18, Squeeze 1-25,
    Sum 6-13, TensorScatter 24, Transpose 1-25, Trilu 14, Unsqueeze 1-25
"""
_F16 = """
    Abs 6-13, Add 7-14, Affine 1, ArgMax 1-13, ArgMin 1-13, AveragePool 7-22,
    BatchNormalization 7-9, Ceil 6-13, Clip 12-13, Conv 1-22, ConvTranspose 1-22, Cos 7-22, Crop 1,
    CumSum 11-14, DeformConv 19-22, DepthToSpace 1-13, DequantizeLinear 10-25, Div 7-14, Einsum 12,
    Elu 6, Equal 7-19, Erf 9-13, Exp 6-13, Floor 6-13, GRU 7-14, GatherND 11-13, Gemm 7-13,
    GlobalAveragePool 1-22, GlobalMaxPool 1-22, Greater 7-13, GreaterOrEqual 12-16,
    HardSigmoid 6-22, HardSwish 14-22, ImageScaler 1, InstanceNormalization 6, LRN 1-13, LSTM 7-22,
    LeakyRelu 6-16, Less 7-13, LessOrEqual 12-16, Log 6-13, LogSoftmax 1-13, LpNormalization 1-22,
    MaxPool 1-12, Mod 10-13, Mul 7-14, Neg 6-13, NonZero 9-13, OneHot 11, PRelu 7-16, Pad 2-25,
    ParametricSoftplus 1, Pow 7-15, QuantizeLinear 10-25, RNN 7-22, RandomNormal 1-22,
    RandomNormalLike 1-22, RandomUniform 1-22, RandomUniformLike 1-22, Reciprocal 6-13,
    ReduceL1 1-18, ReduceL2 1-18, ReduceLogSum 1-18, ReduceLogSumExp 1-18, ReduceMax 1-20,
    ReduceMean 1-18, ReduceMin 1-20, ReduceProd 1-18, ReduceSumSquare 1-18, Relu 6-14, Resize 10-19,
    RoiAlign 16-22, Round 11-22, ScaledTanh 1, Selu 6, Shrink 9, Sigmoid 6-13, Sin 7-22, Softplus 1,
    Softsign 1, SpaceToDepth 1-13, Sqrt 6-13, Sub 7-14, Tanh 6-13, ThresholdedRelu 1-10, Tile 6-13,
    TopK 1-24, Upsample 7-9, Where 9-16
"""
_BF16 = """
    Abs 1-13, Add 1-14, AveragePool 22, Conv 22, Cos 22, DeformConv 22, Div 1-14, Erf 1-13,
    Exp 1-13, GatherND 1-13, Gemm 1-13, HardSigmoid 22, HardSwish 22, LpNormalization 22, Mod 1-13,
    Mul 1-14, Neg 1-13, Pow 1-12, Pow 15, RandomNormal 22, RandomNormalLike 22, RandomUniform 22,
    RandomUniformLike 22, ReduceMean 18, Relu 1-14, RoiAlign 22, Sigmoid 1-13, Sin 22, Sqrt 1-13,
    Sub 1-14, Tanh 1-13, Tile 1-13, TopK 24, Where 1-16
"""
_CONTRIB_BOTH = """
    Attention, BiasDropout, BiasGelu, BitmaskBiasDropout, BitmaskDropout, BranchwiseRMSNorm,
    CausalConvWithState, EngramGate, FastGelu, FusedMatMul, GatedAdd, GatedDeltaNet, GatedRMSNorm,
    GatherBlockQuantized, Gelu, GemmFloat8, GroupQueryAttention, HyperConnectionPostMix,
    HyperConnectionPreMix, LinearAttention, MatMulBnb4, MatMulNBits, MoE, MultiHeadAttention,
    PagedAttention, QMoE, QuickGelu, RotaryEmbedding, ScaledSiLU, SkipLayerNormalization,
    SkipSimplifiedLayerNormalization, SparseAttention, TransposeMatMul, Trilu, UnfoldTensor,
    VarlenCausalConvWithState
"""
_CONTRIB_F16 = """
    BiasAdd, BiasSoftmax, BiasSplitGelu, ComplexMul, ComplexMulConj, DecoderAttention,
    DecoderMaskedMultiHeadAttention, DecoderMaskedSelfAttention, DequantizeLinear,
    DequantizeWithOrder, EmbedLayerNormalization, GatedRelativePositionBias, GemmaRotaryEmbedding,
    GroupNorm, Inverse, Irfft, LongformerAttention, NhwcConv, PackedAttention,
    PackedMultiHeadAttention, QAttention, QOrderedLayerNormalization, QuantizeLinear,
    QuantizeWithOrder, RelativePositionBias, RemovePadding, RestorePadding, Rfft, SkipGroupNorm
"""

_CONTRIB_BF16 = "MatMulBlockQuantizedFp4Weight, MatMulBlockQuantizedFp8Weight"

_BLOCK_TIMES = (
    "an H100, chains of 2048 x 2048 and 4096 x 4096 larger than its cache, as CUDA graphs"
)
_FLAT = frozenset({None, 0})


def _blocks(
    op: str,
    *,
    bits: int,
    along: int,
    blocks: tuple[int, ...],
    because: str,
    operand: int = 1,
    multiple: int | None = None,
    least: int = 0,
    **attributes: object,
) -> BlockKernel:
    return BlockKernel(
        op=op,
        operand=operand,
        axis=along,
        bits=bits,
        blocks=blocks,
        block_multiple=multiple,
        least_elements=least,
        floats=frozenset({HIGH, *HALF_FORMATS}),
        form=BlockForm.FUSED,
        attributes=attributes,
        source=f"{because}; benchmarks/cuda_blocks.py on an H100",
        since=_SINCE,
    )


# Elements of the smallest product that was timed, 576 x 1536.
_LEAST_PRODUCT = 576 * 1536
# Accuracy level 4 gives the same kernels. DequantizeLinear with blocks before a MatMul is fused to
# MatMulNBits in FP32 and FP16, has no kernel in BF16, and none of eight bits before a Gather.
_IN_BLOCKS = tuple(
    _blocks(
        op,
        bits=bits,
        along=along,
        blocks=blocks,
        because=because,
        least=_LEAST_PRODUCT,
        **attributes,
    )
    for bits, blocks, because in (
        # Blocks of 256 are refused at one row: matmul_4bits_m1_impl.cuh, line 155.
        (
            4,
            (32, 16, 64, 128),
            "MatMulNBits, one row: 1.2 to 2.0 times as fast as FP32, 1.1 to 1.6 times FP16; from 16"
            " rows on slower",
        ),
        (
            8,
            (32, 16, 64, 128, 256),
            "MatMulNBits, one row: 1.2 to 1.6 times as fast as FP32, 1.0 to 1.1 times FP16; from 16"
            " rows on slower",
        ),
    )
    for op, along, attributes in MATMUL_N_BITS
) + tuple(
    # Wrong answers (errors of .3 to 1.6) where the last block is shorter and, in four bits, where
    # the zero points of a row end in half a byte: 576 elements in blocks of 64, 128 or 256.
    _blocks(
        "Gather",
        bits=bits,
        along=1,
        operand=0,
        blocks=(32, 16, 64, 128),
        multiple=multiple,
        because="GatherBlockQuantized, right for whole blocks, in four bits an even number a row",
        axis=_FLAT,
    )
    for bits, multiple in ((4, 2), (8, 1))
)

_EXTENDED = "optimized graphs at level EXTENDED ({})"
_DOCUMENT = "documentation, Graph Optimizations ({})"
_HALVES = Constraint(formats=HALF_FORMATS)
_NOT_BF16 = Constraint(formats=frozenset({DType.FLOAT16}))
# Statistics are accumulated in FP32 for any input type. The fusion of a decomposed norm absorbs
# Casts before it and before its scale; a norm in one operator absorbs none.
_IN_FLOAT32 = Constraint(inside=Inside.FLOAT32, formats=HALF_FORMATS)
_IN_ONE_TYPE = Constraint(inside=Inside.FLOAT32, formats=HALF_FORMATS, is_linked=True)
_AFTER_GEMM = Stage(
    activations=frozenset({
        "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign",
        "Tanh",
    })
)  # fmt: skip
_fusion = partial(Fusion, since=_SINCE)
_SKIP_NORM = _DOCUMENT.format("Skip Layer Normalization fusion")
_FUSIONS = (
    _fusion(
        pattern="matmul",
        source=_DOCUMENT.format("MatMul Add fusion"),
        constraint=_HALVES,
        form="gemm",
        epilogues=((_AFTER_GEMM,),),
    ),
    _fusion(
        pattern="convolution",
        source=(
            "optimized graphs at level EXTENDED: scales and shifts in the weights; no activation,"
            " no sum"
        ),
        constraint=_HALVES,
        operators=frozenset({"Conv"}),
        epilogues=((Stage(step=Step.SCALE_CHANNELS, most=4),),),
    ),
    _fusion(
        pattern="bias-gelu", source=_EXTENDED.format("BiasGelu, FastGelu"), constraint=_NOT_BF16
    ),
    _fusion(
        pattern="gelu",
        source=_EXTENDED.format("Gelu, FastGelu"),
        constraint=_NOT_BF16,
        form="usual",
    ),
    _fusion(pattern="silu", source=_EXTENDED.format("QuickGelu"), constraint=_HALVES),
    _fusion(pattern="skip-layer-norm", source=_SKIP_NORM, constraint=_IN_ONE_TYPE, form="operator"),
    _fusion(
        pattern="skip-layer-norm", source=_SKIP_NORM, constraint=_IN_FLOAT32, form="written-out"
    ),
    _fusion(
        pattern="layer-norm",
        source=_DOCUMENT.format("Layer Normalization fusion"),
        constraint=_IN_FLOAT32,
        absorbs_casts=True,
    ),
    _fusion(
        pattern="rms-norm",
        source=_DOCUMENT.format("Simplified Layer Normalization fusion"),
        constraint=_IN_FLOAT32,
    ),
    _fusion(pattern="bias-softmax", source=_EXTENDED.format("BiasSoftmax"), constraint=_NOT_BF16),
    _fusion(
        pattern="matmul-scale",
        source="kernel FusedMatMul in docs/OperatorKernels.md",
        constraint=_HALVES,
    ),
)

TARGET = Target(
    name="onnxruntime-cuda",
    also=(
        "cuda",
        "gpu",
        "nvidia",
        "ort",
        "onnxruntime",
        "ort-cuda",
        "ort-gpu",
        "onnxruntime-gpu",
        "CUDAExecutionProvider",
    ),
    runtime=Runtime(
        package="onnxruntime-gpu",
        module="onnxruntime",
        provider="CUDAExecutionProvider",
        driver="onnxruntime",
        hardware=NVIDIA_GPU,
        elsewhere="pip install onnxruntime-gpu, in an environment of its own, where the GPU is",
    ),
    summary="what ONNX Runtime's CUDA provider has kernels for",
    refusals=(
        Refusal(
            dialect="onnx",
            op="ScatterND",
            because="the CUDA kernel scatters bf16 without reduction only",
            source=_SOURCE,
            dtypes=frozenset({DType.BFLOAT16}),
            attributes={"reduction": frozenset({"add", "mul", "max", "min"})},
            since=_SINCE,
        ),
    ),
    newest={"onnx": 26},
    # Not with softmax_precision, which no kernel takes: they sum in FP32.
    raised=(
        RaisedOperator(
            op="Attention",
            source=(
                "not timed here: microsoft/onnxruntime #27542, flash and memory-efficient kernels;"
                " #27983, casts around 22 softmaxes make a model 1.4 times slower"
            ),
            since="ONNX Runtime 1.25",
        ),
        RaisedOperator(
            op="RotaryEmbedding",
            source="not timed here: docs/OperatorKernels.md, one kernel in place of six",
            since=_SINCE,
        ),
    ),
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    fusions=_FUSIONS,
    notes=(
        (
            "Many CUDA kernels end at an operator's version of opset 13 to 18: where a newer opset"
            " is not needed for the type, convert with --opset keep."
        ),
    ),
    listings=(
        KernelListing(
            dtype=DType.FLOAT16,
            kernels=kernels("onnx", f"{_BOTH},{_F16}")
            + kernels("com.microsoft", f"{_CONTRIB_BOTH},{_CONTRIB_F16}"),
            because=_BECAUSE.format("f16"),
            source=_SOURCE,
            since=_SINCE,
        ),
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=kernels("onnx", f"{_BOTH},{_BF16}")
            + kernels("com.microsoft", f"{_CONTRIB_BOTH},{_CONTRIB_BF16}"),
            because=_BECAUSE.format("bf16"),
            source=_SOURCE,
            since=_SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="FP16 is computed on tensor cores",
            source=_HARDWARE,
            since="compute capability 7.5",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=True,
            because="BF16 is computed on tensor cores",
            source=_HARDWARE,
            since="compute capability 8.0",
            needs=("compute capability 8.0 (Ampere)",),
        ),
        *(
            Gain(
                dtype=dtype,
                is_faster=True,
                because="a product of one row is as fast as its weight is read from memory",
                source=f"MatMulNBits on {_BLOCK_TIMES}, one row: {speed}; 16 rows .4 to .9 times",
                since=_SINCE,
                short="fewer bytes of weights to read, for products of one row",
            )
            for dtype, speed in (
                (DType.INT4, "1.2 to 2.0 times FP32's speed, 1.1 to 1.6 times FP16's"),
                (DType.INT8, "1.2 to 1.6 times FP32's speed, 1.0 to 1.1 times FP16's"),
            )
        ),
    ),
)
