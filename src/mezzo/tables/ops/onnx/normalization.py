"""Normalizations and softmax: a reduction of the input, then a division by it.

`is_bounded` with scale and bias operands means bounded by these, whatever the input.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation and function bodies, opsets 1 to 28; statistics by the"
    " two-pass formula: Ba et al. 2016 (arXiv:1607.06450), Zhang and Sennrich 2019"
    " (arXiv:1910.07467)"
)

FACTS: tuple[OpFacts, ...] = (
    # In inference its statistics are operands, so it is a multiplication and an addition.
    facts(
        "BatchNormalization",
        Cost.NORMALIZATION,
        transfer=Transfer.GIVEN_STATISTICS,
        scaling="x, y, x+y, x, 0 -> x+y; unless training_mode 1",
    ),
    facts(
        "GroupNormalization",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
        scaling="x, y, y -> y, x, -x; epsilon 2x; unless epsilon None",
    ),
    facts(
        "InstanceNormalization",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
        scaling="x, y, y -> y, x, -x; epsilon 2x; unless epsilon None",
    ),
    # Bounded only where the attribute beta is at least 0.5.
    facts("LRN", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, scaling="x -> x; alpha -2x"),
    facts(
        "LayerNormalization",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
        scaling="x, y, y -> y, x, -x; epsilon 2x; unless epsilon None",
    ),
    # Its results go to minus infinity with the differences between the inputs.
    facts(
        "LogSoftmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        function=Function.LOG_SOFTMAX,
        transfer=Transfer.LOG_SOFTMAX,
    ),
    facts(
        "LpNormalization",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        is_bounded=True,
        transfer=Transfer.NORMALIZE_SIZE,
        scaling="_ -> 0",
    ),
    facts(
        "MeanVarianceNormalization",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
    ),
    # As of LayerNormalization, its squares are FP32: `stash_type` is so by default.
    facts(
        "RMSNormalization",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.NORMALIZE_SIZE,
        scaling="x, y -> y; epsilon 2x; unless epsilon None",
    ),
    facts(
        "Softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        function=Function.SOFTMAX,
        is_bounded=True,
        transfer=Transfer.SOFTMAX,
    ),
)
