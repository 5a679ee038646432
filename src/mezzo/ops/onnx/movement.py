"""Operators that move, repeat or pick values and compute none.

ScatterElements and ScatterND may combine values (attribute `reduction`), so they do not keep them in every model.
"""

from mezzo.facts import Cost, Function, OpFacts, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 1 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("CenterCropPad", Cost.MOVEMENT, keeps_values=True),
    # Blocks that overlap are added; a pixel lies in no more blocks than a block has pixels.
    facts("Col2Im", Cost.MOVEMENT),
    facts("Compress", Cost.MOVEMENT, keeps_values=True),
    facts("Concat", Cost.MOVEMENT, keeps_values=True),
    facts("DepthToSpace", Cost.MOVEMENT, keeps_values=True),
    # The identity in inference; in training it also scales by 1 / (1 - ratio).
    facts("Dropout", Cost.MOVEMENT, function=Function.IDENTITY, keeps_values=True),
    facts("Expand", Cost.MOVEMENT, keeps_values=True),
    facts("Flatten", Cost.MOVEMENT, keeps_values=True),
    facts("Gather", Cost.MOVEMENT, keeps_values=True),
    facts("GatherElements", Cost.MOVEMENT, keeps_values=True),
    facts("GatherND", Cost.MOVEMENT, keeps_values=True),
    facts("Identity", Cost.MOVEMENT, function=Function.IDENTITY, keeps_values=True),
    # Its other places are zeros, as a pad's would be.
    facts("MaxUnpool", Cost.MOVEMENT, keeps_values=True),
    facts("Pad", Cost.MOVEMENT, keeps_values=True, numbers=("value",)),
    facts("Reshape", Cost.MOVEMENT, keeps_values=True),
    facts("ReverseSequence", Cost.MOVEMENT, keeps_values=True),
    facts("Scatter", Cost.MOVEMENT, keeps_values=True),
    facts("ScatterElements", Cost.MOVEMENT),
    facts("ScatterND", Cost.MOVEMENT),
    facts("Slice", Cost.MOVEMENT, keeps_values=True),
    facts("SpaceToDepth", Cost.MOVEMENT, keeps_values=True),
    facts("Split", Cost.MOVEMENT, keeps_values=True),
    facts("Squeeze", Cost.MOVEMENT, keeps_values=True),
    facts("TensorScatter", Cost.MOVEMENT, keeps_values=True),
    facts("Tile", Cost.MOVEMENT, keeps_values=True),
    facts("Transpose", Cost.MOVEMENT, keeps_values=True),
    facts("Trilu", Cost.MOVEMENT, keeps_values=True),
    facts("Unsqueeze", Cost.MOVEMENT, keeps_values=True),
    facts("Where", Cost.MOVEMENT, function=Function.SELECT, keeps_values=True),
)
