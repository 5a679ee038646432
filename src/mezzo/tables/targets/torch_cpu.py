"""PyTorch on CPUs, compiled by Inductor: matmuls in oneDNN, the rest in generated kernels."""

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HALF_FORMATS, HIGH, DType
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.fusions import fused_by_inductor
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, Target

_SINCE = "PyTorch 2.13"

_ONE_ROW = (
    "ATen's _weight_int4pack_mm_for_cpu, AVX512, one thread: at one row 1.4 to 2.8 times as fast as"
    " oneDNN's BF16 with a packed weight, as fast at four; for more rows mezzo computes in BF16"
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


_IN_BLOCKS = (
    _int4("mm"),
    _int4("addmm"),
    BlockKernel(
        dialect="aten",
        op="embedding",
        operand=0,
        axis=1,
        bits=4,
        blocks=(32, 64, 128, 256),
        floats=frozenset({HIGH}),
        form=BlockForm.FUSED,
        reads_floats=True,
        source="mezzo.torch keeps the floats of weights",
        since=_SINCE,
    ),
)

TARGET = Target(
    name="torch-cpu",
    runtime=Runtime(
        package="torch",
        device="cpu",
        elsewhere="mezzo.torch.compile(model), where PyTorch is",
    ),
    summary="torch.compile with Inductor, on CPUs with BF16 or FP16 instructions",
    formats=HALF_FORMATS,
    in_blocks=_IN_BLOCKS,
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
