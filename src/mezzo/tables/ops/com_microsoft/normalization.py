"""Normalizations and softmax with fused additions and gates.

Operators that also output the sum, or multiply by a gate, are not bounded.
"""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    # Not Function.SOFTMAX: it is the softmax of a sum.
    facts("BiasSoftmax", Cost.NORMALIZATION, Risk.SOFTMAX, is_bounded=True),
    facts("BranchwiseRMSNorm", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, is_bounded=True),
    # Its data are rows of tables, so its optional sum is bounded too.
    facts("EmbedLayerNormalization", Cost.NORMALIZATION, Risk.STATISTICS, is_bounded=True),
    facts("EngramGate", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES),
    facts("GatedRMSNorm", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES),
    # An optional SiLU follows; it keeps the bound.
    facts(
        "GroupNorm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
    ),
    facts("HyperConnectionLowRankMix", Cost.LINEAR, Risk.SUM_OF_SQUARES),
    facts("RMSNormRotary", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES),
    facts("SkipGroupNorm", Cost.NORMALIZATION, Risk.STATISTICS),
    facts("SkipLayerNormalization", Cost.NORMALIZATION, Risk.STATISTICS),
    facts("SkipSimplifiedLayerNormalization", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES),
)
