"""Everything that has a chance goes low; only what is wrong whatever the data stays FP32."""

from mezzo.facts import Cost, Risk
from mezzo.policy import Category, Policy, rule

POLICY = Policy(
    name="aggressive",
    summary="all arithmetic low; only what cannot be right in any data stays f32",
    rules=(
        rule("not-arithmetic", Category.DENY, "reads bits or text", risks=(Risk.BITS, Risk.TEXT)),
        rule("moves", Category.CLEAR, "moves values without arithmetic", costs=(Cost.MOVEMENT, Cost.CONTROL)),
    ),
    findings=frozenset({
        "attribute-out-of-range", "constant-near-range", "constant-out-of-range", "exact-operand", "returns-to-integers",
    }),
    otherwise=Category.ALLOW,
)  # fmt: skip
