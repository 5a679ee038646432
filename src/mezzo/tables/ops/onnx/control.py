"""Operators with subgraphs. Cost and risks are those of the subgraphs."""

from mezzo.tables.facts import Cost, OpFacts, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 1 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("If", Cost.CONTROL),
    facts("Loop", Cost.CONTROL),
    facts("Scan", Cost.CONTROL),
    facts("SequenceMap", Cost.CONTROL),
)
