"""The default lists of TensorFlow's auto_mixed_precision: allow, infer, deny and clear are its own four.

Source: TensorFlow 2.x, tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h: the CUDA lists for FP16, with
the newest cuDNN, and the oneDNN lists for BF16. Its strategy: `paint`. What stands in no list it does not touch, which
is deny here.

How its operators read here: what TensorFlow builds them of, with the strictest of the parts. So LayerNormalization is a
Mean, LpNormalization and ReduceL1 a Sum, GlobalAveragePool a Mean, Swish a Sigmoid and a Mul, and Gelu an Erf, or a Pow
where it is approximated by tanh. Sum is AddN, BatchNormalization FusedBatchNorm, ConvTranspose Conv2DBackpropInput,
Gemm a MatMul and a BiasAdd, GRU and LSTM the cuDNN and the block cells, ReduceMax and GlobalMaxPool Max, Where Select,
ReduceSumSquare L2Loss. Resize is ResizeNearestNeighbor or ResizeBilinear, by its mode. The oneDNN lists move Mean and
Sum to infer, hold ScatterNd, and lack recurrent cells, fused attention and OneHot.
"""

from mezzo.formats.dtypes import DType
from mezzo.ir.selectors import ByAttribute
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_F16, _BF16 = (DType.FLOAT16,), (DType.BFLOAT16,)

_ALLOW = oplists.FUSED_LINEAR | names("CausalConvWithState Conv ConvTranspose Einsum Gemm MatMul")
_ALLOW_F16 = names("Attention GRU LSTM RNN")
_INFER = (
    oplists.EXPONENTIAL_UNITS
    | oplists.GATED
    | oplists.SATURATING
    | oplists.SOFTMAX
    | (oplists.RECTIFIERS - names("Relu"))
    | names("Add AveragePool BatchNormalization Div Log Mean Mul Reciprocal ReduceProd RotaryEmbedding Sqrt Sub Sum")
)
# Mean and Sum, and what is made of them.
_MEANS = names(
    "GlobalAveragePool GroupNormalization InstanceNormalization LayerNormalization LpNormalization",
    "MeanVarianceNormalization RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceMean ReduceSum",
    "SimplifiedLayerNormalization",
)
_DENY = oplists.LOSSES | names("Exp GlobalLpPool LpPool Pow ReduceLogSumExp ReduceSumSquare")
_CLEAR = (
    (oplists.MOVEMENT - names("MaxUnpool Scatter ScatterElements ScatterND TensorScatter Trilu"))
    | (oplists.CONSTANTS - names("OneHot"))
    | oplists.BOUNDS
    | oplists.CASTS
    | oplists.COMPARISONS
    | oplists.CONTROL
    | oplists.MAXIMA
    | oplists.SEQUENCES
    | names("Abs ArgMax ArgMin Ceil Floor Neg NonZero Relu Round Sign TopK")
)
_CLEAR_F16 = names("Hardmax OneHot")
_CLEAR_BF16 = names("ScatterND")
_LISTED = _ALLOW | _INFER | _MEANS | _DENY | _CLEAR

_UNTOUCHED = "stands in no list of TensorFlow, which leaves it alone"
_RESIZE = names("Resize Upsample")

POLICY = Policy(
    name="tensorflow",
    also=(
        "amp",
        "tf",
        "tf-amp",
        "grappler",
    ),
    summary="the lists of TensorFlow's Grappler: linear work low, exp, powers and sums f32",
    rules=(
        rule("allow", Category.ALLOW, "stands in TensorFlow's allow list", ops=_ALLOW, worth=GRANTED),
        rule("allow", Category.ALLOW, "stands in TensorFlow's allow list", ops=_ALLOW_F16, formats=_F16, worth=GRANTED),
        rule("infer", Category.INFER, "stands in TensorFlow's infer list", ops=_INFER),
        rule("infer", Category.INFER, "stands in TensorFlow's infer list", ops=_MEANS, formats=_BF16),
        rule("deny", Category.DENY, "stands in TensorFlow's deny list", ops=_DENY),
        rule("deny", Category.DENY, "stands in TensorFlow's deny list", ops=_MEANS, formats=_F16),
        rule("clear", Category.CLEAR, "stands in TensorFlow's clear list", ops=_CLEAR),
        rule("clear", Category.CLEAR, "stands in TensorFlow's clear list", ops=_CLEAR_F16, formats=_F16),
        rule("clear", Category.CLEAR, "stands in TensorFlow's clear list", ops=_CLEAR_BF16, formats=_BF16),
        rule(
            "untouched", Category.DENY, _UNTOUCHED, ops=oplists.DOMAIN - _LISTED - _ALLOW_F16 - _CLEAR_F16, formats=_F16
        ),
        rule("untouched", Category.DENY, _UNTOUCHED, ops=oplists.DOMAIN - _LISTED - _CLEAR_BF16, formats=_BF16),
        rule(
            "gelu-by-tanh",
            Category.DENY,
            "holds a power where it is approximated by tanh",
            ops=("Gelu",),
            where=(ByAttribute("approximate", ("tanh",)),),
        ),
        rule(
            "resize",
            Category.CLEAR,
            "picks neighbours, as ResizeNearestNeighbor",
            ops=_RESIZE,
            where=(ByAttribute("mode", ("nearest",)),),
        ),
        rule(
            "resize",
            Category.CLEAR,
            "mixes neighbours, as ResizeBilinear, which oneDNN's lists hold",
            ops=_RESIZE,
            where=(ByAttribute("mode", ("linear",)),),
            formats=_BF16,
        ),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)
