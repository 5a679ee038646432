"""PyTorch on NVIDIA GPUs, compiled by Inductor: cuBLAS, cuDNN and generated kernels."""

from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.tables.fusions import fused_by_inductor
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, Target

_SINCE = "PyTorch 2.13"

TARGET = Target(
    name="torch-cuda",
    runtime=Runtime(
        package="torch",
        device="cuda",
        elsewhere="mezzo.torch.compile(model), where PyTorch is",
    ),
    summary=(
        "torch.compile with Inductor, on NVIDIA GPUs of compute capability 8.0 and up for BF16, 7.0"
        " for FP16"
    ),
    formats=HALF_FORMATS,
    fusions=(fused_by_inductor(_SINCE),),
    gains=(
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=True,
            because="Tensor Cores multiply BF16",
            source="NVIDIA CUDA C Programming Guide, Arithmetic Instructions",
            since=_SINCE,
            needs=("compute capability 8.0 (Ampere)",),
        ),
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="Tensor Cores multiply FP16",
            source="NVIDIA CUDA C Programming Guide, Arithmetic Instructions",
            since=_SINCE,
            needs=("compute capability 7.0 (Volta)",),
        ),
    ),
)
