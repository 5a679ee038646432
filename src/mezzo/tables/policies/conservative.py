"""Conservative preset: only linear work goes low; every operator with any risk stays FP32."""

from mezzo.formats.dtypes import HALF_FORMATS, QUANTIZED
from mezzo.tables.facts import Cost, Risk
from mezzo.tables.policy import GRANTED, Category, Policy, rule

POLICY = Policy(
    name="conservative",
    also=(
        "safe",
        "careful",
        "safest",
    ),
    summary="only linear work low, and what moves its values; any risk stays f32",
    rules=(
        rule("risk", Category.DENY, "carries a known risk in fewer bits", risks=tuple(Risk)),
        rule(
            "linear",
            Category.ALLOW,
            "matmuls and convolutions gain most",
            costs=(Cost.LINEAR, Cost.ATTENTION),
            worth=GRANTED,
        ),
        rule(
            "moves",
            Category.CLEAR,
            "moves values without arithmetic",
            costs=(Cost.MOVEMENT, Cost.GENERATOR, Cost.CONTROL),
        ),
        rule(
            "follows",
            Category.CLEAR,
            "follows its neighbours where that saves casts",
            costs=(Cost.POINTWISE,),
        ),
    ),
    findings=None,  # every structure rule
    otherwise=Category.DENY,
    promotes_untroubled=False,
    formats=HALF_FORMATS | QUANTIZED,
)
