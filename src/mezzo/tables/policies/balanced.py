"""Balanced preset, the default: work that gains runs low, risky operators stay FP32."""

from mezzo.formats.dtypes import HALF_FORMATS, QUANTIZED, narrow_formats
from mezzo.tables.facts import Cost, Risk
from mezzo.tables.policy import GRANTED, Category, Lifting, Policy, rule

_NARROW = narrow_formats()

POLICY = Policy(
    name="balanced",
    also=(
        "default",
        "normal",
        "standard",
    ),
    summary="linear work low, its neighbours follow; what overflows or cancels stays f32 (default)",
    rules=(
        rule(
            "not-arithmetic",
            Category.DENY,
            "reads bits, text or quantization parameters",
            risks=(Risk.BITS, Risk.TEXT, Risk.QUANTIZED),
        ),
        rule("random", Category.DENY, "its draws depend on the dtype", risks=(Risk.RANDOM,)),
        rule(
            "position",
            Category.DENY,
            "holds positions or counts, exact only up to 2/eps",
            risks=(Risk.POSITION,),
        ),
        rule("step", Category.DENY, "a rounding error can flip its result", risks=(Risk.STEP,)),
        rule(
            "overflow",
            Category.DENY,
            "detects infinities, and values above f16's 65504 become infinite",
            risks=(Risk.OVERFLOW,),
            formats=_NARROW,
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "steep",
            Category.DENY,
            "its derivative is unbounded: rounding its input can cause any error",
            risks=(Risk.STEEP,),
        ),
        rule("loss", Category.DENY, "losses sum logarithms", risks=(Risk.LOSS,)),
        rule(
            "softmax",
            Category.DENY,
            "loses precision for large inputs, as it takes exponentials of differences",
            risks=(Risk.SOFTMAX,),
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "power",
            Category.DENY,
            "powers magnify both range and error",
            risks=(Risk.POWER, Risk.PRODUCT),
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "exponential",
            Category.DENY,
            "exp(12) exceeds f16's 65504",
            risks=(Risk.EXPONENTIAL,),
            formats=_NARROW,
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "sum-of-squares",
            Category.DENY,
            "256 squared exceeds f16's 65504",
            risks=(Risk.SUM_OF_SQUARES,),
            formats=_NARROW,
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "sum",
            Category.DENY,
            "sums over an axis grow with its length",
            risks=(Risk.SUM,),
            formats=_NARROW,
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "reciprocal",
            Category.DENY,
            "grows without bound near zero",
            risks=(Risk.RECIPROCAL,),
            formats=_NARROW,
            lifting=Lifting.BY_RANGES,
        ),
        rule(
            "linear",
            Category.ALLOW,
            "matmuls and convolutions gain most",
            costs=(Cost.LINEAR, Cost.ATTENTION, Cost.RECURRENT),
            worth=GRANTED,
        ),
        rule(
            "moves",
            Category.CLEAR,
            "moves values without arithmetic",
            costs=(Cost.MOVEMENT, Cost.GENERATOR, Cost.CONTROL),
        ),
        rule(
            "safe",
            Category.ALLOW,
            "safe in low precision, with half the bytes to move",
            costs=(Cost.POINTWISE, Cost.NORMALIZATION, Cost.REDUCTION),
            worth=1,
        ),
    ),
    findings=None,  # every structure rule
    formats=HALF_FORMATS | QUANTIZED,
    trusts_exact_masks=True,
)
