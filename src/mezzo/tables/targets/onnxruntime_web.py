"""ONNX Runtime in the browser, on WebGPU. Operators without a WebGPU kernel run on the CPU, in
WebAssembly.

As in onnxruntime-cuda, a range ends with the last version a kernel is registered for.
"""

from dataclasses import replace

from mezzo.formats.block_storage import BITS, BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.rows import EVERY_VERSION
from mezzo.tables.runtime import Runtime
from mezzo.tables.sums import LowSum
from mezzo.tables.target import Gain, KernelListing, Refusal, Target, kernels

_SOURCE = (
    "webgpu_execution_provider.cc at 003f772b, webgpu_contrib_kernels.cc at 01671d9c,"
    " microsoft/onnxruntime"
)
_SINCE = "ONNX Runtime, main at 003f772b"

_F16 = """
    Abs 6-13, Acos 7, Acosh 9, Add 7-14, ArgMax 1-13, ArgMin 1-13, Asin 7, Asinh 9, Atan 7, Atanh 9,
    AveragePool 7-11, BatchNormalization 7-15, Cast 6-19, Ceil 6-13, Clip 11-13, Concat 1-13,
    Conv 1-11, ConvTranspose 1-11, Cos 7, Cosh 9, CumSum 11-14, DepthToSpace 11-13,
    DequantizeLinear 10-21, Div 7-14, Elu 6, Equal 7-19, Erf 9-13, Exp 6-13, Expand 8-13,
    Flatten 1-21, Floor 6-13, Gather 1-13, GatherElements 11-13, Gelu 20, Gemm 7-13,
    GlobalAveragePool 1, GlobalMaxPool 1, Greater 7-13, GreaterOrEqual 12-16, HardSigmoid 6,
    If 1-21, InstanceNormalization 6, LayerNormalization 1-17, LeakyRelu 6-16, Less 7-13,
    LessOrEqual 12-16, Log 6-13, MatMul 1-13, MaxPool 1-12, Mul 7-14, Neg 6-13, Pad 2-23, Pow 7-15,
    Reciprocal 6-13, ReduceL1 1-18, ReduceL2 1-18, ReduceLogSum 1-18, ReduceLogSumExp 1-18,
    ReduceMax 1-20, ReduceMean 1-18, ReduceMin 1-20, ReduceProd 1-18, ReduceSum 1-13,
    ReduceSumSquare 1-18, Relu 6-14, Reshape 5-21, Resize 10-19, Shape 1-23, Sigmoid 6-13,
    SimplifiedLayerNormalization 1, Sin 7, Sinh 9, Slice 1-13, Softmax 1-13, Split 1-18, Sqrt 6-13,
    Squeeze 1-13, Sub 7-14, Tan 7, Tanh 6-13, ThresholdedRelu 10, Tile 6-13, Transpose 1-20,
    Unsqueeze 1-13, Where 9-16
"""
_CONTRIB_F16 = """
    Attention, BiasAdd, BiasGelu, BiasSplitGelu, FastGelu, FusedConv, GatherBlockQuantized, Gelu,
    GroupQueryAttention, MatMulNBits, MatMulNBitsMlp, MatMulNBitsQkv, MultiHeadAttention, QMoE,
    QuickGelu, RotaryEmbedding, SkipLayerNormalization, SkipSimplifiedLayerNormalization
"""

_TRIED = (
    "one small model per operator on the WebGPU provider of onnxruntime-node 1.30.0, Vulkan on Mesa"
    " 25's lavapipe"
)
_FAILS = (
    Refusal(
        dialect="onnx",
        op="BatchNormalization",
        because="takes no low input with FP32 statistics on WebGPU",
        source=_TRIED,
        dtypes=frozenset({DType.FLOAT16}),
        versions=(14, EVERY_VERSION[1]),
        since="ONNX Runtime 1.30.0",
    ),
    Refusal(
        dialect="onnx",
        op="CumSum",
        because="adds one term after another in f16: 4,096 ones are 2,048",
        source=_TRIED,
        dtypes=frozenset({DType.FLOAT16}),
        since="ONNX Runtime 1.30.0",
    ),
    Refusal(
        dialect="onnx",
        op="ThresholdedRelu",
        because="registered for f16 on WebGPU, but fails when it runs",
        source=_TRIED,
        dtypes=frozenset({DType.FLOAT16}),
        since="ONNX Runtime 1.30.0",
    ),
)

