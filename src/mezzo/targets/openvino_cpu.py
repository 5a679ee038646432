"""OpenVINO's CPU plug-in: which typed models it compiles and runs with the execution mode ACCURACY, which alone makes
it mind the types in the file. What it runs in neither type nor in FP32 has no row.
"""

from mezzo.core.target import EVERY_VERSION, Gain, Refusal, Target
from mezzo.dtypes import DType

_SINCE = "OpenVINO 2026.4.1"
_SOURCE = f"mezzo probe, {_SINCE}"
_MEASURED = "eight MatMul and Relu of 1024 x 1024, one thread, AMX"
# Without one of these the CPU computes BF16 graphs in FP32, with FP32's kernels.
_COMPUTES_BF16 = ("amx_bf16", "avx512_bf16")
_BF16 = frozenset({DType.BFLOAT16})

TARGET = Target(
    name="openvino-cpu",
    summary="what OpenVINO compiles for a CPU and runs in execution mode ACCURACY",
    refusals=(
        Refusal("onnx", "AffineGrid", "multiplies its low input with a grid it makes in FP32", _SOURCE, since=_SINCE),
        Refusal(
            "onnx",
            "BatchNormalization",
            "takes no low input beside FP32 statistics",
            _SOURCE,
            versions=(14, EVERY_VERSION[1]),
            since=_SINCE,
        ),
        Refusal("onnx", "Celu", "compares its low input with an FP32 zero", _SOURCE, since=_SINCE),
        Refusal(
            "onnx",
            "MaxPool",
            "no BF16 kernel that gives indices",
            _SOURCE,
            _BF16,
            attributes={"storage_order": 1},
            since=_SINCE,
            needs=_COMPUTES_BF16,
        ),
        Refusal("onnx", "MaxRoiPool", "no BF16 kernel", _SOURCE, _BF16, since=_SINCE),
        Refusal("onnx", "RandomUniform", "takes FP32 bounds for FP32 results only", _SOURCE, since=_SINCE),
        Refusal("onnx", "RandomUniformLike", "takes FP32 bounds for FP32 results only", _SOURCE, since=_SINCE),
        Refusal("com.microsoft", "QuickGelu", "multiplies its low input with an FP32 constant", _SOURCE, since=_SINCE),
    ),
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    notes=("Compile with execution mode ACCURACY: otherwise OpenVINO picks one type for all, whatever the file says.",),
    gains=(
        Gain(
            DType.FLOAT16,
            False,
            "OpenVINO's CPU gains no speed from FP16: without avx512_fp16 it computes FP16 graphs in FP32, with it it "
            "was no faster than in FP32; weights take half the space. Where the CPU has BF16, take bf16.",
            f"{_MEASURED}: 19.9 ms in FP16 with avx512_fp16, 14.5 ms in FP32",
            _SINCE,
        ),
        Gain(
            DType.BFLOAT16,
            True,
            "OpenVINO's CPU computes BF16 graphs in BF16",
            f"{_MEASURED}: 1.9 ms in BF16, 14.5 ms in FP32",
            _SINCE,
            _COMPUTES_BF16,
        ),
    ),
)
