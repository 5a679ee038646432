"""A preset in the manner of GraphAMP: linear work, attention and recurrent cells are mixed, safe arithmetic infers.

Source: SambaNova, "Using Mixed Precision on RDUs" (SambaFlow 1.18), for the three sets, for what a mixed operator is
(low operands, sums and results in FP32), and for the kernels it has: linear, matmul, scaled dot-product attention. It
names no lists. Its strategy: `upstream`.
"""

from mezzo.formats.dtypes import HIGH
from mezzo.tables import oplists
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_ALLOWSET = oplists.ATTENTION | oplists.FUSED_LINEAR | oplists.LINEAR | oplists.RECURRENT
_INFERSET = (
    oplists.ARITHMETIC
    | oplists.BOUNDS
    | oplists.CASTS
    | oplists.CONSTANTS
    | oplists.CONTROL
    | oplists.EXPONENTIAL_UNITS
    | oplists.GATED
    | oplists.LOGICAL
    | oplists.MAXIMA
    | oplists.MOVEMENT
    | oplists.RECTIFIERS
    | oplists.SATURATING
    | oplists.SEQUENCES
)
_DENYSET = oplists.DOMAIN - _ALLOWSET - _INFERSET

POLICY = Policy(
    name="graphamp-balanced",
    also=("graphamp",),
    summary="linear work and attention on low operands with f32 results, what feeds them low (GraphAMP)",
    rules=(
        rule(
            "allowset",
            Category.ALLOW,
            "its products are summed up in f32, so low operands do",
            ops=_ALLOWSET,
            worth=GRANTED,
            accumulate=HIGH,
            output=HIGH,
        ),
        rule("inferset", Category.INFER, "takes the precision that its readers want", ops=_INFERSET),
        rule("denyset", Category.DENY, "sums, steps or grows, so it stays in the denyset", ops=_DENYSET),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)
