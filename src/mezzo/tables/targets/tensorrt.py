"""TensorRT, strongly typed: the operators that its ONNX parser imports in each type."""

from dataclasses import replace
from functools import partial

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HALF_FORMATS, HIGH, DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.facts import Function
from mezzo.tables.fusions import Constraint, Fusion, Stage, Step
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, weight
from mezzo.tables.runtime import NVIDIA_GPU, Runtime
from mezzo.tables.target import Gain, KernelListing, Refusal, Target, kernels

_SOURCE = "docs/operators.md, onnx/onnx-tensorrt"
_SINCE = "TensorRT 10.15"
_HARDWARE = "Support Matrix, Hardware and Precision, NVIDIA TensorRT-RTX 1.4"

_BOTH = """
    Abs, Acos, Acosh, Add, ArgMax, ArgMin, Asin, Asinh, Atan, Atanh, Attention, AveragePool,
    BatchNormalization, Cast, CastLike, Ceil, Celu, Clip, Concat, Constant, ConstantOfShape, Conv,
    ConvTranspose, Cos, Cosh, CumSum, DepthToSpace, Div, Dropout, Einsum, Elu, Equal, Erf, Exp,
    Expand, EyeLike, Flatten, Floor, GRU, Gather, GatherElements, GatherND, Gelu, Gemm,
    GlobalAveragePool, GlobalLpPool, GlobalMaxPool, Greater, GreaterOrEqual, GroupNormalization,
    HardSigmoid, HardSwish, Hardmax, Identity, If, ImageScaler, InstanceNormalization, IsInf, IsNaN,
    LRN, LSTM, LayerNormalization, LeakyRelu, Less, LessOrEqual, Log, LogSoftmax, Loop,
    LpNormalization, LpPool, MatMul, Max, MaxPool, Mean, MeanVarianceNormalization, Min, Mod, Mul,
    Neg, OneHot, PRelu, Pad, ParametricSoftplus, Pow, QuantizeLinear, RMSNormalization, RNN,
    RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike, Range, Reciprocal, ReduceL1,
    ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceMax, ReduceMean, ReduceMin, ReduceProd,
    ReduceSum, ReduceSumSquare, Relu, Reshape, Resize, ReverseSequence, RotaryEmbedding, Round,
    ScaledTanh, Scan, Scatter, ScatterElements, ScatterND, Selu, Shape, Shrink, Sigmoid, Sign, Sin,
    Sinh, Size, Slice, Softmax, Softplus, Softsign, SpaceToDepth, Split, Sqrt, Squeeze, Sub, Sum,
    Tan, Tanh, TensorScatter, ThresholdedRelu, Tile, TopK, Transpose, Trilu, Unsqueeze, Upsample,
    Where
"""
# DequantizeLinear outputs the type of its scale; the table lists its quantized input types.
_DEQUANTIZE = "DequantizeLinear"
_F16 = "BlackmanWindow, DeformConv, GridSample, HammingWindow, HannWindow, Mish, NonZero, RoiAlign"

_PLACEMENT = "from documents, not run here: Explicit Quantization, Q/DQ placement recommendations"
_ACTIVATIONS = frozenset(
    {
        "Add",
        "BatchNormalization",
        "Clip",
        "Gelu",
        "LeakyRelu",
        "Mul",
        "Relu",
        "Sigmoid",
        "Tanh",
        "gelu-erf",
        "gelu-tanh",
    }
    | {"silu"}
)
_COMMUTING = (
    "Concat", "Flatten", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
    "Unsqueeze",
)  # fmt: skip


def _data(position: int = 0, and_rest: bool = False) -> Operand:
    return Operand(position=position, dtype=DType.INT8, is_symmetric=True, and_rest=and_rest)


def _kernel(
    op: str,
    *operands: Operand,
    hands: OutputMode = OutputMode.EITHER,
    followers: frozenset[str] = frozenset(),
    **attributes: object,
) -> QuantizedKernel:
    return QuantizedKernel(
        op=op,
        operands=operands,
        hands=hands,
        followers=followers,
        source=_PLACEMENT,
        since=_SINCE,
        attributes=attributes,
    )


