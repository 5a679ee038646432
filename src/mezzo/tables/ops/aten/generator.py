"""Generators: operators with outputs from no input, from integers or from shapes."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 documentation, torch, creation operations"

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_efficientzerotensor",
        Cost.GENERATOR,
        like="ConstantOfShape",
        is_bounded=True,
        transfer=Transfer.FILL,
    ),
    facts(
        "arange",
        Cost.GENERATOR,
        Risk.POSITION,
        like="Range",
        function=Function.RANGE,
        transfer=Transfer.RANGE,
    ),
    facts("bartlett_window", Cost.GENERATOR, Risk.PERIODIC, like="HannWindow", is_bounded=True),
    facts("blackman_window", Cost.GENERATOR, Risk.PERIODIC, like="BlackmanWindow", is_bounded=True),
    # Uninitialized memory.
    facts("empty", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("empty_like", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("empty_permuted", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("empty_strided", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("eye", Cost.GENERATOR, like="EyeLike", is_bounded=True, transfer=Transfer.TRUTH),
    # `fill` reads a tensor for its shape alone.
    facts("fill", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("full", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("full_like", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("hamming_window", Cost.GENERATOR, Risk.PERIODIC, like="HammingWindow", is_bounded=True),
    facts("hann_window", Cost.GENERATOR, Risk.PERIODIC, like="HannWindow", is_bounded=True),
    facts("kaiser_window", Cost.GENERATOR, Risk.PERIODIC, like="HannWindow", is_bounded=True),
    facts("linspace", Cost.GENERATOR, Risk.POSITION, like="Range"),
    facts("logspace", Cost.GENERATOR, Risk.POSITION, like="Range"),
    facts("new_empty", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("new_empty_strided", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("new_full", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
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
    facts("scalar_tensor", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
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
