"""The default lists of MXNet's AMP: allow is its target list, clear its neutral one, infer its widest-type one.

Source: Apache MXNet 2.0 (master), python/mxnet/amp/lists/symbol_fp16.py and symbol_bf16.py. Its strategy: `lists`. What
stands in no list is neutral in FP16. BF16 denies by default, so what has no oneDNN kernel, and minds no range: Exp and
Softmax are neutral there, Clip and Dropout are denied.

How its operators read here: Convolution is Conv; FullyConnected is Gemm, and MatMul by a weight; other MatMul is
`_npi_matmul` in FP16 and batch_dot in BF16, where the former is denied; Activation is Relu, Sigmoid, Softplus, Softsign
and Tanh, and LeakyReLU is LeakyRelu, PRelu, Elu, Selu and Gelu, so what it denies by `act_type` are operators of their
own; elemwise_* and broadcast_* are one; Sum is add_n, Gather take, ReduceL1 and ReduceL2 norm. What MXNet lacks goes
with its nearest relative: Celu with Elu, Mean with add_n, RMSNormalization with LayerNorm,
MeanVarianceNormalization with moments, LpPool with Pooling, DFT with fft, Attention with masked_softmax in FP16 and
with oneDNN's fused attention in BF16. Draws and ranges have no operand to follow, so they stay, and so do quantized
parts.
"""

from mezzo.formats.dtypes import DType
from mezzo.ir.selectors import ByAttribute, ByConstant
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_F16, _BF16 = (DType.FLOAT16,), (DType.BFLOAT16,)

_TARGET_F16 = oplists.FUSED_LINEAR | names("CausalConvWithState Conv ConvTranspose Einsum GRU Gemm LSTM MatMul RNN")
_WIDEST_F16 = names(
    "Add Concat Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul NonMaxSuppression RoiAlign",
    "RotaryEmbedding Sub Sum SwiGLU Where",
)
_DENIED_F16 = (
    (oplists.NORMALIZATIONS - names("BatchNormalization"))
    | (oplists.SUMS - names("GlobalLpPool LpPool"))
    | oplists.EXPONENTIALS
    | oplists.EXPONENTIAL_UNITS
    | oplists.FOREIGN
    | oplists.LOSSES
    | oplists.POSITIONS
    | oplists.PRODUCTS
    | oplists.QUANTIZED
    | oplists.RANDOM
    | oplists.SOFTMAX
    | oplists.SPECTRA
    | names("Acos Asin Atanh Attention DeformConv LinearAttention Log Pow Reciprocal ReduceMean Tan TopK")
)
_NEUTRAL_F16 = oplists.DOMAIN - _TARGET_F16 - _WIDEST_F16 - _DENIED_F16

_TARGET_BF16 = oplists.FUSED_LINEAR | names("Attention CausalConvWithState Conv ConvTranspose Gemm")
_WIDEST_BF16 = names("Add Concat Div MatMul Mean Mul RotaryEmbedding Sub Sum SwiGLU")
_NEUTRAL_BF16 = (
    oplists.CASTS
    | oplists.CONTROL
    | oplists.SEQUENCES
    | oplists.SOFTMAX
    | names(
        "AveragePool BatchNormalization Celu Elu Exp Flatten Gather Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool",
        "Identity LRN LayerNormalization LeakyRelu LpPool MaxPool PRelu RMSNormalization ReduceMean ReduceSum Relu",
        "Reshape Sigmoid SimplifiedLayerNormalization Slice Softplus Softsign SpaceToDepth Split Sqrt Swish Tanh",
        "Transpose Unsqueeze Where",
    )
)
_DENIED_BF16 = oplists.DOMAIN - _TARGET_BF16 - _WIDEST_BF16 - _NEUTRAL_BF16

_TARGET = "stands in MXNet's target list"
_WIDEST = "stands in MXNet's list of the widest type"
_NEUTRAL = "stands in MXNet's neutral list"
_DENIED = "stands in MXNet's fp32 list"

POLICY = Policy(
    name="mxnet",
    also=(
        "amp",
        "mx",
        "mxnet-amp",
    ),
    summary="the lists of MXNet's AMP: linear work low, what may overflow f32",
    rules=(
        rule("target", Category.ALLOW, _TARGET, ops=_TARGET_F16, formats=_F16, worth=GRANTED),
        rule("widest", Category.INFER, _WIDEST, ops=_WIDEST_F16, formats=_F16),
        rule("neutral", Category.CLEAR, _NEUTRAL, ops=_NEUTRAL_F16, formats=_F16),
        rule("fp32", Category.DENY, _DENIED, ops=_DENIED_F16, formats=_F16),
        rule(
            "index-add",
            Category.INFER,
            "adds where it scatters, as MXNet's index_add",
            ops=names("ScatterElements ScatterND"),
            where=(ByAttribute("reduction", ("add",)),),
            formats=_F16,
        ),
        rule("target", Category.ALLOW, _TARGET, ops=_TARGET_BF16, formats=_BF16, worth=GRANTED),
        rule("widest", Category.INFER, _WIDEST, ops=_WIDEST_BF16, formats=_BF16),
        rule("neutral", Category.CLEAR, _NEUTRAL, ops=_NEUTRAL_BF16, formats=_BF16),
        rule("fp32", Category.DENY, "has no bf16 kernel of oneDNN in MXNet's lists", ops=_DENIED_BF16, formats=_BF16),
        rule(
            "fully-connected",
            Category.ALLOW,
            "multiplies by a weight, as MXNet's FullyConnected",
            ops=("MatMul",),
            where=(ByConstant(1),),
            formats=_BF16,
            worth=GRANTED,
        ),
        rule("unlisted", Category.CLEAR, "stands in no list of MXNet, which is neutral", formats=_F16),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)