# Operators with FP8 kernels in TensorRT, for E4M3FN only.
_FP8_GEMM = (
    "from documents, not run here: Explicit Quantization; release notes 10.6 and 10.7, per-channel"
    " scaling"
)
_FP8_CONV = (
    "from documents, not run here: Explicit Quantization; release notes 10.12 and 10.13.3,"
    " limitations; TensorRT-RTX names FP8 for matrix products alone"
)
_FP8_ATTENTION = "from documents, not run here: release notes 10.6, FP8 multi-head attention"
# Convolution kernels have at most 32 elements.
_TOO_LARGE = frozenset(
    {*((size,) * 2 for size in range(6, 16)), *((size,) * 3 for size in range(4, 8))}
)


def _fp8(op: str, source: str, *operands: Operand, **attributes: object) -> QuantizedKernel:
    return QuantizedKernel(
        op=op,
        operands=tuple(replace(one, dtype=DType.FLOAT8E4M3FN) for one in operands),
        hands=OutputMode.EITHER,
        followers=_ACTIVATIONS,
        source=source,
        since=_SINCE,
        attributes=attributes,
        format=DType.QUANTIZED_E4M3,
    )


_FP8 = (
    _fp8("Conv", _FP8_CONV, _data(), weight(1), group=frozenset({None, 1})),
    _fp8("Gemm", _FP8_GEMM, _data(), weight(1, 0), transB=1),
    _fp8("Gemm", _FP8_GEMM, _data(), weight(1, -1), transB=frozenset({None, 0})),
    _fp8("MatMul", _FP8_GEMM, _data(), weight(1, -1, rank=2)),
    _fp8("MatMul", _FP8_ATTENTION, _data(), _data(1)),
)
_QUANTIZED = (
    _kernel("Conv", _data(), weight(1, 0), followers=_ACTIVATIONS),
    _kernel("ConvTranspose", _data(), weight(1, 1), followers=_ACTIVATIONS),
    _kernel("Gemm", _data(), weight(1, 0), followers=_ACTIVATIONS, transB=1),
    _kernel("Gemm", _data(), weight(1, -1), followers=_ACTIVATIONS, transB=frozenset({None, 0})),
    _kernel("MatMul", _data(), weight(1, -1, rank=2), followers=_ACTIVATIONS),
    _kernel("MatMul", _data(), _data(1), followers=_ACTIVATIONS),
    _kernel("Add", _data(), _data(1), followers=frozenset({"Clip", "Relu"})),
    *(_kernel(op, _data()) for op in ("AveragePool", "GlobalAveragePool")),
    *(_kernel(op, _data(and_rest=op == "Concat"), hands=OutputMode.PASSED) for op in _COMMUTING),
)

# Symmetric INT4 alone, for weights alone; scales per block along the last or second-last axis.
# docs.nvidia.com/deeplearning/tensorrt/11.0.0/inference-library/work-quantized-types.html
_IN_BLOCKS = tuple(
    BlockKernel(
        op=op,
        bits=4,
        axis=along,
        blocks=(128, 64),
        block_multiple=1,
        is_symmetric=True,
        floats=frozenset({HIGH, *HALF_FORMATS}),
        form=BlockForm.DEQUANTIZE,
        attributes=attributes,
        source=(
            "from documents, not run here: Working with Quantized Types, INT4; IDequantizeLayer,"
            " block quantization"
        ),
        since=_SINCE,
    )
    for op, along, attributes in MATMUL_N_BITS
)

