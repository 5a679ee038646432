"""A preset in the manner of GraphAMP: all arithmetic is mixed, what moves or compares values infers.

Source: SambaNova, "Using Mixed Precision on RDUs" (SambaFlow 1.18), for the three sets, for what a mixed operator is
(low operands, sums and results in FP32), and for the kernels it has: linear, matmul, softmax, scaled dot-product
attention. It names no lists, and knows BF16 alone: what passes FP16's range stays in the denyset there. Its strategy:
`upstream`.
"""

from mezzo.formats.dtypes import HIGH, DType, narrow_formats
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_ALLOWSET = (
    oplists.ARITHMETIC
    | oplists.ATTENTION
    | oplists.AVERAGES
    | oplists.BOUNDS
    | oplists.EXPONENTIAL_UNITS
    | oplists.FUSED_LINEAR
    | oplists.GATED
    | oplists.LINEAR
    | oplists.MAXIMA
    | oplists.NORMALIZATIONS
    | oplists.RECTIFIERS
    | oplists.RECURRENT
    | oplists.SATURATING
    | oplists.SOFTMAX
    | names("Sqrt")
)
# Grows past 65504 where BF16 has FP32's range.
_GROWS = (oplists.POWERS - names("Sqrt")) | oplists.EXPONENTIALS | oplists.PRODUCTS | (oplists.SUMS - names("CumSum"))
_INFERSET = (
    oplists.CASTS
    | oplists.COMPARISONS
    | oplists.CONSTANTS
    | oplists.CONTROL
    | oplists.INDICES
    | oplists.LOGICAL
    | oplists.MOVEMENT
    | oplists.RESAMPLING
    | oplists.SEQUENCES
)
_DENYSET = oplists.DOMAIN - _ALLOWSET - _GROWS - _INFERSET

_MIXED = "low operands do where sums and results are f32"
_LOSES = "loses its meaning in fewer bits"

POLICY = Policy(
    name="graphamp-aggressive",
    also=("graphamp",),
    summary="all arithmetic on low operands with f32 results (GraphAMP)",
    rules=(
        rule("allowset", Category.ALLOW, _MIXED, ops=_ALLOWSET, worth=GRANTED, accumulate=HIGH, output=HIGH),
        rule(
            "allowset",
            Category.ALLOW,
            _MIXED,
            ops=_GROWS,
            formats=(DType.BFLOAT16,),
            worth=GRANTED,
            accumulate=HIGH,
            output=HIGH,
        ),
        rule("inferset", Category.INFER, "takes the precision that its readers want", ops=_INFERSET),
        rule("denyset", Category.DENY, "may pass f16's 65504", ops=_GROWS, formats=narrow_formats()),
        rule("denyset", Category.DENY, _LOSES, ops=_DENYSET),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)
