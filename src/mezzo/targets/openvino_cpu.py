"""OpenVINO's CPU plug-in: which typed models it compiles and runs with the execution mode ACCURACY, which alone makes
it mind the types in the file. What it runs in neither type nor in FP32 has no row.
"""

from mezzo.core.rows import EVERY_VERSION
from mezzo.core.target import Gain, Refusal, Target
from mezzo.dtypes import DType

_SINCE = "OpenVINO 2026.4.1"
_SOURCE = f"mezzo probe, {_SINCE}"
_MEASURED = "eight MatMul and Relu of 1024 x 1024, one thread, AMX"
# Without one of these the CPU computes BF16 graphs in FP32, with FP32's kernels.
_COMPUTES_BF16 = ("amx_bf16", "avx512_bf16")
_BF16 = frozenset({DType.BFLOAT16})

TARGET = Target(
    name="openvino-cpu",
    also=(
        "openvino",
        "ov",
        "cpu",
        "intel",
        "ov-cpu",
        "OpenVINOExecutionProvider",
    ),
    summary="what OpenVINO compiles for a CPU and runs in execution mode ACCURACY",
    refusals=(
        Refusal(
            dialect="onnx",
            op="AffineGrid",
            because="multiplies its low input with a grid it makes in FP32",
            source=_SOURCE,
            since=_SINCE,
        ),
        Refusal(
            dialect="onnx",
            op="BatchNormalization",
            because="takes no low input beside FP32 statistics",
            source=_SOURCE,
            versions=(14, EVERY_VERSION[1]),
            since=_SINCE,
        ),
        Refusal(
            dialect="onnx", op="Celu", because="compares its low input with an FP32 zero", source=_SOURCE, since=_SINCE
        ),
        Refusal(
            dialect="onnx",
            op="MaxPool",
            because="no BF16 kernel that gives indices",
            source=_SOURCE,
            dtypes=_BF16,
            attributes={"storage_order": 1},
            since=_SINCE,
            needs=_COMPUTES_BF16,
        ),
        Refusal(dialect="onnx", op="MaxRoiPool", because="no BF16 kernel", source=_SOURCE, dtypes=_BF16, since=_SINCE),
        Refusal(
            dialect="onnx",
            op="RandomUniform",
            because="takes FP32 bounds for FP32 results only",
            source=_SOURCE,
            since=_SINCE,
        ),
        Refusal(
            dialect="onnx",
            op="RandomUniformLike",
            because="takes FP32 bounds for FP32 results only",
            source=_SOURCE,
            since=_SINCE,
        ),
        Refusal(
            dialect="com.microsoft",
            op="QuickGelu",
            because="multiplies its low input with an FP32 constant",
            source=_SOURCE,
            since=_SINCE,
        ),
    ),
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    fused_formats=frozenset({DType.BFLOAT16, DType.INT8, DType.UINT8}),
    notes=("Compile with execution mode ACCURACY: otherwise OpenVINO picks one type for all, whatever the file says.",),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=False,
            because="OpenVINO's CPU gains no speed from FP16: without avx512_fp16 it computes FP16 graphs in FP32, "
            "with it it was no faster than in FP32; weights take half the space. Where the CPU has BF16, take bf16.",
            source=f"{_MEASURED}: 19.9 ms in FP16 with avx512_fp16, 14.5 ms in FP32",
            since=_SINCE,
            short="OpenVINO's CPU computes FP16 no faster than FP32",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=True,
            because="OpenVINO's CPU computes BF16 graphs in BF16",
            source=f"{_MEASURED}: 1.9 ms in BF16, 14.5 ms in FP32",
            since=_SINCE,
            needs=_COMPUTES_BF16,
            short="OpenVINO's CPU computes it in BF16",
        ),
    ),
)
