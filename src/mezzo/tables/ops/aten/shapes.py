"""Sizes and scalars read by the program, on which its branches and shapes depend."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 aten/src/ATen/native/native_functions.yaml"

FACTS: tuple[OpFacts, ...] = (
    # A number as the program reads it.
    facts("_local_scalar_dense", Cost.OTHER, Risk.STEP, like="Cast"),
    facts("item", Cost.OTHER, Risk.STEP, like="Cast"),
    facts("sym_is_contiguous", Cost.GENERATOR, like="Shape", is_bounded=True),
    facts("sym_numel", Cost.GENERATOR, like="Size", is_bounded=True, transfer=Transfer.SHAPE),
    facts("sym_size", Cost.GENERATOR, like="Shape", is_bounded=True, transfer=Transfer.SHAPE),
    facts(
        "sym_storage_offset", Cost.GENERATOR, like="Shape", is_bounded=True, transfer=Transfer.SHAPE
    ),
    facts("sym_stride", Cost.GENERATOR, like="Shape", is_bounded=True, transfer=Transfer.SHAPE),
)
