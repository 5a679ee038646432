"""Images and grids. The risk is in coordinates: half a pixel at 2,000 needs 12 bits."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional, vision functions; resolution of coordinates:"
    " IEEE 754-2019, section 3"
)

FACTS: tuple[OpFacts, ...] = (
    # Places between pixels are worked out in FP32 inside, whatever the data is.
    facts("_upsample_bicubic2d_aa", Cost.MOVEMENT, like="Resize", transfer=Transfer.MOVE),
    facts("_upsample_bilinear2d_aa", Cost.MOVEMENT, like="Resize", transfer=Transfer.MOVE),
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
    facts("affine_grid_generator", Cost.GENERATOR, Risk.POSITION, like="AffineGrid"),
    facts(
        "channel_shuffle",
        Cost.MOVEMENT,
        like="Transpose",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    # Blocks that overlap are added; a pixel lies in no more blocks than a block has pixels.
    facts("col2im", Cost.MOVEMENT, like="Col2Im", transfer=Transfer.MOVE),
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
    facts("im2col", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "pixel_shuffle",
        Cost.MOVEMENT,
        like="DepthToSpace",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "pixel_unshuffle",
        Cost.MOVEMENT,
        like="SpaceToDepth",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("upsample_bicubic2d", Cost.MOVEMENT, like="Resize", transfer=Transfer.MOVE),
    facts("upsample_bilinear2d", Cost.MOVEMENT, like="Resize", transfer=Transfer.MOVE),
    facts("upsample_linear1d", Cost.MOVEMENT, like="Resize", transfer=Transfer.MOVE),
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
    facts("upsample_trilinear3d", Cost.MOVEMENT, like="Resize", transfer=Transfer.MOVE),
)