_CATALOGUE = "documentation, Layer Fusion Catalog ({})"
_AFTER_CONV = Stage(
    activations=frozenset({"Clip", "Gelu", "LeakyRelu", "Relu", "gelu-erf", "gelu-tanh"})
)
_AFTER_MATMUL = Stage(
    activations=frozenset({"Gelu", "Relu", "Sigmoid", "Tanh", "gelu-erf", "gelu-tanh", "silu"})
)
_FOLDED = Stage(step=Step.SCALE_CHANNELS, most=4)
_fusion = partial(Fusion, since=_SINCE, constraint=Constraint(formats=HALF_FORMATS))
_MOST_KEYS = 32_000
_FUSIONS = (
    # A softmax in FP32 between Casts takes the kernel apart: 0 of 96 fused, 4.3 times slower and no
    # more accurate (Stability-AI/stable-audio-3 #79). Past 65,504 equal keys the fused kernel's sum
    # overflows in FP16 (tier4/autoware-ml #95).
    _fusion(
        pattern="attention",
        source=(
            "documentation, Fused Attention; Stability-AI/stable-audio-3 #79, tier4/autoware-ml #95"
        ),
        constraint=Constraint(
            formats=HALF_FORMATS, exact=frozenset({Function.SOFTMAX}), most_keys=_MOST_KEYS
        ),
    ),
    _fusion(
        pattern="convolution",
        source=_CATALOGUE.format("Convolution and activation, scale, element-wise sum"),
        operators=frozenset({"Conv"}),
        epilogues=((_FOLDED, _AFTER_CONV), (_FOLDED, Stage(step=Step.RESIDUAL), _AFTER_CONV)),
    ),
    _fusion(
        pattern="matmul",
        source=_CATALOGUE.format("PointWise fusion into matrix products"),
        operators=frozenset({"Gemm", "MatMul"}),
        epilogues=((Stage(step=Step.BIAS), _AFTER_MATMUL),),
    ),
    _fusion(pattern="gelu", source=_CATALOGUE.format("GELU")),
    _fusion(pattern="elementwise", source=_CATALOGUE.format("PointWise fusion")),
)

TARGET = Target(
    name="tensorrt",
    also=(
        "trt",
        "gpu",
        "nvidia",
        "trtexec",
        "ort-trt",
        "TensorrtExecutionProvider",
        "NvTensorRTRTXExecutionProvider",
    ),
    runtime=Runtime(
        package="tensorrt",
        module="tensorrt",
        hardware=NVIDIA_GPU,
        elsewhere=(
            "pip install tensorrt, or trtexec --stronglyTyped --onnx=RESULT, where the GPU is"
        ),
    ),
    summary=(
        "what TensorRT's ONNX parser imports, strongly typed: each layer runs in the type written"
        " in the file; not probed here"
    ),
    refusals=(
        Refusal(
            dialect="onnx",
            op="ScatterND",
            because="TensorRT scatters without reduction only",
            source=_SOURCE,
            attributes={"reduction": frozenset({"add", "mul", "max", "min"})},
            since=_SINCE,
        ),
        Refusal(
            dialect="onnx",
            op="Conv",
            because=(
                "its FP8 kernels take at most 32 numbers, and what is larger runs in floats, slower"
            ),
            source=_FP8_CONV,
            dtypes=frozenset({DType.QUANTIZED_E4M3}),
            attributes={"kernel_shape": _TOO_LARGE},
            since=_SINCE,
        ),
    ),
    newest={"onnx": 24},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    fusions=_FUSIONS,
    listings=(
        KernelListing(
            dtype=DType.FLOAT16,
            kernels=kernels("onnx", f"{_BOTH},{_DEQUANTIZE},{_F16}"),
            because="TensorRT's table of operators does not name FP16",
            source=_SOURCE,
            since=_SINCE,
        ),
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=kernels("onnx", f"{_BOTH},{_DEQUANTIZE}"),
            because="TensorRT's table of operators does not name BF16",
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
        Gain(
            dtype=DType.QUANTIZED8,
            is_faster=True,
            because="INT8 is multiplied on tensor cores",
            source=_HARDWARE,
            since="compute capability 7.5",
        ),
        Gain(
            dtype=DType.QUANTIZED_E4M3,
            is_faster=True,
            because="FP8 is multiplied on tensor cores",
            source="Working with Quantized Types, NVIDIA TensorRT-RTX",
            since="compute capability 8.9",
            needs=("compute capability 8.9 (Ada)",),
        ),
    ),
    quantized=(*_QUANTIZED, *_FP8),
    default_for=("fp16,bf16", "int8,fp16", "fp8", "fp8,fp16", "fp8,bf16"),
)
