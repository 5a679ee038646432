"""Images and grids. The risk is in coordinates: half a pixel at 2,000 needs 12 bits."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional, vision functions; resolution of coordinates:"
    " IEEE 754-2019, section 3"
)

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_upsample_nearest_exact1d",
        Cost.MOVEMENT,
        like="Resize",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "_upsample_nearest_exact2d",
        Cost.MOVEMENT,
        like="Resize",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "_upsample_nearest_exact3d",
        Cost.MOVEMENT,
        like="Resize",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    # The grid, which holds positions, has to have the data's type.
    facts(
        "cudnn_grid_sampler",
        Cost.MOVEMENT,
        Risk.POSITION,
        like="GridSample",
        transfer=Transfer.MOVE,
    ),
    facts("grid_sampler", Cost.MOVEMENT, Risk.POSITION, like="GridSample", transfer=Transfer.MOVE),
    facts(
        "grid_sampler_2d", Cost.MOVEMENT, Risk.POSITION, like="GridSample", transfer=Transfer.MOVE
    ),
    facts(
        "grid_sampler_3d", Cost.MOVEMENT, Risk.POSITION, like="GridSample", transfer=Transfer.MOVE
    ),
    facts(
        "upsample_nearest1d",
        Cost.MOVEMENT,
        like="Resize",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "upsample_nearest2d",
        Cost.MOVEMENT,
        like="Resize",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "upsample_nearest3d",
        Cost.MOVEMENT,
        like="Resize",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    # Places between pixels are worked out in FP32 inside, whatever the data is.
    "_upsample_bicubic2d_aa": "Resize",
    "_upsample_bilinear2d_aa": "Resize",
    "affine_grid_generator": "AffineGrid",
    "channel_shuffle": "Transpose",
    # Blocks that overlap are added; a pixel lies in no more blocks than a block has pixels.
    "col2im": "Col2Im",
    "im2col": "Slice",
    "pixel_shuffle": "DepthToSpace",
    "pixel_unshuffle": "SpaceToDepth",
    "upsample_bicubic2d": "Resize",
    "upsample_bilinear2d": "Resize",
    "upsample_linear1d": "Resize",
    "upsample_trilinear3d": "Resize",
}
