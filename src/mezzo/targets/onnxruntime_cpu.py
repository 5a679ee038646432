"""ONNX Runtime's CPU provider: which typed models it loads and runs. It computes FP16 graphs in FP32, and BF16 not at
all: its few BF16 kernels move values.
"""

from mezzo.core.target import Gain, Listing, Refusal, Target, kernels
from mezzo.dtypes import DType

_SINCE = "ONNX Runtime 1.31.1"
_SOURCE = f"mezzo probe, {_SINCE}"
_BOTH = frozenset({DType.FLOAT16, DType.BFLOAT16})
_F16 = frozenset({DType.FLOAT16})


def _row(op: str, because: str, dtypes: frozenset[DType], dialect: str = "onnx", **attributes: object) -> Refusal:
    return Refusal(
        dialect=dialect, op=op, because=because, source=_SOURCE, dtypes=dtypes, attributes=attributes, since=_SINCE
    )


TARGET = Target(
    name="onnxruntime-cpu",
    also=(
        "cpu",
        "ort",
        "onnxruntime",
        "ort-cpu",
        "CPUExecutionProvider",
    ),
    summary="what the installed ONNX Runtime loads and runs on a CPU (default for fp16)",
    refusals=(
        _row("EyeLike", "no FP16 kernel", _F16),
        _row("GridSample", "its output has its input's type, FP16, and no FP16 kernel", _F16, "com.microsoft"),
        _row("MelWeightMatrix", "no FP16 kernel", _F16),
        _row("RandomNormal", "no FP16 kernel", _F16),
        _row("RandomNormalLike", "no FP16 kernel", _F16),
        _row("RandomUniform", "no FP16 kernel", _F16),
        _row("RandomUniformLike", "no FP16 kernel", _F16),
        _row(
            "ScatterElements",
            "scatters BF16 without reduction only",
            frozenset({DType.BFLOAT16}),
            reduction=frozenset({"add", "mul", "max", "min"}),
        ),
        _row("ScatterElements", "adds and multiplies no FP16", _F16, reduction=frozenset({"add", "mul"})),
        _row(
            "ScatterND",
            "scatters FP16 and BF16 without reduction only",
            _BOTH,
            reduction=frozenset({"add", "mul", "max", "min"}),
        ),
    ),
    newest={"onnx": 26},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    listings=(
        Listing(
            dtype=DType.BFLOAT16,
            kernels=kernels(
                "onnx",
                """
                Bernoulli 15, BlackmanWindow 17, Concat 13, ConstantOfShape 20-25, Dropout 13-22, Flatten 13-25,
                Gather 13, GatherElements 13, GatherND 13, HammingWindow 17, HannWindow 17, Identity 13-25, IsInf 20,
                IsNaN 20, LayerNormalization 17, ReduceLogSumExp 18, Reshape 13-25, ScatterElements 13-18,
                ScatterND 13-18, Sign 13, Slice 13, Split 13-18, Squeeze 13-25, TensorScatter 24, Transpose 13-25,
                Unsqueeze 13-25
            """,
            )
            + kernels(
                "com.microsoft",
                """
                BranchwiseRMSNorm, HyperConnectionPostMix, HyperConnectionPreMix, ScaledSiLU, SkipLayerNormalization,
                SkipSimplifiedLayerNormalization, UnfoldTensor
            """,
            ),
            because="no BF16 kernel",
            source=_SOURCE,
            since=_SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=False,
            because="ONNX Runtime's CPU computes FP16 graphs in FP32: weights take half the space, the speed does not "
            "gain.",
            source="eight MatMul and Relu of 1024 x 1024, one thread: 14.0 ms in FP16, 14.3 ms in FP32",
            since=_SINCE,
            short="ONNX Runtime's CPU computes FP16 in FP32",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because="ONNX Runtime's CPU has BF16 kernels for moving values only: nothing is computed in BF16, nothing "
            "gains.",
            source=_SOURCE,
            since=_SINCE,
            short="ONNX Runtime's CPU computes nothing in BF16",
        ),
    ),
)
