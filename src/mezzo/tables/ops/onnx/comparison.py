"""Comparisons, predicates and logic: float inputs, boolean or index outputs."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; a rounded operand can cross the threshold, "
    "and one that overflows becomes infinite"
)

FACTS: tuple[OpFacts, ...] = (
    facts("And", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    facts(
        "ArgMax",
        Cost.REDUCTION,
        Risk.STEP,
        is_bounded=True,
        transfer=Transfer.INDEX,
        scaling="_ -> 0",
    ),
    facts(
        "ArgMin",
        Cost.REDUCTION,
        Risk.STEP,
        is_bounded=True,
        transfer=Transfer.INDEX,
        scaling="_ -> 0",
    ),
    facts("BitShift", Cost.POINTWISE),
    facts("BitwiseAnd", Cost.POINTWISE),
    facts("BitwiseNot", Cost.POINTWISE),
    facts("BitwiseOr", Cost.POINTWISE),
    facts("BitwiseXor", Cost.POINTWISE),
    facts(
        "Equal",
        Cost.POINTWISE,
        Risk.STEP,
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.TRUTH,
        scaling="x, x -> 0",
    ),
    facts(
        "Greater",
        Cost.POINTWISE,
        Risk.STEP,
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.ABOVE,
        scaling="x, x -> 0",
    ),
    facts(
        "GreaterOrEqual",
        Cost.POINTWISE,
        Risk.STEP,
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.ABOVE,
        scaling="x, x -> 0",
    ),
    facts(
        "Hardmax",
        Cost.REDUCTION,
        Risk.STEP,
        is_bounded=True,
        transfer=Transfer.TRUTH,
        scaling="_ -> 0",
    ),
    facts("IsInf", Cost.POINTWISE, Risk.OVERFLOW, is_bounded=True, transfer=Transfer.FINITE),
    # Overflow changes finite to infinite, but never creates or removes NaN.
    facts("IsNaN", Cost.POINTWISE, is_bounded=True, transfer=Transfer.FINITE, scaling="_ -> 0"),
    facts(
        "Less",
        Cost.POINTWISE,
        Risk.STEP,
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.BELOW,
        scaling="x, x -> 0",
    ),
    facts(
        "LessOrEqual",
        Cost.POINTWISE,
        Risk.STEP,
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.BELOW,
        scaling="x, x -> 0",
    ),
    facts(
        "NonZero", Cost.OTHER, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX, scaling="_ -> 0"
    ),
    facts("Not", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("Or", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    # The values are the input's own; which of them, and their indices, may flip.
    facts("TopK", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("Unique", Cost.OTHER, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("Xor", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
)
