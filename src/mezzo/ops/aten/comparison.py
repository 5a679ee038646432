"""Comparisons, tests and logic: floats in, booleans or indices out."""

from mezzo.core.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch; a rounded operand can cross the threshold, and one that overflows becomes"
    " infinite"
)

FACTS: tuple[OpFacts, ...] = (
    facts("__and__", Cost.POINTWISE),
    facts("__lshift__", Cost.POINTWISE),
    facts("__or__", Cost.POINTWISE),
    facts("__rshift__", Cost.POINTWISE),
    facts("__xor__", Cost.POINTWISE),
    facts("_unique2", Cost.OTHER, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("all", Cost.REDUCTION, is_bounded=True, transfer=Transfer.TRUTH),
    facts("allclose", Cost.POINTWISE, Risk.STEP, is_bounded=True, transfer=Transfer.TRUTH),
    facts("any", Cost.REDUCTION, is_bounded=True, transfer=Transfer.TRUTH),
    facts("argmax", Cost.REDUCTION, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX),
    facts("argmin", Cost.REDUCTION, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX),
    # Indices of all places: the order that a sort brings them to.
    facts("argsort", Cost.REDUCTION, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX),
    facts("bitwise_and", Cost.POINTWISE),
    facts("bitwise_left_shift", Cost.POINTWISE),
    facts("bitwise_not", Cost.POINTWISE),
    facts("bitwise_or", Cost.POINTWISE),
    facts("bitwise_right_shift", Cost.POINTWISE),
    facts("bitwise_xor", Cost.POINTWISE),
    # Into which of two boundaries a number falls.
    facts("bucketize", Cost.POINTWISE, Risk.STEP, is_bounded=True),
    facts("count_nonzero", Cost.REDUCTION, Risk.STEP),
    # The values are the input's own; which of them, and their indices, may flip.
    facts("cummax", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("cummin", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("eq", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("equal", Cost.POINTWISE, Risk.STEP, is_bounded=True, transfer=Transfer.TRUTH),
    facts("ge", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.ABOVE),
    facts("greater", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.ABOVE),
    facts(
        "greater_equal", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.ABOVE
    ),
    facts("gt", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.ABOVE),
    facts("heaviside", Cost.POINTWISE, Risk.STEP),
    facts("histc", Cost.REDUCTION, Risk.STEP),
    facts("isclose", Cost.POINTWISE, Risk.STEP, is_bounded=True, transfer=Transfer.TRUTH),
    facts("isfinite", Cost.POINTWISE, Risk.OVERFLOW, is_bounded=True, transfer=Transfer.FINITE),
    facts("isin", Cost.POINTWISE, Risk.STEP, is_bounded=True, transfer=Transfer.TRUTH),
    facts("isinf", Cost.POINTWISE, Risk.OVERFLOW, is_bounded=True, transfer=Transfer.FINITE),
    # A number that passes the range becomes infinite, which is a number still, and what is none stays none.
    facts("isnan", Cost.POINTWISE, is_bounded=True, transfer=Transfer.FINITE),
    facts("isneginf", Cost.POINTWISE, Risk.OVERFLOW, is_bounded=True, transfer=Transfer.FINITE),
    facts("isposinf", Cost.POINTWISE, Risk.OVERFLOW, is_bounded=True, transfer=Transfer.FINITE),
    facts("kthvalue", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("le", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.BELOW),
    facts("less", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.BELOW),
    facts("less_equal", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.BELOW),
    facts("logical_and", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("logical_not", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("logical_or", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("logical_xor", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("lt", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.BELOW),
    facts("median", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("mode", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("msort", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("nanmedian", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("ne", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("nonzero", Cost.OTHER, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX),
    facts("nonzero_numpy", Cost.OTHER, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX),
    facts("not_equal", Cost.POINTWISE, Risk.STEP, function=Function.COMPARE, is_bounded=True, transfer=Transfer.TRUTH),
    facts("searchsorted", Cost.POINTWISE, Risk.STEP, is_bounded=True),
    facts("signbit", Cost.POINTWISE, Risk.STEP, is_bounded=True, transfer=Transfer.TRUTH),
    facts("sort", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("topk", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("unique_consecutive", Cost.OTHER, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("unique_dim", Cost.OTHER, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    facts("unique_dim_consecutive", Cost.OTHER, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
    # With a condition alone it gives the places where that holds.
    facts("where.default", Cost.OTHER, Risk.STEP, is_bounded=True, transfer=Transfer.INDEX),
)
