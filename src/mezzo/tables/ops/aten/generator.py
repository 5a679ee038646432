"""Generators: operators with outputs from no input, from integers or from shapes."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 documentation, torch, creation operations"

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_efficientzerotensor",
        Cost.GENERATOR,
        like="ConstantOfShape",
        is_bounded=True,
        transfer=Transfer.FILL,
    ),
    facts("linspace", Cost.GENERATOR, Risk.POSITION, like="Range"),
    facts("logspace", Cost.GENERATOR, Risk.POSITION, like="Range"),
    facts(
        "new_ones", Cost.GENERATOR, like="ConstantOfShape", is_bounded=True, transfer=Transfer.FILL
    ),
    facts(
        "new_zeros", Cost.GENERATOR, like="ConstantOfShape", is_bounded=True, transfer=Transfer.FILL
    ),
    facts("one_hot", Cost.GENERATOR, like="OneHot", is_bounded=True, transfer=Transfer.TRUTH),
    facts("ones", Cost.GENERATOR, like="ConstantOfShape", is_bounded=True, transfer=Transfer.FILL),
    facts(
        "ones_like", Cost.GENERATOR, like="ConstantOfShape", is_bounded=True, transfer=Transfer.FILL
    ),
    facts("tril_indices", Cost.GENERATOR, like="Range", is_bounded=True),
    facts("triu_indices", Cost.GENERATOR, like="Range", is_bounded=True),
    facts("zero", Cost.GENERATOR, like="ConstantOfShape", is_bounded=True, transfer=Transfer.FILL),
    facts("zeros", Cost.GENERATOR, like="ConstantOfShape", is_bounded=True, transfer=Transfer.FILL),
    facts(
        "zeros_like",
        Cost.GENERATOR,
        like="ConstantOfShape",
        is_bounded=True,
        transfer=Transfer.FILL,
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "arange": "Range",
    "bartlett_window": "HannWindow",
    "blackman_window": "BlackmanWindow",
    # Uninitialized memory.
    "empty": "ConstantOfShape",
    "empty_like": "ConstantOfShape",
    "empty_permuted": "ConstantOfShape",
    "empty_strided": "ConstantOfShape",
    "eye": "EyeLike",
    # `fill` reads a tensor for its shape alone.
    "fill": "ConstantOfShape",
    "full": "ConstantOfShape",
    "full_like": "ConstantOfShape",
    "hamming_window": "HammingWindow",
    "hann_window": "HannWindow",
    "kaiser_window": "HannWindow",
    "new_empty": "ConstantOfShape",
    "new_empty_strided": "ConstantOfShape",
    "new_full": "ConstantOfShape",
    "scalar_tensor": "ConstantOfShape",
}
