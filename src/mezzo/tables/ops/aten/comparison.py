"""Comparisons, predicates and logic: float inputs, boolean or index outputs."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch; a rounded operand can cross the threshold, and one that"
    " overflows becomes infinite"
)

FACTS: tuple[OpFacts, ...] = (
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
    # Indices of all places: the order that a sort brings them to.
    facts(
        "argsort", Cost.REDUCTION, Risk.STEP, like="TopK", is_bounded=True, transfer=Transfer.INDEX
    ),
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
        "equal", Cost.POINTWISE, Risk.STEP, like="Equal", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts("heaviside", Cost.POINTWISE, Risk.STEP, like="Greater"),
    facts("histc", Cost.REDUCTION, Risk.STEP, like="ReduceSum"),
    facts(
        "isclose", Cost.POINTWISE, Risk.STEP, like="Equal", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts(
        "isin", Cost.POINTWISE, Risk.STEP, like="Equal", is_bounded=True, transfer=Transfer.TRUTH
    ),
    facts("searchsorted", Cost.POINTWISE, Risk.STEP, like="Less", is_bounded=True),
    facts(
        "signbit", Cost.POINTWISE, Risk.STEP, like="Less", is_bounded=True, transfer=Transfer.TRUTH
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "__and__": "BitwiseAnd",
    "__lshift__": "BitShift",
    "__or__": "BitwiseOr",
    "__rshift__": "BitShift",
    "__xor__": "BitwiseXor",
    "_unique2": "Unique",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "bitwise_and": "BitwiseAnd",
    "bitwise_left_shift": "BitShift",
    "bitwise_not": "BitwiseNot",
    "bitwise_or": "BitwiseOr",
    "bitwise_right_shift": "BitShift",
    "bitwise_xor": "BitwiseXor",
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "gt": "Greater",
    "isfinite": "IsInf",
    "isinf": "IsInf",
    # Overflow changes finite to infinite, but never creates or removes NaN.
    "isnan": "IsNaN",
    "isneginf": "IsInf",
    "isposinf": "IsInf",
    "kthvalue": "TopK",
    "le": "LessOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "lt": "Less",
    "median": "TopK",
    "mode": "TopK",
    "msort": "TopK",
    "nanmedian": "TopK",
    "ne": "Equal",
    "nonzero": "NonZero",
    "nonzero_numpy": "NonZero",
    "not_equal": "Equal",
    "sort": "TopK",
    "topk": "TopK",
    "unique_consecutive": "Unique",
    "unique_dim": "Unique",
    "unique_dim_consecutive": "Unique",
    # With a condition alone it gives the places where that holds.
    "where.default": "NonZero",
}
