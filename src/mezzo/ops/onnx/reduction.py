"""Reductions, cumulative reductions and pooling."""

from mezzo.facts import Cost, Function, OpFacts, Risk, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; error and growth of sums and products of n terms: N. J. Higham, "
    "Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 3 and 4"
)

FACTS: tuple[OpFacts, ...] = (
    # A window holds few elements, so its sum stays near its largest one; a global pool's does not.
    facts("AveragePool", Cost.REDUCTION),
    facts("CumProd", Cost.REDUCTION, Risk.PRODUCT),
    # Besides long sums it makes positions: the cumulative sum of a mask.
    facts("CumSum", Cost.REDUCTION, Risk.SUM, Risk.POSITION, function=Function.CUMULATIVE_SUM),
    facts("GlobalAveragePool", Cost.REDUCTION),
    # The exponent p is an attribute; 2 is its default.
    facts("GlobalLpPool", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("GlobalMaxPool", Cost.REDUCTION, keeps_values=True),
    facts("LpPool", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("MaxPool", Cost.REDUCTION, keeps_values=True),
    facts("ReduceL1", Cost.REDUCTION, Risk.SUM),
    facts("ReduceL2", Cost.REDUCTION, Risk.SUM_OF_SQUARES, function=Function.L2_NORM),
    facts("ReduceLogSum", Cost.REDUCTION, Risk.SUM, Risk.RECIPROCAL),
    facts("ReduceLogSumExp", Cost.REDUCTION, Risk.SOFTMAX, Risk.RECIPROCAL),
    facts("ReduceMax", Cost.REDUCTION, function=Function.MAX, keeps_values=True),
    facts("ReduceMean", Cost.REDUCTION, function=Function.MEAN),
    facts("ReduceMin", Cost.REDUCTION, keeps_values=True),
    facts("ReduceProd", Cost.REDUCTION, Risk.PRODUCT),
    facts("ReduceSum", Cost.REDUCTION, Risk.SUM, function=Function.SUM),
    facts("ReduceSumSquare", Cost.REDUCTION, Risk.SUM_OF_SQUARES, function=Function.SUM_OF_SQUARES),
)
