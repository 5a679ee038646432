"""Images, boxes and grids. The risk is in coordinates: half a pixel at 2,000 needs 12 bits."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; resolution of coordinates: IEEE 754-2019,"
    " section 3"
)

FACTS: tuple[OpFacts, ...] = (
    facts("AffineGrid", Cost.GENERATOR, Risk.POSITION),
    # The data alone has no risk; the grid does, and its type is free of the data's.
    facts(
        "GridSample",
        Cost.MOVEMENT,
        source="the grid, which holds positions, is a type group of its own and keeps its type",
        transfer=Transfer.MOVE,
        scaling="x, 0 -> x",
    ),
    # Bytes in, bytes out.
    facts("ImageDecoder", Cost.OTHER),
    facts(
        "MaxRoiPool",
        Cost.REDUCTION,
        Risk.POSITION,
        keeps_values=True,
        transfer=Transfer.MOVE,
        scaling="x, 0 -> x",
    ),
    facts("NonMaxSuppression", Cost.OTHER, Risk.POSITION, Risk.STEP, is_bounded=True),
    # Resize and Upsample interpolate; their scales and regions are FP32 whatever the data is.
    facts("Resize", Cost.MOVEMENT, transfer=Transfer.MOVE, scaling="x -> x; extrapolation_value x"),
    # The boxes share the type of the data.
    facts("RoiAlign", Cost.REDUCTION, Risk.POSITION, transfer=Transfer.MOVE, scaling="x, 0 -> x"),
    facts("Upsample", Cost.MOVEMENT, transfer=Transfer.MOVE, scaling="x -> x"),
)
