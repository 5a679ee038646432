"""Comparisons, predicates and logic: float inputs, boolean or index outputs."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch; a rounded operand can cross the threshold, and one that"
    " overflows becomes infinite"
)

FACTS: tuple[OpFacts, ...] = (
    facts("__and__", Cost.POINTWISE, like="BitwiseAnd"),
    facts("__lshift__", Cost.POINTWISE, like="BitShift"),
    facts("__or__", Cost.POINTWISE, like="BitwiseOr"),
    facts("__rshift__", Cost.POINTWISE, like="BitShift"),
    facts("__xor__", Cost.POINTWISE, like="BitwiseXor"),
    facts(
        "_unique2", Cost.OTHER, Risk.STEP, like="Unique", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("all", Cost.REDUCTION, like="And", is_bounded=True, transfer=Transfer.TRUTH),
    facts(
        "allclose",
        Cost.POINTWISE,
        Risk.STEP,
        like="Equal",
        is_bounded=True,
        transfer=Transfer.TRUTH,
    ),
    facts("any", Cost.REDUCTION, like="Or", is_bounded=True, transfer=Transfer.TRUTH),
    facts(
        "argmax", Cost.REDUCTION, Risk.STEP, like="ArgMax", is_bounded=True, transfer=Transfer.INDEX
    ),
    facts(
        "argmin", Cost.REDUCTION, Risk.STEP, like="ArgMin", is_bounded=True, transfer=Transfer.INDEX
    ),
    # Indices of all places: the order that a sort brings them to.
    facts(
        "argsort", Cost.REDUCTION, Risk.STEP, like="TopK", is_bounded=True, transfer=Transfer.INDEX
    ),
    facts("bitwise_and", Cost.POINTWISE, like="BitwiseAnd"),
    facts("bitwise_left_shift", Cost.POINTWISE, like="BitShift"),
    facts("bitwise_not", Cost.POINTWISE, like="BitwiseNot"),
    facts("bitwise_or", Cost.POINTWISE, like="BitwiseOr"),
    facts("bitwise_right_shift", Cost.POINTWISE, like="BitShift"),
    facts("bitwise_xor", Cost.POINTWISE, like="BitwiseXor"),
    # Into which of two boundaries a number falls.
    facts("bucketize", Cost.POINTWISE, Risk.STEP, like="Less", is_bounded=True),
    facts("count_nonzero", Cost.REDUCTION, Risk.STEP, like="NonZero"),
    # The values are the input's own; which of them, and their indices, may flip.
    facts(
        "cummax",
        Cost.REDUCTION,
        Risk.STEP,
        like="ReduceMax",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "cummin",
        Cost.REDUCTION,
        Risk.STEP,
        like="ReduceMin",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "eq",
        Cost.POINTWISE,
        Risk.STEP,
        like="Equal",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.TRUTH,
    ),
    facts(
        "equal", Cost.POINTWISE, Risk.STEP, like="Equal", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts(
        "ge",
        Cost.POINTWISE,
        Risk.STEP,
        like="GreaterOrEqual",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.ABOVE,
    ),
    facts(
        "greater",
        Cost.POINTWISE,
        Risk.STEP,
        like="Greater",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.ABOVE,
    ),
    facts(
        "greater_equal",
        Cost.POINTWISE,
        Risk.STEP,
        like="GreaterOrEqual",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.ABOVE,
    ),
    facts(
        "gt",
        Cost.POINTWISE,
        Risk.STEP,
        like="Greater",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.ABOVE,
    ),
    facts("heaviside", Cost.POINTWISE, Risk.STEP, like="Greater"),
    facts("histc", Cost.REDUCTION, Risk.STEP, like="ReduceSum"),
    facts(
        "isclose", Cost.POINTWISE, Risk.STEP, like="Equal", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts(
        "isfinite",
        Cost.POINTWISE,
        Risk.OVERFLOW,
        like="IsInf",
        is_bounded=True,
        transfer=Transfer.FINITE,
    ),
    facts(
        "isin", Cost.POINTWISE, Risk.STEP, like="Equal", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts(
        "isinf",
        Cost.POINTWISE,
        Risk.OVERFLOW,
        like="IsInf",
        is_bounded=True,
        transfer=Transfer.FINITE,
    ),
    # Overflow changes finite to infinite, but never creates or removes NaN.
    facts("isnan", Cost.POINTWISE, like="IsNaN", is_bounded=True, transfer=Transfer.FINITE),
    facts(
        "isneginf",
        Cost.POINTWISE,
        Risk.OVERFLOW,
        like="IsInf",
        is_bounded=True,
        transfer=Transfer.FINITE,
    ),
    facts(
        "isposinf",
        Cost.POINTWISE,
        Risk.OVERFLOW,
        like="IsInf",
        is_bounded=True,
        transfer=Transfer.FINITE,
    ),
    facts(
        "kthvalue",
        Cost.REDUCTION,
        Risk.STEP,
        like="TopK",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "le",
        Cost.POINTWISE,
        Risk.STEP,
        like="LessOrEqual",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.BELOW,
    ),
    facts(
        "less",
        Cost.POINTWISE,
        Risk.STEP,
        like="Less",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.BELOW,
    ),
    facts(
        "less_equal",
        Cost.POINTWISE,
        Risk.STEP,
        like="LessOrEqual",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.BELOW,
    ),
    facts("logical_and", Cost.POINTWISE, like="And", is_bounded=True, transfer=Transfer.TRUTH),
    facts("logical_not", Cost.POINTWISE, like="Not", is_bounded=True, transfer=Transfer.TRUTH),
    facts("logical_or", Cost.POINTWISE, like="Or", is_bounded=True, transfer=Transfer.TRUTH),
    facts("logical_xor", Cost.POINTWISE, like="Xor", is_bounded=True, transfer=Transfer.TRUTH),
    facts(
        "lt",
        Cost.POINTWISE,
        Risk.STEP,
        like="Less",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.BELOW,
    ),
    facts(
        "median", Cost.REDUCTION, Risk.STEP, like="TopK", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "mode", Cost.REDUCTION, Risk.STEP, like="TopK", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "msort", Cost.REDUCTION, Risk.STEP, like="TopK", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "nanmedian",
        Cost.REDUCTION,
        Risk.STEP,
        like="TopK",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "ne",
        Cost.POINTWISE,
        Risk.STEP,
        like="Equal",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.TRUTH,
    ),
    facts(
        "nonzero", Cost.OTHER, Risk.STEP, like="NonZero", is_bounded=True, transfer=Transfer.INDEX
    ),
    facts(
        "nonzero_numpy",
        Cost.OTHER,
        Risk.STEP,
        like="NonZero",
        is_bounded=True,
        transfer=Transfer.INDEX,
    ),
    facts(
        "not_equal",
        Cost.POINTWISE,
        Risk.STEP,
        like="Equal",
        function=Function.COMPARE,
        is_bounded=True,
        transfer=Transfer.TRUTH,
    ),
    facts("searchsorted", Cost.POINTWISE, Risk.STEP, like="Less", is_bounded=True),
    facts(
        "signbit", Cost.POINTWISE, Risk.STEP, like="Less", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts(
        "sort", Cost.REDUCTION, Risk.STEP, like="TopK", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "topk", Cost.REDUCTION, Risk.STEP, like="TopK", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "unique_consecutive",
        Cost.OTHER,
        Risk.STEP,
        like="Unique",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "unique_dim",
        Cost.OTHER,
        Risk.STEP,
        like="Unique",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "unique_dim_consecutive",
        Cost.OTHER,
        Risk.STEP,
        like="Unique",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    # With a condition alone it gives the places where that holds.
    facts(
        "where.default",
        Cost.OTHER,
        Risk.STEP,
        like="NonZero",
        is_bounded=True,
        transfer=Transfer.INDEX,
    ),
)
