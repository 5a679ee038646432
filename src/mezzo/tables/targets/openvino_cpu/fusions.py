"""Fusions of OpenVINO's CPU plug-in, as its runtime graphs show them."""

from functools import partial

from mezzo.formats.dtypes import DType
from mezzo.tables.facts import Function
from mezzo.tables.fusions import Constraint, Fusion, Inside, Stage, Step
from mezzo.tables.openvino_rows import SINCE

_BF16 = frozenset({DType.BFLOAT16})
# A Cast between its nodes prevents the fusion. INT8 kernels can write floats, but a Cast to FP32
# after a BF16 kernel is a separate kernel.
_PRODUCT = Constraint(formats=_BF16, writes_free=frozenset({DType.INT8, DType.UINT8}))
_SOFTMAX = Constraint(formats=_BF16, exact=frozenset({Function.SOFTMAX}))
# A decomposed norm is fused only in one type.
_WRITTEN_OUT = Constraint(inside=Inside.FLOAT32, formats=_BF16, is_linked=True)
# The input of a norm operator is converted to FP32 and its output back. These are kernels, as Casts
# in the model are, unless a neighbour's takes them in.
_NORM = Constraint(inside=Inside.WRAPPED, formats=_BF16)
_CONVERTING = Constraint(inside=Inside.FLOAT32, formats=_BF16, reads_free=_BF16, writes_free=_BF16)
# Computes in FP32 and rounds once, to the type in the file. FP32 moves more bytes, which no timing
# of whole models shows (two threads, AMX).
_ELEMENTWISE = Constraint(inside=Inside.REGISTERS, formats=_BF16)
_MVN = "runtime graphs: {} in place of the operators"

# Fused into any kernel.
_ACTIVATIONS = frozenset({
    "Abs", "Clip", "Elu", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu",
    "Relu", "Round", "Sigmoid", "Softplus", "Sqrt", "Tanh", "gelu-erf", "gelu-tanh", "silu",
})  # fmt: skip
# Compiled into a Subgraph, with the Casts around it, if shapes are static; otherwise each Cast is a
# kernel.
_GENERATED = frozenset({
    "Abs", "Add", "Ceil", "Celu", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSwish",
    "LeakyRelu", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Sigmoid", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu",
})  # fmt: skip
_AFTER_CONV = Stage(activations=_ACTIVATIONS, step=Step.SCALE_CHANNELS, most=8)
_AFTER_MATMUL = Stage(activations=_ACTIVATIONS, step=Step.SCALE_COLUMNS, most=8)
_fusion = partial(Fusion, since=SINCE)
FUSIONS = (
    _fusion(
        pattern="attention",
        source=(
            "runtime graphs: one Subgraph from Transpose and MatMul over Softmax to MatMul and"
            " Transpose"
        ),
        constraint=_SOFTMAX,
        form="with-transposes",
    ),
    _fusion(
        pattern="rotary",
        source=(
            "runtime graphs: RoPE in place of Slice, Neg, Concat, Mul, Add; a Cast inside leaves"
            " them all"
        ),
        constraint=Constraint(formats=_BF16),
    ),
    _fusion(
        pattern="layer-norm", source=_MVN.format("MVN"), constraint=_WRITTEN_OUT, form="any-root"
    ),
    _fusion(
        pattern="rms-norm", source=_MVN.format("RMS"), constraint=_WRITTEN_OUT, form="any-root"
    ),
    _fusion(pattern="l2-norm", source=_MVN.format("NormalizeL2"), constraint=_WRITTEN_OUT),
    _fusion(
        pattern="convolution",
        source="runtime graphs: Convolution with original layers Conv, Add, Relu",
        constraint=_PRODUCT,
        operators=frozenset({"Conv", "ConvTranspose"}),
        epilogues=((_AFTER_CONV, Stage(step=Step.RESIDUAL), _AFTER_CONV),),
    ),
    _fusion(
        pattern="matmul",
        source="runtime graphs: FullyConnected with original layers MatMul, Gelu",
        constraint=_PRODUCT,
        form="weight",
        operators=frozenset({"Gemm", "MatMul"}),
        epilogues=((Stage(step=Step.BIAS), _AFTER_MATMUL),),
    ),
    _fusion(
        pattern="norm",
        source="runtime graphs: MVN, RMS and GroupNormalization in FP32 inside a BF16 graph too",
        constraint=_NORM,
        operators=frozenset({"GroupNormalization", "LayerNormalization", "RMSNormalization"}),
        least=1,
    ),
    _fusion(
        pattern="softmax",
        source=(
            "measured: what FP32 between Casts gives, bit for bit, for rows of 17 to 1500 numbers"
        ),
        constraint=_SOFTMAX,
        least=1,
    ),
    _fusion(
        pattern="elementwise",
        source="runtime graphs: a Subgraph of Cast, operators and Cast, in FP32",
        constraint=_CONVERTING,
        form="converting",
        operators=_GENERATED,
        least=1,
    ),
    _fusion(
        pattern="elementwise",
        source="runtime graphs: Eltwise and Subgraph of several layers",
        constraint=_ELEMENTWISE,
        least=1,
    ),
)
