"""PyTorch on NVIDIA GPUs, compiled by Inductor: cuBLAS, cuDNN and generated kernels."""

from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.tables.fusions import fused_by_inductor
from mezzo.tables.inductor_rows import quantized_by_inductor
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, weight
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, Target

_SINCE = "PyTorch 2.13"


def _int8(op: str, *, axis: int, is_dynamic: bool = False) -> QuantizedKernel:
    """Inductor scales the sums in what follows, whose results are floats."""
    return QuantizedKernel(
        dialect="aten",
        op=op,
        operands=(Operand(position=0, dtype=DType.INT8, is_symmetric=True), weight(1, axis=axis)),
        hands=OutputMode.FLOATS,
        through=frozenset({"aten:permute"} if axis == 1 else ()),
        source="ATen's _int_mm, which multiplies S8 by S8 and returns the sums in S32: cuBLASLt's",
        since=_SINCE,
        is_dynamic=is_dynamic,
    )


_QUANTIZED = (
    *quantized_by_inductor(_SINCE),
    *(
        _int8(op, axis=axis, is_dynamic=is_dynamic)
        for is_dynamic in (False, True)
        for op, axis in (("linear", 0), ("mm", 1), ("addmm", 1))
    ),
)

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
    formats=HALF_FORMATS | {DType.QUANTIZED8},
    quantized=_QUANTIZED,
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
