"""Reductions, distances and Fourier transforms."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX Runtime 1.31 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("CDist", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("Irfft", Cost.OTHER, Risk.SUM),
    # What is finite in FP32 need not be in fewer bits.
    facts("IsAllFinite", Cost.REDUCTION, Risk.OVERFLOW, is_bounded=True),
    facts("MaxpoolWithMask", Cost.REDUCTION, keeps_values=True),
    facts("Rfft", Cost.OTHER, Risk.SUM),
)
