"""MIGraphX on AMD's GPUs, alone or as a provider of ONNX Runtime: from documents, never run by
mezzo.

The rows are those of the documented table of operators. It names no BF16, which the page of types
lists as fully supported: the same operators are taken for both. FP8 is its own (E4M3FNUZ), which
mezzo does not write.
"""

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, KernelListing, Refusal, Target, kernels

_SINCE = "MIGraphX, develop at 0a3b3851"
_LISTED = "from documents, not run here: docs/dev/onnx_operators.rst, ROCm/AMDMIGraphX at 0a3b3851"
_TYPES = (
    "from documents, not run here: MIGraphX precision support,"
    " docs/reference/MIGraphX-data-type-support.rst, ROCm/AMDMIGraphX at b35ee06c"
)

# The table has Celu in FP32 alone.
_OPERATORS = """
    Abs, Acos, Acosh, Add, ArgMax, ArgMin, Asin, Asinh, Atan, Atanh, AveragePool,
    BatchNormalization, Cast, CastLike, Ceil, Clip, Concat, Constant, ConstantOfShape, Conv,
    ConvTranspose, Cos, Cosh, CumSum, DepthToSpace, DequantizeLinear, Div, Dropout,
    DynamicQuantizeLinear, Einsum, Elu, Equal, Erf, Exp, Expand, EyeLike, Flatten, Floor, GRU,
    Gather, GatherElements, GatherND, Gelu, Gemm, GlobalAveragePool, GlobalLpPool, GlobalMaxPool,
    Greater, GreaterOrEqual, GridSample, GroupNormalization, HardSigmoid, HardSwish, Hardmax,
    Identity, If, InstanceNormalization, IsInf, IsNaN, LRN, LSTM, LayerNormalization, LeakyRelu,
    Less, LessOrEqual, Log, LogSoftmax, Loop, LpNormalization, LpPool, MatMul, Max, MaxPool, Mean,
    MeanVarianceNormalization, Min, Mod, Mul, Multinomial, Neg, NonMaxSuppression, NonZero, OneHot,
    PRelu, Pad, Pow, QuantizeLinear, RNN, RandomNormal, RandomNormalLike, RandomUniform,
    RandomUniformLike, Range, Reciprocal, ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp,
    ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, Relu, Reshape, Resize,
    ReverseSequence, RoiAlign, Round, Scan, Scatter, ScatterElements, ScatterND, Selu, Shape,
    Shrink, Sigmoid, Sign, Sin, Sinh, Size, Slice, Softmax, Softplus, Softsign, SpaceToDepth, Split,
    Sqrt, Squeeze, Sub, Sum, Tan, Tanh, ThresholdedRelu, Tile, TopK, Transpose, Trilu, Unique,
    Unsqueeze, Upsample, Where
"""
_CONTRIB = "BiasGelu, FastGelu, MatMulNBits"
_LISTINGS = tuple(
    KernelListing(
        dtype=dtype,
        kernels=kernels("onnx", _OPERATORS) + kernels("com.microsoft", _CONTRIB),
        because=f"MIGraphX's table of operators has no kernel of it in {dtype}",
        source=source,
        since=_SINCE,
    )
    for dtype, source in ((DType.FLOAT16, _LISTED), (DType.BFLOAT16, f"{_LISTED}; {_TYPES}"))
)

# parse_matmulnbits.cpp: with a bias, where a Gemm's goes, its zero points would be ignored.
_IN_BLOCKS = (
    BlockKernel(
        op="MatMul",
        axis=0,
        bits=4,
        blocks=(32, 16, 64, 128, 256),
        floats=frozenset({HIGH, DType.FLOAT16}),
        form=BlockForm.FUSED,
        source=(
            "from documents, not run here: parse_matmulnbits.cpp, ROCm/AMDMIGraphX: four bits,"
            " blocks of a power of two from 16, unpacked around the product; speed not known"
        ),
        since=_SINCE,
    ),
)

TARGET = Target(
    name="migraphx",
    also=(
        "amd",
        "rocm",
        "radeon",
        "instinct",
        "hip",
        "gpu",
        "migraphx-driver",
        "ort-migraphx",
        "onnxruntime-migraphx",
        "onnxruntime-rocm",
        "MIGraphXExecutionProvider",
        "ROCMExecutionProvider",
    ),
    runtime=Runtime(
        package="onnxruntime-migraphx",
        hardware="an AMD GPU",
        elsewhere="pip install onnxruntime-migraphx, or migraphx-driver, where the GPU is",
    ),
    summary="what MIGraphX's ONNX parser takes, on AMD's GPUs; from documents, not run here",
    refusals=(
        Refusal(
            dialect="onnx",
            op="Pad",
            because="MIGraphX pads neither edge nor wrap",
            source=_LISTED,
            attributes={"mode": frozenset({"edge", "wrap"})},
            since=_SINCE,
        ),
        Refusal(
            dialect="onnx",
            op="Resize",
            because="MIGraphX has no cubic interpolation",
            source=_LISTED,
            attributes={"mode": "cubic"},
            since=_SINCE,
        ),
    ),
    newest={"onnx": 19},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    notes=("These rows are from documents: mezzo never ran MIGraphX.",),
    listings=_LISTINGS,
    gains=tuple(
        Gain(
            dtype=dtype,
            is_faster=True,
            because=f"{name} is a type that MIGraphX computes in, where the GPU has it",
            source=_TYPES,
            since=_SINCE,
            short=f"{name} on GPUs that have it",
        )
        for dtype, name in ((DType.FLOAT16, "FP16"), (DType.BFLOAT16, "BF16"))
    ),
)
