"""PyTorch on CPUs, compiled by Inductor: matmuls in oneDNN, the rest in generated kernels."""

from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.tables.fusions import fused_by_inductor
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, Target

_SINCE = "PyTorch 2.13"

TARGET = Target(
    name="torch-cpu",
    runtime=Runtime(
        package="torch",
        device="cpu",
        elsewhere="mezzo.torch.compile(model), where PyTorch is",
    ),
    summary="torch.compile with Inductor, on CPUs with BF16 or FP16 instructions",
    formats=HALF_FORMATS,
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
