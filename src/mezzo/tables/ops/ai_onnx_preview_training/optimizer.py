"""Optimizers with state across steps, and the gradient of a subgraph."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "ONNX 1.23 operator documentation, domain ai.onnx.preview.training, version 1; "
    "Micikevicius et al. 2017 (arXiv:1710.03740)"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Adagrad", Cost.POINTWISE, Risk.RECURSION),
    facts("Adam", Cost.POINTWISE, Risk.RECURSION),
    facts("Gradient", Cost.CONTROL, Risk.RECURSION),
    facts("Momentum", Cost.POINTWISE, Risk.RECURSION),
)
