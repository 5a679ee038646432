"""PyTorch on CPUs, compiled by Inductor: matmuls in oneDNN, the rest in generated kernels."""

from dataclasses import replace

from mezzo.formats.block_storage import WHOLE_ROW, BlockForm
from mezzo.formats.dtypes import HALF_FORMATS, HIGH, DType
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.fusions import fused_by_inductor
from mezzo.tables.inductor_rows import quantized_by_inductor
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, weight
from mezzo.tables.runtime import Runtime
from mezzo.tables.sums import MULTIPLIES_INT8, VNNI, PairSum
from mezzo.tables.target import Gain, Target

_SINCE = "PyTorch 2.13"

_ONE_ROW = (
    "ATen's _weight_int4pack_mm_for_cpu, AVX512, one thread: at one row 1.4 to 2.8 times as fast as"
    " oneDNN's BF16 with a packed weight, as fast at four; for more rows mezzo computes in BF16"
)
_ONE_INT8_ROW = (
    "ATen's _weight_int8pack_mm, AVX512, one thread: at one row 1.2 to 1.8 times as fast as"
    " oneDNN's BF16 with a packed weight; for more than four rows mezzo computes in BF16"
)


def _int4(op: str) -> BlockKernel:
    """With FP32 or FP16 operands the kernel takes 30 to 50 times as long."""
    return BlockKernel(
        dialect="aten",
        op=op,
        axis=0,
        bits=4,
        blocks=(32, 64, 128, 256),
        block_multiple=1,
        floats=frozenset({DType.BFLOAT16}),
        form=BlockForm.FUSED,
        source=_ONE_ROW,
        since=_SINCE,
    )


def _int8_weights(op: str) -> BlockKernel:
    return BlockKernel(
        dialect="aten",
        op=op,
        axis=0,
        bits=8,
        blocks=(WHOLE_ROW,),
        length_multiple=32,  # with others it is wrong
        is_symmetric=True,
        floats=frozenset({DType.BFLOAT16}),
        form=BlockForm.FUSED,
        source=_ONE_INT8_ROW,
        since=_SINCE,
    )


def _table(bits: int, *blocks: int) -> BlockKernel:
    return BlockKernel(
        dialect="aten",
        op="embedding",
        operand=0,
        axis=1,
        bits=bits,
        blocks=blocks,
        floats=frozenset({HIGH}),
        form=BlockForm.FUSED,
        reads_floats=True,
        source="mezzo.torch keeps the floats of weights",
        since=_SINCE,
    )


_IN_BLOCKS = (
    _int4("mm"),
    _int4("addmm"),
    _table(4, 32, 64, 128, 256),
    _int8_weights("mm"),
    _int8_weights("addmm"),
    _table(8, WHOLE_ROW),
)

_INT8 = (
    "oneDNN's qlinear_pointwise and qconv_pointwise in frozen graphs, which take U8 activations and"
    " S8 weights with a scale for each output channel, and make FP32, BF16 or U8"
)
_AT_RUN_TIME = (
    "oneDNN's qlinear_pointwise, of rows that generated kernels quantize, each in its own range"
)


def _int8(op: str, *, axis: int) -> QuantizedKernel:
    return QuantizedKernel(
        dialect="aten",
        op=op,
        operands=(Operand(position=0), weight(1, axis=axis)),
        hands=OutputMode.EITHER,
        followers=frozenset({"aten:relu"}),
        through=frozenset({"aten:permute"} if axis == 1 else ()),
        source=_INT8,
        since=_SINCE,
        needs=MULTIPLIES_INT8,
    )


def _dynamic(op: str, *, axis: int) -> QuantizedKernel:
    """No convolution: on ResNet-50 one was a fifth as fast as in FP32."""
    row = replace(_int8(op, axis=axis), hands=OutputMode.FLOATS, is_dynamic=True)
    return replace(row, followers=frozenset(), source=_AT_RUN_TIME)


_SUM = QuantizedKernel(
    dialect="aten",
    op="add",
    operands=(Operand(position=0), Operand(position=1)),
    last_is_float=True,
    hands=OutputMode.EITHER,
    followers=frozenset({"aten:relu"}),
    source="oneDNN's qconv2d_pointwise.binary adds integers to its sums",
    since=_SINCE,
    needs=MULTIPLIES_INT8,
)


def _max_pool(op: str, dialect: str = "aten") -> QuantizedKernel:
    return QuantizedKernel(
        dialect=dialect,
        op=op,
        operands=(Operand(position=0, rank=4),),
        hands=OutputMode.READ,
        source="ATen's quantized::max_pool2d",
        since=_SINCE,
        needs=MULTIPLIES_INT8,
    )


_QUANTIZED = (
    *quantized_by_inductor(_SINCE, MULTIPLIES_INT8),
    _int8("linear", axis=0),
    _int8("mm", axis=1),
    _int8("addmm", axis=1),
    _int8("conv1d", axis=0),
    _int8("conv2d", axis=0),
    _int8("convolution", axis=0),
    _SUM,
    _max_pool("max_pool2d"),
    _max_pool("max_pool2d_with_indices"),
    _max_pool("_low_memory_max_pool_with_offsets", "prims"),
    _dynamic("linear", axis=0),
    _dynamic("mm", axis=1),
    _dynamic("addmm", axis=1),
)

TARGET = Target(
    name="torch-cpu",
    runtime=Runtime(
        package="torch",
        device="cpu",
        elsewhere="mezzo.torch.compile(model), where PyTorch is",
    ),
    summary="torch.compile with Inductor, on CPUs with BF16 or FP16 instructions",
    formats=HALF_FORMATS | {DType.QUANTIZED8},
    in_blocks=_IN_BLOCKS,
    quantized=_QUANTIZED,
    pair_sum=PairSum(
        unless=VNNI,
        source="uniform integers, AVX2: .20 to .27 off; exact with pairs up to 128",
        since=_SINCE,
    ),
    fusions=(fused_by_inductor(_SINCE),),
    gains=(
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=True,
            because="oneDNN multiplies BF16 where the CPU does",
            source="oneDNN, Data Types",
            since=_SINCE,
            needs=("amx_bf16", "avx512_bf16"),
        ),
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="oneDNN multiplies FP16 where the CPU does",
            source="oneDNN, Data Types",
            since=_SINCE,
            needs=("amx_fp16", "avx512_fp16"),
        ),
    ),
)
