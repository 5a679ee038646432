"""Elementwise arithmetic and elementary functions.

Division has no risk of its own: calibration shows whether the divisor comes near zero.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; risks from each function's derivative,"
    " growth and poles: NIST Digital Library of Mathematical Functions, chapter 4"
)

FACTS: tuple[OpFacts, ...] = (
    facts(
        "Abs", Cost.POINTWISE, function=Function.ABS, transfer=Transfer.ABSOLUTE, scaling="x -> x"
    ),
    facts("Acos", Cost.POINTWISE, Risk.STEEP, is_bounded=True, transfer=Transfer.STEEP),
    facts("Acosh", Cost.POINTWISE, Risk.STEEP, transfer=Transfer.STEEP),
    facts("Add", Cost.POINTWISE, function=Function.ADD, transfer=Transfer.ADD, scaling="x, x -> x"),
    facts("Asin", Cost.POINTWISE, Risk.STEEP, is_bounded=True, transfer=Transfer.STEEP),
    facts("Asinh", Cost.POINTWISE),
    facts("Atan", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TANH),
    facts("Atanh", Cost.POINTWISE, Risk.STEEP, transfer=Transfer.STEEP),
    facts("BitCast", Cost.POINTWISE, Risk.BITS),
    facts("Cast", Cost.POINTWISE, function=Function.CAST, transfer=Transfer.CAST, scaling="x -> x"),
    facts(
        "CastLike",
        Cost.POINTWISE,
        function=Function.CAST,
        transfer=Transfer.CAST,
        scaling="x, _ -> x",
    ),
    facts("Ceil", Cost.POINTWISE, Risk.STEP, function=Function.FLOOR, transfer=Transfer.STEP),
    facts(
        "Clip",
        Cost.POINTWISE,
        function=Function.CLIP,
        numbers=("max", "min"),
        transfer=Transfer.CLIP,
        scaling="x, x, x -> x; min x; max x",
    ),
    facts("Cos", Cost.POINTWISE, Risk.PERIODIC, is_bounded=True, transfer=Transfer.COSINE),
    facts("Cosh", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts(
        "Div",
        Cost.POINTWISE,
        function=Function.DIVIDE,
        transfer=Transfer.DIVIDE,
        scaling="x, y -> x-y",
    ),
    facts(
        "Erf",
        Cost.POINTWISE,
        function=Function.SATURATE,
        is_bounded=True,
        transfer=Transfer.ERROR_FUNCTION,
    ),
    facts(
        "Exp",
        Cost.POINTWISE,
        Risk.EXPONENTIAL,
        function=Function.EXP,
        transfer=Transfer.EXPONENTIAL,
    ),
    facts("Floor", Cost.POINTWISE, Risk.STEP, function=Function.FLOOR, transfer=Transfer.STEP),
    facts(
        "Log", Cost.POINTWISE, Risk.RECIPROCAL, function=Function.LOG, transfer=Transfer.LOGARITHM
    ),
    facts(
        "Max",
        Cost.POINTWISE,
        function=Function.MAXIMUM,
        keeps_values=True,
        transfer=Transfer.MAXIMUM,
    ),
    # Mean and Sum of several tensors, element by element; their count is small and fixed.
    facts("Mean", Cost.POINTWISE, transfer=Transfer.AVERAGE, scaling="x... -> x"),
    facts(
        "Min",
        Cost.POINTWISE,
        function=Function.MINIMUM,
        keeps_values=True,
        transfer=Transfer.MINIMUM,
    ),
    facts("Mod", Cost.POINTWISE, Risk.STEP),
    facts(
        "Mul",
        Cost.POINTWISE,
        function=Function.MULTIPLY,
        transfer=Transfer.MULTIPLY,
        scaling="x, y -> x+y",
    ),
    facts(
        "Neg", Cost.POINTWISE, function=Function.NEGATE, transfer=Transfer.NEGATE, scaling="x -> x"
    ),
    facts(
        "Pow",
        Cost.POINTWISE,
        Risk.POWER,
        function=Function.POWER,
        transfer=Transfer.POWER,
        scaling="x, 0 -> #x",
    ),
    facts(
        "Reciprocal",
        Cost.POINTWISE,
        Risk.RECIPROCAL,
        function=Function.RECIPROCAL,
        transfer=Transfer.RECIPROCAL,
        scaling="x -> -x",
    ),
    # A rotation by angles whose sines and cosines are given: it keeps the norm of each pair.
    facts("RotaryEmbedding", Cost.POINTWISE, transfer=Transfer.MOVE, scaling="x, 0, 0 -> x"),
    facts("Round", Cost.POINTWISE, Risk.STEP, function=Function.FLOOR, transfer=Transfer.STEP),
    facts(
        "Sign", Cost.POINTWISE, Risk.STEP, is_bounded=True, transfer=Transfer.SIGN, scaling="_ -> 0"
    ),
    facts("Sin", Cost.POINTWISE, Risk.PERIODIC, is_bounded=True, transfer=Transfer.SINE),
    facts("Sinh", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts(
        "Sqrt",
        Cost.POINTWISE,
        function=Function.SQRT,
        transfer=Transfer.SQUARE_ROOT,
        scaling="2x -> x",
    ),
    facts(
        "Sub",
        Cost.POINTWISE,
        function=Function.SUBTRACT,
        transfer=Transfer.SUBTRACT,
        scaling="x, x -> x",
    ),
    facts("Sum", Cost.POINTWISE, transfer=Transfer.ADD, scaling="x... -> x"),
    facts("Tan", Cost.POINTWISE, Risk.PERIODIC, Risk.STEEP, transfer=Transfer.STEEP),
)
