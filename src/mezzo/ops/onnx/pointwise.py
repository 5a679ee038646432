"""Arithmetic and elementary functions, element by element.

Div carries no risk of its own: what it divides by is data, and ranges tell whether it comes near zero.
"""

from mezzo.facts import Cost, Function, OpFacts, Risk, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; risks from each function's derivative, growth and poles: "
    "NIST Digital Library of Mathematical Functions, chapter 4"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Abs", Cost.POINTWISE, function=Function.ABS),
    facts("Acos", Cost.POINTWISE, Risk.STEEP, is_bounded=True),
    facts("Acosh", Cost.POINTWISE, Risk.STEEP),
    facts("Add", Cost.POINTWISE, function=Function.ADD),
    facts("Asin", Cost.POINTWISE, Risk.STEEP, is_bounded=True),
    facts("Asinh", Cost.POINTWISE),
    facts("Atan", Cost.POINTWISE, is_bounded=True),
    facts("Atanh", Cost.POINTWISE, Risk.STEEP),
    facts("BitCast", Cost.POINTWISE, Risk.BITS),
    facts("Cast", Cost.POINTWISE, function=Function.CAST),
    facts("CastLike", Cost.POINTWISE, function=Function.CAST),
    facts("Ceil", Cost.POINTWISE, Risk.STEP, function=Function.FLOOR),
    facts("Clip", Cost.POINTWISE, function=Function.CLIP, numbers=("max", "min")),
    facts("Cos", Cost.POINTWISE, Risk.PERIODIC, is_bounded=True),
    facts("Cosh", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts("Div", Cost.POINTWISE, function=Function.DIVIDE),
    facts("Erf", Cost.POINTWISE, is_bounded=True),
    facts("Exp", Cost.POINTWISE, Risk.EXPONENTIAL, function=Function.EXP),
    facts("Floor", Cost.POINTWISE, Risk.STEP, function=Function.FLOOR),
    facts("Log", Cost.POINTWISE, Risk.RECIPROCAL, function=Function.LOG),
    facts("Max", Cost.POINTWISE, function=Function.MAXIMUM, keeps_values=True),
    # Mean and Sum of several tensors, element by element; their count is small and fixed.
    facts("Mean", Cost.POINTWISE),
    facts("Min", Cost.POINTWISE, function=Function.MINIMUM, keeps_values=True),
    facts("Mod", Cost.POINTWISE, Risk.STEP),
    facts("Mul", Cost.POINTWISE, function=Function.MULTIPLY),
    facts("Neg", Cost.POINTWISE, function=Function.NEGATE),
    facts("Pow", Cost.POINTWISE, Risk.POWER, function=Function.POWER),
    facts("Reciprocal", Cost.POINTWISE, Risk.RECIPROCAL, function=Function.RECIPROCAL),
    # A rotation by angles whose sines and cosines are given: it keeps the norm of each pair.
    facts("RotaryEmbedding", Cost.POINTWISE),
    facts("Round", Cost.POINTWISE, Risk.STEP, function=Function.FLOOR),
    facts("Sign", Cost.POINTWISE, Risk.STEP, is_bounded=True),
    facts("Sin", Cost.POINTWISE, Risk.PERIODIC, is_bounded=True),
    facts("Sinh", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts("Sqrt", Cost.POINTWISE, function=Function.SQRT),
    facts("Sub", Cost.POINTWISE, function=Function.SUBTRACT),
    facts("Sum", Cost.POINTWISE),
    facts("Tan", Cost.POINTWISE, Risk.PERIODIC, Risk.STEEP),
)
