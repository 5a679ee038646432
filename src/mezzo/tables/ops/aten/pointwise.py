"""Elementwise arithmetic and elementary functions.

Division has no risk of its own: calibration shows whether the divisor comes near zero.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, pointwise operations; risks from each function's derivative, growth and "
    "poles: NIST Digital Library of Mathematical Functions, chapters 4 to 7"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_conj", Cost.POINTWISE, like="Identity"),
    facts("_conj_physical", Cost.POINTWISE, like="Identity"),
    facts("_to_copy", Cost.POINTWISE, like="Cast", function=Function.CAST, transfer=Transfer.CAST),
    facts("abs", Cost.POINTWISE, like="Abs", function=Function.ABS, transfer=Transfer.ABSOLUTE),
    facts("absolute", Cost.POINTWISE, like="Abs", function=Function.ABS, transfer=Transfer.ABSOLUTE),
    facts("acos", Cost.POINTWISE, Risk.STEEP, like="Acos", is_bounded=True, transfer=Transfer.STEEP),
    facts("acosh", Cost.POINTWISE, Risk.STEEP, like="Acosh", transfer=Transfer.STEEP),
    facts("add", Cost.POINTWISE, like="Add", function=Function.ADD, numbers=("alpha",), transfer=Transfer.ADD),
    facts("addcdiv", Cost.POINTWISE, like="Div", numbers=("value",)),
    facts("addcmul", Cost.POINTWISE, like="Mul", numbers=("value",)),
    # It jumps by half a turn or a whole one where an operand changes sign.
    facts("angle", Cost.POINTWISE, Risk.STEP, like="Atan", is_bounded=True),
    facts("arccos", Cost.POINTWISE, Risk.STEEP, like="Acos", is_bounded=True, transfer=Transfer.STEEP),
    facts("arccosh", Cost.POINTWISE, Risk.STEEP, like="Acosh", transfer=Transfer.STEEP),
    facts("arcsin", Cost.POINTWISE, Risk.STEEP, like="Asin", is_bounded=True, transfer=Transfer.STEEP),
    facts("arcsinh", Cost.POINTWISE, like="Asinh"),
    facts("arctan", Cost.POINTWISE, like="Atan", is_bounded=True, transfer=Transfer.TANH),
    facts("arctan2", Cost.POINTWISE, Risk.STEP, like="Atan", is_bounded=True),
    facts("arctanh", Cost.POINTWISE, Risk.STEEP, like="Atanh", transfer=Transfer.STEEP),
    facts("asin", Cost.POINTWISE, Risk.STEEP, like="Asin", is_bounded=True, transfer=Transfer.STEEP),
    facts("asinh", Cost.POINTWISE, like="Asinh"),
    facts("atan", Cost.POINTWISE, like="Atan", is_bounded=True, transfer=Transfer.TANH),
    facts("atan2", Cost.POINTWISE, Risk.STEP, like="Atan", is_bounded=True),
    facts("atanh", Cost.POINTWISE, Risk.STEEP, like="Atanh", transfer=Transfer.STEEP),
    facts("ceil", Cost.POINTWISE, Risk.STEP, like="Ceil", function=Function.FLOOR, transfer=Transfer.STEP),
    facts(
        "clamp",
        Cost.POINTWISE,
        like="Clip",
        function=Function.CLIP,
        numbers=(
            "max",
            "min",
        ),
        transfer=Transfer.CLIP,
    ),
    facts(
        "clamp_max",
        Cost.POINTWISE,
        like="Clip",
        function=Function.MINIMUM,
        keeps_values=True,
        transfer=Transfer.MINIMUM,
    ),
    facts(
        "clamp_min",
        Cost.POINTWISE,
        like="Clip",
        function=Function.MAXIMUM,
        keeps_values=True,
        transfer=Transfer.MAXIMUM,
    ),
    facts(
        "clip",
        Cost.POINTWISE,
        like="Clip",
        function=Function.CLIP,
        numbers=(
            "max",
            "min",
        ),
        transfer=Transfer.CLIP,
    ),
    facts("complex", Cost.POINTWISE, Risk.PERIODIC),
    facts("conj", Cost.POINTWISE, like="Identity"),
    facts("conj_physical", Cost.POINTWISE, like="Identity"),
    facts("copysign", Cost.POINTWISE, Risk.STEP, like="Abs"),
    facts("cos", Cost.POINTWISE, Risk.PERIODIC, like="Cos", is_bounded=True, transfer=Transfer.COSINE),
    facts("cosh", Cost.POINTWISE, Risk.EXPONENTIAL, like="Cosh"),
    facts("deg2rad", Cost.POINTWISE, like="Mul"),
    # As a difference of two neighbours.
    facts("diff", Cost.POINTWISE, like="Sub"),
    facts("digamma", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("div", Cost.POINTWISE, like="Div", function=Function.DIVIDE, transfer=Transfer.DIVIDE),
    # They round the quotient.
    facts("div.Scalar_mode", Cost.POINTWISE, Risk.STEP, like="Floor"),
    facts("div.Tensor_mode", Cost.POINTWISE, Risk.STEP, like="Floor"),
    facts("divide", Cost.POINTWISE, like="Div", function=Function.DIVIDE, transfer=Transfer.DIVIDE),
    facts("divide.Scalar_mode", Cost.POINTWISE, Risk.STEP, like="Floor"),
    facts("divide.Tensor_mode", Cost.POINTWISE, Risk.STEP, like="Floor"),
    facts(
        "erf", Cost.POINTWISE, like="Erf", function=Function.SATURATE, is_bounded=True, transfer=Transfer.ERROR_FUNCTION
    ),
    facts("erfc", Cost.POINTWISE, like="Erf", is_bounded=True),
    facts("erfinv", Cost.POINTWISE, Risk.STEEP, transfer=Transfer.STEEP),
    facts("exp", Cost.POINTWISE, Risk.EXPONENTIAL, like="Exp", function=Function.EXP, transfer=Transfer.EXPONENTIAL),
    facts("exp2", Cost.POINTWISE, Risk.EXPONENTIAL, like="Exp", function=Function.EXP),
    facts("expm1", Cost.POINTWISE, Risk.EXPONENTIAL, like="Exp"),
    facts("fix", Cost.POINTWISE, Risk.STEP, like="Floor", function=Function.FLOOR, transfer=Transfer.STEP),
    facts("float_power", Cost.POINTWISE, Risk.POWER, like="Pow", function=Function.POWER, transfer=Transfer.POWER),
    facts("floor", Cost.POINTWISE, Risk.STEP, like="Floor", function=Function.FLOOR, transfer=Transfer.STEP),
    facts("floor_divide", Cost.POINTWISE, Risk.STEP, like="Floor"),
    facts("fmax", Cost.POINTWISE, like="Max", function=Function.MAXIMUM, keeps_values=True, transfer=Transfer.MAXIMUM),
    facts("fmin", Cost.POINTWISE, like="Min", function=Function.MINIMUM, keeps_values=True, transfer=Transfer.MINIMUM),
    facts("fmod", Cost.POINTWISE, Risk.STEP, like="Mod"),
    # The number itself less its whole part.
    facts("frac", Cost.POINTWISE, Risk.STEP, like="Mod", is_bounded=True),
    facts("frexp", Cost.POINTWISE, Risk.STEP, like="BitCast"),
    facts("hypot", Cost.POINTWISE, Risk.POWER, like="Sqrt"),
    facts("i0", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts("igamma", Cost.POINTWISE, is_bounded=True),
    facts("igammac", Cost.POINTWISE, is_bounded=True),
    facts("ldexp", Cost.POINTWISE, Risk.EXPONENTIAL, like="Mul"),
    facts("lerp", Cost.POINTWISE, like="Add"),
    facts("lgamma", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("log", Cost.POINTWISE, Risk.RECIPROCAL, like="Log", function=Function.LOG, transfer=Transfer.LOGARITHM),
    # Other bases only scale the result.
    facts("log10", Cost.POINTWISE, Risk.RECIPROCAL, like="Log", function=Function.LOG, transfer=Transfer.LOGARITHM),
    # Its pole is at -1.
    facts("log1p", Cost.POINTWISE, Risk.RECIPROCAL, like="Log"),
    facts("log2", Cost.POINTWISE, Risk.RECIPROCAL, like="Log", function=Function.LOG, transfer=Transfer.LOGARITHM),
    facts("logaddexp", Cost.POINTWISE, Risk.SOFTMAX, Risk.RECIPROCAL, like="ReduceLogSumExp"),
    facts("logaddexp2", Cost.POINTWISE, Risk.SOFTMAX, Risk.RECIPROCAL, like="ReduceLogSumExp"),
    facts("logit", Cost.POINTWISE, Risk.RECIPROCAL, Risk.STEEP, like="Log"),
    facts(
        "max.other", Cost.POINTWISE, like="Max", function=Function.MAXIMUM, keeps_values=True, transfer=Transfer.MAXIMUM
    ),
    facts(
        "maximum", Cost.POINTWISE, like="Max", function=Function.MAXIMUM, keeps_values=True, transfer=Transfer.MAXIMUM
    ),
    facts(
        "min.other", Cost.POINTWISE, like="Min", function=Function.MINIMUM, keeps_values=True, transfer=Transfer.MINIMUM
    ),
    facts(
        "minimum", Cost.POINTWISE, like="Min", function=Function.MINIMUM, keeps_values=True, transfer=Transfer.MINIMUM
    ),
    facts("mul", Cost.POINTWISE, like="Mul", function=Function.MULTIPLY, transfer=Transfer.MULTIPLY),
    facts("multiply", Cost.POINTWISE, like="Mul", function=Function.MULTIPLY, transfer=Transfer.MULTIPLY),
    facts("mvlgamma", Cost.POINTWISE, Risk.RECIPROCAL),
    # It puts numbers in place of what is infinite.
    facts("nan_to_num", Cost.POINTWISE, Risk.OVERFLOW, like="Where", transfer=Transfer.KEEP),
    facts("neg", Cost.POINTWISE, like="Neg", function=Function.NEGATE, transfer=Transfer.NEGATE),
    facts("negative", Cost.POINTWISE, like="Neg", function=Function.NEGATE, transfer=Transfer.NEGATE),
    facts("nextafter", Cost.POINTWISE, Risk.BITS, like="BitCast"),
    facts("polar", Cost.POINTWISE, Risk.PERIODIC),
    facts("polygamma", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("pow", Cost.POINTWISE, Risk.POWER, like="Pow", function=Function.POWER, transfer=Transfer.POWER),
    facts("rad2deg", Cost.POINTWISE, like="Mul"),
    facts(
        "reciprocal",
        Cost.POINTWISE,
        Risk.RECIPROCAL,
        like="Reciprocal",
        function=Function.RECIPROCAL,
        transfer=Transfer.RECIPROCAL,
    ),
    facts("remainder", Cost.POINTWISE, Risk.STEP, like="Mod"),
    facts("resolve_conj", Cost.POINTWISE, like="Identity"),
    facts("resolve_neg", Cost.POINTWISE, like="Identity"),
    facts("round", Cost.POINTWISE, Risk.STEP, like="Round", function=Function.FLOOR, transfer=Transfer.STEP),
    facts(
        "rsqrt",
        Cost.POINTWISE,
        Risk.RECIPROCAL,
        like="Reciprocal",
        function=Function.RSQRT,
        transfer=Transfer.RECIPROCAL_ROOT,
    ),
    # The second operand comes first; `mezzo.aten.read.attributes` turns the two round.
    facts(
        "rsub", Cost.POINTWISE, like="Sub", function=Function.SUBTRACT, numbers=("alpha",), transfer=Transfer.SUBTRACT
    ),
    facts("sgn", Cost.POINTWISE, Risk.STEP, like="Sign", is_bounded=True, transfer=Transfer.SIGN),
    facts("sign", Cost.POINTWISE, Risk.STEP, like="Sign", is_bounded=True, transfer=Transfer.SIGN),
    facts("sin", Cost.POINTWISE, Risk.PERIODIC, like="Sin", is_bounded=True, transfer=Transfer.SINE),
    facts("sinc", Cost.POINTWISE, Risk.PERIODIC, like="Sin", is_bounded=True),
    facts("sinh", Cost.POINTWISE, Risk.EXPONENTIAL, like="Sinh"),
    facts("special_digamma", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("special_entr", Cost.POINTWISE, Risk.RECIPROCAL, like="Log"),
    facts(
        "special_erf",
        Cost.POINTWISE,
        like="Erf",
        function=Function.SATURATE,
        is_bounded=True,
        transfer=Transfer.ERROR_FUNCTION,
    ),
    facts("special_erfc", Cost.POINTWISE, like="Erf", is_bounded=True),
    facts("special_erfcx", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts("special_erfinv", Cost.POINTWISE, Risk.STEEP, transfer=Transfer.STEEP),
    facts("special_exp2", Cost.POINTWISE, Risk.EXPONENTIAL, like="Exp", function=Function.EXP),
    facts("special_expm1", Cost.POINTWISE, Risk.EXPONENTIAL, like="Exp"),
    facts("special_gammainc", Cost.POINTWISE, is_bounded=True),
    facts("special_gammaincc", Cost.POINTWISE, is_bounded=True),
    facts("special_gammaln", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("special_i0", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts("special_i0e", Cost.POINTWISE, is_bounded=True),
    facts("special_i1", Cost.POINTWISE, Risk.EXPONENTIAL),
    facts("special_i1e", Cost.POINTWISE, is_bounded=True),
    facts("special_log1p", Cost.POINTWISE, Risk.RECIPROCAL, like="Log"),
    facts("special_log_ndtr", Cost.POINTWISE, Risk.SUM_OF_SQUARES, like="Log"),
    facts("special_logit", Cost.POINTWISE, Risk.RECIPROCAL, Risk.STEEP, like="Log"),
    facts("special_multigammaln", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("special_ndtr", Cost.POINTWISE, like="Erf", is_bounded=True, transfer=Transfer.SIGMOID),
    facts("special_ndtri", Cost.POINTWISE, Risk.STEEP, transfer=Transfer.STEEP),
    facts("special_polygamma", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("special_psi", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("special_sinc", Cost.POINTWISE, Risk.PERIODIC, like="Sin", is_bounded=True),
    facts("special_xlog1py", Cost.POINTWISE, Risk.RECIPROCAL, like="Log"),
    facts("special_xlogy", Cost.POINTWISE, Risk.RECIPROCAL, like="Log"),
    facts("special_zeta", Cost.POINTWISE, Risk.RECIPROCAL),
    facts("sqrt", Cost.POINTWISE, like="Sqrt", function=Function.SQRT, transfer=Transfer.SQUARE_ROOT),
    facts(
        "square", Cost.POINTWISE, Risk.POWER, like="ReduceSumSquare", function=Function.SQUARE, transfer=Transfer.SQUARE
    ),
    facts(
        "sub", Cost.POINTWISE, like="Sub", function=Function.SUBTRACT, numbers=("alpha",), transfer=Transfer.SUBTRACT
    ),
    facts(
        "subtract",
        Cost.POINTWISE,
        like="Sub",
        function=Function.SUBTRACT,
        numbers=("alpha",),
        transfer=Transfer.SUBTRACT,
    ),
    facts("tan", Cost.POINTWISE, Risk.PERIODIC, Risk.STEEP, like="Tan", transfer=Transfer.STEEP),
    facts("to", Cost.POINTWISE, like="Cast", function=Function.CAST, transfer=Transfer.CAST),
    facts("true_divide", Cost.POINTWISE, like="Div", function=Function.DIVIDE, transfer=Transfer.DIVIDE),
    facts("trunc", Cost.POINTWISE, Risk.STEP, like="Floor", function=Function.FLOOR, transfer=Transfer.STEP),
    facts("type_as", Cost.POINTWISE, like="Cast", function=Function.CAST, transfer=Transfer.CAST),
    # It reads the bits of its input as another type.
    facts("view.dtype", Cost.POINTWISE, Risk.BITS, like="BitCast"),
    facts("xlogy", Cost.POINTWISE, Risk.RECIPROCAL, like="Log"),
)
