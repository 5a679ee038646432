"""Images, boxes and grids. The risk is in coordinates: half a pixel at 2,000 needs 12 bits."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX Runtime 1.31 operator schemas, domain com.microsoft; resolution of coordinates: IEEE"
    " 754-2019, section 3"
)

FACTS: tuple[OpFacts, ...] = (
    # The boxes share the type of the data.
    facts("CropAndResize", Cost.MOVEMENT, Risk.POSITION),
    # The grid shares the type of the data, unlike in the default domain's GridSample.
    facts("GridSample", Cost.MOVEMENT, Risk.POSITION, transfer=Transfer.MOVE),
)
