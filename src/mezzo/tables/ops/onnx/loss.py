"""Losses: one number from a whole batch, where backpropagation starts."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "ONNX 1.23 operator documentation and function bodies, opsets 12 to 22; Micikevicius et al."
    " 2017 (arXiv:1710.03740)"
)

FACTS: tuple[OpFacts, ...] = (
    facts("NegativeLogLikelihoodLoss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts(
        "SoftmaxCrossEntropyLoss",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
    ),
)
