"""Reductions, cumulative reductions and pooling."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; error and growth of sums and products of n"
    " terms: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 3"
    " and 4"
)

FACTS: tuple[OpFacts, ...] = (
    # A window holds few elements, so its sum stays near its largest one; a global pool's does not.
    facts("AveragePool", Cost.REDUCTION, transfer=Transfer.POOL, scaling="x -> x"),
    facts("CumProd", Cost.REDUCTION, Risk.PRODUCT, transfer=Transfer.RUNNING_PRODUCT),
    # Besides long sums it makes positions: the cumulative sum of a mask.
    facts(
        "CumSum",
        Cost.REDUCTION,
        Risk.SUM,
        Risk.POSITION,
        function=Function.CUMULATIVE_SUM,
        transfer=Transfer.RUNNING_SUM,
        scaling="x -> x",
    ),
    facts("GlobalAveragePool", Cost.REDUCTION, transfer=Transfer.MEAN, scaling="x -> x"),
    # The exponent p is an attribute; 2 is its default.
    facts("GlobalLpPool", Cost.REDUCTION, Risk.SUM_OF_SQUARES, transfer=Transfer.L2_NORM),
    facts("GlobalMaxPool", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("LpPool", Cost.REDUCTION, Risk.SUM_OF_SQUARES, transfer=Transfer.L2_NORM),
    facts("MaxPool", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("ReduceL1", Cost.REDUCTION, Risk.SUM, transfer=Transfer.L1_NORM, scaling="x -> x"),
    facts(
        "ReduceL2",
        Cost.REDUCTION,
        Risk.SUM_OF_SQUARES,
        function=Function.L2_NORM,
        transfer=Transfer.L2_NORM,
        scaling="x -> x",
    ),
    facts("ReduceLogSum", Cost.REDUCTION, Risk.SUM, Risk.RECIPROCAL, transfer=Transfer.LOG_SUM),
    facts(
        "ReduceLogSumExp",
        Cost.REDUCTION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        transfer=Transfer.LOG_SUM_EXP,
    ),
    facts(
        "ReduceMax",
        Cost.REDUCTION,
        function=Function.MAX,
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
    facts(
        "ReduceMean",
        Cost.REDUCTION,
        function=Function.MEAN,
        transfer=Transfer.MEAN,
        scaling="x -> x",
    ),
    facts("ReduceMin", Cost.REDUCTION, keeps_values=True, transfer=Transfer.EXTREME),
    facts("ReduceProd", Cost.REDUCTION, Risk.PRODUCT, transfer=Transfer.PRODUCT),
    facts(
        "ReduceSum",
        Cost.REDUCTION,
        Risk.SUM,
        function=Function.SUM,
        transfer=Transfer.SUM,
        scaling="x -> x",
    ),
    facts(
        "ReduceSumSquare",
        Cost.REDUCTION,
        Risk.SUM_OF_SQUARES,
        function=Function.SUM_OF_SQUARES,
        transfer=Transfer.SUM_OF_SQUARES,
        scaling="x -> 2x",
    ),
)
