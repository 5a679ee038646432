"""ONNX Runtime's CPU provider: which typed models it loads. It computes FP16 graphs in FP32 and has no BF16 kernels."""

from mezzo.dtypes import DType
from mezzo.target import Refusal, Target

_SOURCE = "session creation, ONNX Runtime 1.31.1"
_F16 = frozenset({DType.FLOAT16})


def _row(op: str, because: str, versions: tuple[int, int] = (1, 1000), **attributes: object) -> Refusal:
    return Refusal("onnx", op, because, _SOURCE, _F16, versions, attributes)


TARGET = Target(
    name="onnxruntime-cpu",
    summary=(
        "what the installed ONNX Runtime loads on a CPU; FP16 is computed in FP32 there: half the size, no gain in "
        "speed (default for fp16)"
    ),
    refusals=(
        _row("EyeLike", "no FP16 kernel"),
        _row("MelWeightMatrix", "no FP16 kernel"),
        _row("ScatterElements", "no FP16 kernel with a reduction", reduction=None),
        _row("ScatterND", "no FP16 kernel with a reduction", reduction=None),
    ),
    max_opset=26,
    notes=("ONNX Runtime's CPU computes FP16 graphs in FP32: weights take half the space, the speed does not gain.",),
)
