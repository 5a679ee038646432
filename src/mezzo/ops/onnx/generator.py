"""Operators that make values from nothing, from integers or from shapes."""

from mezzo.facts import Cost, Function, OpFacts, Risk, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 1 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("Constant", Cost.GENERATOR),
    facts("ConstantOfShape", Cost.GENERATOR),
    facts("EyeLike", Cost.GENERATOR, is_bounded=True),
    # Every element is one of the two in its operand `values`.
    facts("OneHot", Cost.GENERATOR, keeps_values=True),
    facts("Range", Cost.GENERATOR, Risk.POSITION, function=Function.RANGE),
    # Shape and Size do not read the elements of their input.
    facts("Shape", Cost.GENERATOR, is_bounded=True),
    facts("Size", Cost.GENERATOR, is_bounded=True),
)
