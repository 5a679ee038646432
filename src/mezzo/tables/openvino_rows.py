"""Rows that several targets of OpenVINO share: what its ONNX front end refuses before any device
sees the model, and what NNCF quantizes for them.
"""

from collections.abc import Iterator
from functools import partial

from mezzo.formats.dtypes import DType
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, Storage, weight
from mezzo.tables.rows import EVERY_VERSION
from mezzo.tables.target import Refusal

SINCE = "OpenVINO 2026.4.1"


def _row(dialect: str, op: str, because: str, least: int = 1) -> Refusal:
    return Refusal(
        dialect=dialect,
        op=op,
        because=because,
        source=f"probe of {SINCE}",
        versions=(least, EVERY_VERSION[1]),
        since=SINCE,
    )


FRONT_END = (
    _row("onnx", "AffineGrid", "multiplies its low input with a grid it makes in FP32"),
    _row("onnx", "BatchNormalization", "takes no low input with FP32 statistics", least=14),
    _row("onnx", "Celu", "compares its low input with an FP32 zero"),
    _row("onnx", "RandomUniform", "takes FP32 bounds for FP32 results only"),
    _row("onnx", "RandomUniformLike", "takes FP32 bounds for FP32 results only"),
    _row("com.microsoft", "QuickGelu", "multiplies its low input with an FP32 constant"),
)

_MOVING = (
    "Expand", "Flatten", "MaxPool", "ReduceMax", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
)  # fmt: skip


def nncf_kernels(
    source: str, needs: tuple[str, ...] = (), sums: tuple[str, ...] = ()
) -> Iterator[QuantizedKernel]:
    """What the setups of NNCF quantize for GPUs and NPUs alike: activations with a scale per
    tensor, weights with one per channel. `sums`: operators of two operands with scales of their
    own.
    """
    kernel = partial(
        QuantizedKernel, hands=OutputMode.EITHER, source=source, since=SINCE, needs=needs
    )
    yield kernel(op="Conv", operands=(_data(), weight(1, 0)))
    yield kernel(op="ConvTranspose", operands=(_data(), weight(1, 1)), attributes={"group": 1})
    yield kernel(op="Gemm", operands=(_data(), weight(1, 0)), attributes={"transB": 1})
    not_transposed = {"transB": frozenset({None, 0})}
    yield kernel(op="Gemm", operands=(_data(), weight(1, -1)), attributes=not_transposed)
    yield kernel(op="MatMul", operands=(_data(), weight(1, -1, rank=2)))
    yield kernel(op="MatMul", operands=(_data(), _data(1)))
    for op in sums:
        yield kernel(op=op, operands=(_data(), _data(1)))
    for op in ("AveragePool", "GlobalAveragePool", "ReduceMean"):
        yield kernel(op=op, operands=(_data(),))
    moving = partial(kernel, hands=OutputMode.PASSED)
    yield moving(op="Concat", operands=(_data(and_rest=True),))
    for op in _MOVING:
        yield moving(op=op, operands=(_data(),))


def _data(position: int = 0, and_rest: bool = False) -> Operand:
    return Operand(position=position, also=(Storage(DType.INT8),), and_rest=and_rest)
