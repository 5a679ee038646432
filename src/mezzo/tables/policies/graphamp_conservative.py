"""A preset in the manner of GraphAMP: linear work alone is mixed, and what moves its operands infers.

Source: SambaNova, "Using Mixed Precision on RDUs" (SambaFlow 1.18), for the three sets and for what a mixed operator
is: low operands, sums and results in FP32. It names no lists; these keep most operators in the denyset. Its strategy:
`upstream`.
"""

from mezzo.formats.dtypes import HIGH
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_ALLOWSET = oplists.FUSED_LINEAR | (oplists.LINEAR - names("DeformConv"))
_INFERSET = oplists.CASTS | oplists.CONSTANTS | oplists.CONTROL | oplists.LOGICAL | oplists.MOVEMENT | oplists.SEQUENCES
_DENYSET = oplists.DOMAIN - _ALLOWSET - _INFERSET

POLICY = Policy(
    name="graphamp-conservative",
    also=("graphamp",),
    summary="linear work on low operands with f32 results; all else f32 (GraphAMP)",
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
        rule("denyset", Category.DENY, "stands in the denyset, as most do in this preset", ops=_DENYSET),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)
