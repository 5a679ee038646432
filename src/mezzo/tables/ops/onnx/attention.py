"""Attention as one operator, with a safe softmax and FP32 accumulation inside, so no risk."""

from mezzo.tables.facts import Cost, OpFacts, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation (attribute softmax_precision), opsets 23 to 25; Dao 2023"
    " (arXiv:2307.08691)"
)

FACTS: tuple[OpFacts, ...] = (
    facts(
        "Attention",
        Cost.ATTENTION,
        transfer=Transfer.ATTENTION,
        scaling="0, 0, x, 0, 0, x -> x, 0, x",
    ),
)
