"""Sizes and scalars read by the program, on which its branches and shapes depend."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "PyTorch 2.13 aten/src/ATen/native/native_functions.yaml"

FACTS: tuple[OpFacts, ...] = (
    # A number as the program reads it.
    facts("_local_scalar_dense", Cost.OTHER, Risk.STEP, like="Cast"),
    facts("item", Cost.OTHER, Risk.STEP, like="Cast"),
    facts("sym_is_contiguous", Cost.GENERATOR, like="Shape", is_bounded=True),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "sym_numel": "Size",
    "sym_size": "Shape",
    "sym_storage_offset": "Shape",
    "sym_stride": "Shape",
}
