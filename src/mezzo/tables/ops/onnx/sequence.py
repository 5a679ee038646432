"""Sequences and optionals. They move whole tensors; lengths do not depend on the content."""

from mezzo.tables.facts import Cost, OpFacts, Transfer, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 11 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("ConcatFromSequence", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Optional", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("OptionalGetElement", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("OptionalHasElement", Cost.GENERATOR, is_bounded=True),
    facts("SequenceAt", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("SequenceConstruct", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.JOIN),
    facts("SequenceEmpty", Cost.MOVEMENT, keeps_values=True),
    facts("SequenceErase", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("SequenceInsert", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.JOIN),
    facts("SequenceLength", Cost.GENERATOR, is_bounded=True),
    facts("SplitToSequence", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
)
