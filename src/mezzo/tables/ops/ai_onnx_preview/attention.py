"""Attention whose scores are changed by a subgraph."""

from mezzo.tables.facts import Cost, OpFacts, facts

SOURCE = "ONNX 1.23 operator documentation, domain ai.onnx.preview, version 1"

FACTS: tuple[OpFacts, ...] = (facts("FlexAttention", Cost.ATTENTION),)
