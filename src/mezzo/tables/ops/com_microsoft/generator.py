"""Generators: operators with outputs from no input or from integers."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.31 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("Range", Cost.GENERATOR, Risk.POSITION, function=Function.RANGE, transfer=Transfer.RANGE),
)
