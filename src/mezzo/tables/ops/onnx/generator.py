"""Generators: operators with outputs from no input, from integers or from shapes."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 1 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("Constant", Cost.GENERATOR),
    facts("ConstantOfShape", Cost.GENERATOR, transfer=Transfer.FILL),
    facts("EyeLike", Cost.GENERATOR, is_bounded=True, transfer=Transfer.TRUTH),
    # Every element is one of the two in its operand `values`.
    facts(
        "OneHot",
        Cost.GENERATOR,
        keeps_values=True,
        transfer=Transfer.ONE_HOT,
        scaling="0, 0, x -> x",
    ),
    facts("Range", Cost.GENERATOR, Risk.POSITION, function=Function.RANGE, transfer=Transfer.RANGE),
    # Shape and Size do not read the elements of their input.
    facts("Shape", Cost.GENERATOR, is_bounded=True, transfer=Transfer.SHAPE, scaling="_ -> 0"),
    facts("Size", Cost.GENERATOR, is_bounded=True, transfer=Transfer.SHAPE, scaling="_ -> 0"),
)
