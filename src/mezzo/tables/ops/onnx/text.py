"""Strings. No operator here reads a float tensor."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 9 to 20"

FACTS: tuple[OpFacts, ...] = (
    facts("RegexFullMatch", Cost.OTHER, Risk.TEXT, is_bounded=True),
    facts("StringConcat", Cost.OTHER, Risk.TEXT),
    facts("StringNormalizer", Cost.OTHER, Risk.TEXT),
    facts("StringSplit", Cost.OTHER, Risk.TEXT),
    facts("TfIdfVectorizer", Cost.OTHER, Risk.TEXT),
)
