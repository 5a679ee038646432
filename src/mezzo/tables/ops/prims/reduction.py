"""Reductions of decompositions."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 torch/_prims/__init__.py and torch/_inductor/inductor_prims.py"

FACTS: tuple[OpFacts, ...] = (
    # The largest number of an axis, and the sum of exponentials of what the others lack of it.
    facts("prepare_softmax_online", Cost.REDUCTION, Risk.SOFTMAX, Risk.SUM, like="ReduceLogSumExp"),
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

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "_low_memory_max_pool_with_offsets": "MaxPool",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
}
