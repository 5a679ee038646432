"""Data movement: operators that move, repeat or select elements without arithmetic.

ScatterElements and ScatterND may combine elements (`reduction`), so they do not always keep values.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Transfer, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 1 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("CenterCropPad", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    # Blocks that overlap are added; a pixel lies in no more blocks than a block has pixels.
    facts("Col2Im", Cost.MOVEMENT, transfer=Transfer.MOVE, scaling="x -> x"),
    facts("Compress", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Concat", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.JOIN),
    facts("DepthToSpace", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    # The identity in inference; in training it also scales by 1 / (1 - ratio).
    facts(
        "Dropout",
        Cost.MOVEMENT,
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
        scaling="x, 0, 0 -> x",
    ),
    facts("Expand", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("Flatten", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("Gather", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("GatherElements", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("GatherND", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "Identity",
        Cost.MOVEMENT,
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    # Its other places are zeros, as a pad's would be.
    facts("MaxUnpool", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "Pad",
        Cost.MOVEMENT,
        keeps_values=True,
        numbers=("value",),
        transfer=Transfer.MOVE,
        scaling="x... -> x; value x",
    ),
    facts("Reshape", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("ReverseSequence", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Scatter", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.JOIN),
    facts(
        "ScatterElements",
        Cost.MOVEMENT,
        transfer=Transfer.JOIN,
        scaling="x, 0, x -> x; unless reduction mul",
    ),
    facts(
        "ScatterND",
        Cost.MOVEMENT,
        transfer=Transfer.JOIN,
        scaling="x, 0, x -> x; unless reduction mul",
    ),
    facts("Slice", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("SpaceToDepth", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Split", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Squeeze", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts("TensorScatter", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.JOIN),
    facts("Tile", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Transpose", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Trilu", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("Unsqueeze", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.KEEP),
    facts(
        "Where",
        Cost.MOVEMENT,
        function=Function.SELECT,
        keeps_values=True,
        transfer=Transfer.SELECT,
    ),
)