_IN_BLOCKS_TRIED = (
    "right in both types with and without zero points, one row and 70, on the WebGPU provider of"
    " onnxruntime-web 1.30.0, Vulkan on Mesa 25's lavapipe, and on no GPU: speed not known"
)
_FLAT = frozenset({None, 0})


def _blocks(
    op: str, *, bits: int, along: int, because: str = "MatMulNBits", **attributes: object
) -> BlockKernel:
    return BlockKernel(
        op=op,
        bits=bits,
        axis=along,
        blocks=(32, 16, 64, 128, 256),
        floats=frozenset({HIGH, DType.FLOAT16}),
        form=BlockForm.FUSED,
        attributes=attributes,
        source=f"{because}, {_IN_BLOCKS_TRIED}",
        since="ONNX Runtime 1.30.0",
    )


# At accuracy level 4 GPUs with subgroups round activations to INT8, 128 elements at a time
# (dp4a_matmul_nbits.cc), and others do not.
_IN_BLOCKS = tuple(
    _blocks(op, bits=bits, along=along, **attributes)
    for bits in BITS
    for op, along, attributes in MATMUL_N_BITS
) + tuple(
    replace(
        _blocks("Gather", bits=bits, along=1, because="GatherBlockQuantized", axis=_FLAT),
        operand=0,
        block_multiple=multiple,
    )
    # In four bits: "scales and zero_points must have the same shape", for an odd number of blocks.
    for bits, multiple in ((4, 2), (8, None))
)

# On this device each product is rounded too; a GPU may round a product and its addition once.
_SUMS_MEASURED = (
    "benchmarks/device_sums.py, on onnxruntime-web 1.30.0, Vulkan on Mesa 25's lavapipe"
)


def _low_sum(ops: str, lanes: int = 1, least_terms: int = 0) -> LowSum:
    return LowSum(
        ops=frozenset(ops.split()),
        dtype=DType.FLOAT16,
        lanes=lanes,
        least_terms=least_terms,
        source=_SUMS_MEASURED,
        since="ONNX Runtime 1.30.0",
    )


_SUMS = (
    _low_sum("Conv ConvTranspose Gemm MatMul"),
    # Where there is one result, 256 lanes.
    _low_sum(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSum ReduceSumSquare",
        lanes=64,
    ),
    _low_sum("AveragePool GlobalAveragePool", lanes=128, least_terms=128),
    # 64 accumulators of four lanes.
    _low_sum("Softmax", lanes=256),
)

TARGET = Target(
    name="onnxruntime-web",
    also=(
        "web",
        "webgpu",
        "browser",
        "wgpu",
        "js",
        "ort-web",
        "onnxruntime",
        "ort",
        "transformers.js",
        "WebGpuExecutionProvider",
    ),
    runtime=Runtime(
        package="onnxruntime-web",
        driver="webgpu",
        is_timed=False,
        hardware="WebGPU",
        elsewhere="npm install onnxruntime-web, and load the result in a browser",
    ),
    summary=(
        "what ONNX Runtime's WebGPU provider has kernels for, in a browser; tried in Node.js, not"
        " probed here"
    ),
    refusals=_FAILS,
    sums=_SUMS,
    newest={"onnx": 26},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    notes=(
        "On a device without the WebGPU feature shader-f16 an FP16 model does not run on WebGPU.",
    ),
    listings=(
        KernelListing(
            dtype=DType.FLOAT16,
            kernels=kernels("onnx", _F16) + kernels("com.microsoft", _CONTRIB_F16),
            because="no WebGPU kernel in f16 (it would leave the GPU)",
            source=_SOURCE,
            since=_SINCE,
        ),
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=(),
            because="WebGPU's language has no bf16, so no kernel",
            source="W3C, WebGPU Shading Language, scalar types",
            since=_SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="FP16 is computed on the GPU",
            source="W3C, WebGPU, shader-f16",
            since=_SINCE,
            needs=("shader-f16",),
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because="WebGPU has no BF16: nothing runs in it; take fp16",
            source="W3C, WebGPU Shading Language, scalar types",
            since=_SINCE,
        ),
    ),
)
