"""Data movement: operators that move, repeat or select elements without arithmetic."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.31 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    # The identity in inference; in training it also scales by 1 / (1 - ratio).
    facts(
        "BitmaskDropout",
        Cost.MOVEMENT,
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("ExpandDims", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("GatherND", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    # It writes minus infinity over the scores of repeated tokens.
    facts("NGramRepeatBlock", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Pad", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    # It picks rows of a table by integer distance.
    facts("RelativePositionBias", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("RemovePadding", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("RestorePadding", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "SampleOp",
        Cost.MOVEMENT,
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("TorchEmbedding", Cost.MOVEMENT, keeps_values=True),
    facts("Trilu", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("UnfoldTensor", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    # Two elements that round to one number are one element.
    facts("Unique", Cost.OTHER, Risk.STEP, keeps_values=True, transfer=Transfer.MOVE),
)
