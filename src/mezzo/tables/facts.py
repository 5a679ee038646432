"""Operator facts: cost class, numerical risks and error laws, independent of model, device and
policy.

Keyed by (dialect, operator) and found by discovery: every module under `mezzo.tables.ops.<dialect>`
has a tuple FACTS, and may have EQUIVALENTS of ONNX operators. Facts name risks, never formats: a
policy says which risk matters in which format.
"""

import enum
from dataclasses import dataclass


class Cost(enum.Enum):
    """Cost class of an operator."""

    LINEAR = "linear"  # products and sums over a contracted axis: MatMul, Conv
    RECURRENT = "recurrent"  # linear work repeated over time: LSTM
    ATTENTION = "attention"  # two matmuls with a softmax between
    NORMALIZATION = "normalization"  # scales values by their own statistics: Softmax
    REDUCTION = "reduction"  # one number from many along an axis: ReduceMean
    POINTWISE = "pointwise"  # elementwise: Add, Relu
    MOVEMENT = "movement"  # moves or picks values
    GENERATOR = "generator"  # outputs without float inputs: constants, random numbers
    QUANTIZE = "quantize"  # between floats and scaled integers: QuantizeLinear
    CONTROL = "control"  # runs subgraphs: If, Loop
    OTHER = "other"  # of no family

    __hash__ = object.__hash__


# Classes with nearly all of a model's arithmetic.
HEAVY = frozenset({Cost.LINEAR, Cost.ATTENTION, Cost.RECURRENT})


class Risk(enum.Enum):
    """Why an operator may lose accuracy in fewer bits. Names no format."""

    EXPONENTIAL = "exponential"  # |f(x)| >> |x|: exp, sinh, cosh
    POWER = "power"  # powers and squares of unbounded inputs
    RECIPROCAL = "reciprocal"  # grows without bound near zero: 1/x, 1/sqrt(x), log
    SUM = "sum"  # the result or a partial sum grows with the length of an axis
    SUM_OF_SQUARES = "sum-of-squares"  # squares summed over an axis
    PRODUCT = "product"  # product over an axis
    STATISTICS = "statistics"  # mean and variance of its input
    SOFTMAX = "softmax"  # exponentials of differences of inputs that may be large
    STEP = "step"  # a small change of the input flips the output: floor, round, comparison, argmax
    OVERFLOW = "overflow"  # only an overflow changes the result: IsInf
    POSITION = "position"  # counts, or holds coordinates or indices in floats
    PERIODIC = "periodic"  # sin, cos: the input's absolute error matters
    STEEP = "steep"  # the derivative is unbounded somewhere inside the domain: tan, acosh, asin
    LOSS = "loss"  # sums logarithms of probabilities
    RECURSION = "recursion"  # errors are carried over time steps
    BITS = "bits"  # depends on the bit pattern: BitCast
    QUANTIZED = "quantized"  # part of a quantized region; its scales are not data
    RANDOM = "random"  # random draws differ with the dtype
    TEXT = "text"  # reads or writes strings

    __hash__ = object.__hash__


