"""Aggressive preset: everything low except operators that are wrong in low on any data."""

from mezzo.formats.dtypes import HALF_FORMATS, QUANTIZED
from mezzo.tables.facts import Cost, Risk
from mezzo.tables.policy import Category, Policy, rule

POLICY = Policy(
    name="aggressive",
    also=(
        "boldest",
        "fastest",
        "max",
    ),
    summary="all arithmetic low; only what cannot be right in any data stays f32",
    rules=(
        rule(
            "not-arithmetic",
            Category.DENY,
            "reads bits, text or quantization parameters",
            risks=(Risk.BITS, Risk.TEXT, Risk.QUANTIZED),
        ),
        rule(
            "moves",
            Category.ALLOW,
            "half the bytes to move, if that saves more than its casts",
            costs=(Cost.MOVEMENT,),
            worth=1,
        ),
    ),
    findings=frozenset(
        {
            "attribute-out-of-range",
            "constant-near-range",
            "constant-out-of-range",
            "exact-operand",
            "low-count",
            "returns-to-integers",
        }
    ),
    otherwise=Category.ALLOW,
    limits_masks=True,
    formats=HALF_FORMATS | QUANTIZED,
)
