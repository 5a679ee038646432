"""Reductions of decompositions."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 torch/_prims/__init__.py and torch/_inductor/inductor_prims.py"

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_low_memory_max_pool_with_offsets",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "amax",
        Cost.REDUCTION,
        like="ReduceMax",
        function=Function.MAX,
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
    facts("amin", Cost.REDUCTION, like="ReduceMin", keeps_values=True, transfer=Transfer.EXTREME),
    # The largest number of an axis, and the sum of exponentials of what the others lack of it.
    facts("prepare_softmax_online", Cost.REDUCTION, Risk.SOFTMAX, Risk.SUM, like="ReduceLogSumExp"),
    facts("prod", Cost.REDUCTION, Risk.PRODUCT, like="ReduceProd", transfer=Transfer.PRODUCT),
    facts(
        "sum",
        Cost.REDUCTION,
        Risk.SUM,
        like="ReduceSum",
        function=Function.SUM,
        transfer=Transfer.SUM,
    ),
    facts(
        "var",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
    ),
    facts("xor_sum", Cost.REDUCTION, like="Xor"),
)