class Function(enum.Enum):
    """Arithmetic function that structure patterns match, one name for all dialects."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    NEGATE = "negate"
    POWER = "power"
    SQUARE = "square"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIPROCAL = "reciprocal"
    EXP = "exp"
    LOG = "log"
    MEAN = "mean"
    SUM = "sum"
    SUM_OF_SQUARES = "sum-of-squares"
    VARIANCE = "variance"  # over an axis, around the mean
    L2_NORM = "l2-norm"
    MAX = "max"  # over an axis
    ABS = "abs"
    MINIMUM = "minimum"  # elementwise
    MAXIMUM = "maximum"  # elementwise
    CLIP = "clip"
    SELECT = "select"  # Where
    CAST = "cast"
    IDENTITY = "identity"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log-softmax"
    MATMUL = "matmul"
    FOURIER = "fourier"  # a transform of a signal
    RANGE = "range"
    CUMULATIVE_SUM = "cumulative-sum"
    FLOOR = "floor"  # and ceil, round, trunc
    COMPARE = "compare"
    # Tanh, erf, the logistic function: at their ends within 1e-4 past 9, and there at infinity.
    SATURATE = "saturate"
    NONE = "none"  # no pattern matches it

    __hash__ = object.__hash__


class Transfer(enum.Enum):
    """Propagation law: size of an operator's result, and the operand error that a given error of
    the result allows. One name per law in all dialects; `mezzo.analysis.estimates` implements them.
    """

    KEEP = "keep"  # the first operand's elements in order, rounded or reshaped
    MOVE = "move"  # every element is one of the first operand's
    JOIN = "join"  # every element is one of some operand's
    SELECT = "select"  # a condition picks from the second and third operand
    ADD = "add"
    SUBTRACT = "subtract"
    AVERAGE = "average"  # of the operands, elementwise
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    POWER = "power"
    NEGATE = "negate"
    ABSOLUTE = "absolute"
    SQUARE = "square"
    SQUARE_ROOT = "square-root"
    RECIPROCAL_ROOT = "reciprocal-root"  # one over the square root
    RECIPROCAL = "reciprocal"
    EXPONENTIAL = "exponential"
    LOGARITHM = "logarithm"
    MINIMUM = "minimum"  # number by number
    MAXIMUM = "maximum"  # number by number
    CLIP = "clip"
    RELU = "relu"
    BENT = "bent"  # scales negative elements down: LeakyRelu
    GELU = "gelu"
    SILU = "silu"
    SIGMOID = "sigmoid"
    HARD_SIGMOID = "hard-sigmoid"
    SOFTPLUS = "softplus"
    ERROR_FUNCTION = "error-function"
    TANH = "tanh"  # and what else saturates at both ends
    SINE = "sine"
    COSINE = "cosine"
    STEEP = "steep"  # the derivative is unbounded inside the domain
    CONTRACT = "contract"  # products summed over a contracted axis, a bias added
    EINSUM = "einsum"
    SUM = "sum"
    MEAN = "mean"
    POOL = "pool"  # mean over a small window
    EXTREME = "extreme"  # largest or smallest along an axis
    SUM_OF_SQUARES = "sum-of-squares"
    VARIANCE = "variance"  # around the mean along an axis
    L2_NORM = "l2-norm"
    L1_NORM = "l1-norm"
    PRODUCT = "product"
    LOG_SUM = "log-sum"
    LOG_SUM_EXP = "log-sum-exp"
    RUNNING_SUM = "running-sum"
    RUNNING_PRODUCT = "running-product"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log-softmax"
    STANDARDIZE = "standardize"  # by the mean and spread of its input: LayerNorm
    NORMALIZE_SIZE = "normalize-size"  # by the size of its input: RMSNorm, L2
    # By mean and variance that are operands: BatchNorm in inference.
    GIVEN_STATISTICS = "given-statistics"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    SIGN = "sign"  # -1, 0 or 1
    STEP = "step"  # floor, round: whole numbers of the input's size
    ABOVE = "above"  # whether the first operand is larger than the second
    BELOW = "below"  # whether it is smaller
    TRUTH = "truth"  # true or false, or 0 or 1
    FINITE = "finite"  # IsInf, IsNaN: rounding changes neither
    INDEX = "index"  # positions in its input
    SHAPE = "shape"  # sizes of its input
    RANGE = "range"
    FILL = "fill"  # a constant
    ONE_HOT = "one-hot"
    CAST = "cast"
    QUANTIZED_SUM = "quantized-sum"  # integer products summed in integers
    QUANTIZE = "quantize"  # to small integers, with scale and zero point
    DEQUANTIZE = "dequantize"
    RANDOM = "random"  # of unit size

    __hash__ = object.__hash__


# Transfers over one or more axes, whose elements become one.
REDUCTIONS = frozenset(
    {
        Transfer.SUM,
        Transfer.MEAN,
        Transfer.EXTREME,
        Transfer.SUM_OF_SQUARES,
        Transfer.VARIANCE,
        Transfer.L1_NORM,
        Transfer.L2_NORM,
        Transfer.PRODUCT,
        Transfer.LOG_SUM,
        Transfer.LOG_SUM_EXP,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One row. Unlisted operators have no row, which policies treat as deny.

    `keeps_values`: each output element is one of the input's (Reshape, MaxPool; not Relu, which
    makes zeros). `numbers`: attributes used as floats in the arithmetic (Clip's bounds, Elu's
    alpha). `is_bounded`: the result's magnitude is bounded for every input (Sigmoid, Softmax,
    normalizations). `transfer`: how size and error propagate; None if not modelled. `like`: outside
    ONNX, the equivalent ONNX operator, or the one that this is the backward of: rules that name
    that one apply. None if no operator list has an equivalent. `scaling`: how power-of-two scales
    pass through it, in the notation of `scaling.py`; None if they do not.
    """

    op: str
    cost: Cost
    like: str | None = None
    function: Function = Function.NONE
    risks: frozenset[Risk] = frozenset()
    keeps_values: bool = False
    is_bounded: bool = False
    source: str = ""
    numbers: tuple[str, ...] = ()
    transfer: Transfer | None = None
    scaling: str | None = None


_SAME = "x... -> x..."


def facts(
    op: str,
    cost: Cost,
    *risks: Risk,
    like: str | None = None,
    function: Function = Function.NONE,
    keeps_values: bool = False,
    is_bounded: bool = False,
    source: str = "",
    numbers: tuple[str, ...] = (),
    transfer: Transfer | None = None,
    scaling: str | None = None,
) -> OpFacts:
    """Create one row. Without `scaling`, what keeps its values keeps their scale."""
    return OpFacts(
        op=op,
        cost=cost,
        like=like,
        function=function,
        risks=frozenset(risks),
        keeps_values=keeps_values,
        is_bounded=is_bounded,
        source=source,
        numbers=numbers,
        transfer=transfer,
        scaling=_SAME if scaling is None and keeps_values else scaling,
    )
