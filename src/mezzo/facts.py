"""What is true of an operator in any model, on any device, under any policy.

Facts are keyed by (dialect, operator) and found by discovery: every module under `mezzo.ops.<dialect>` has a tuple
FACTS.
They name risks, never formats: a policy says which risk matters in which format.
"""

import enum
from dataclasses import dataclass


class Cost(enum.Enum):
    """What an operator's time goes into."""

    LINEAR = "linear"  # products and sums over a contracted axis: MatMul, Conv
    RECURRENT = "recurrent"  # linear work repeated over time: LSTM
    ATTENTION = "attention"  # two products with a softmax between
    NORMALIZATION = "normalization"  # brings values to one size by their own statistics: Softmax
    REDUCTION = "reduction"  # one number from many along an axis: ReduceMean
    POINTWISE = "pointwise"  # number by number: Add, Relu
    MOVEMENT = "movement"  # moves or picks values
    GENERATOR = "generator"  # makes values from nothing or from integers
    QUANTIZE = "quantize"  # between floats and scaled integers: QuantizeLinear
    CONTROL = "control"  # runs bodies: If, Loop
    OTHER = "other"  # of no family

    __hash__ = object.__hash__


class Risk(enum.Enum):
    """Why an operator may give wrong answers in fewer bits. Names no format."""

    EXPONENTIAL = "exponential"  # |f(x)| >> |x|: exp, sinh, cosh
    POWER = "power"  # powers and squares of unbounded inputs
    RECIPROCAL = "reciprocal"  # grows without bound near zero: 1/x, 1/sqrt(x), log
    SUM = "sum"  # the result or a partial sum grows with the length of an axis
    SUM_OF_SQUARES = "sum-of-squares"  # squares summed over an axis
    PRODUCT = "product"  # product over an axis
    STATISTICS = "statistics"  # mean and variance of its input
    SOFTMAX = "softmax"  # exponentials of differences of inputs that may be large
    STEP = "step"  # a small change of the input flips the output: floor, round, comparison, argmax
    POSITION = "position"  # counts, or holds coordinates or indices in floats
    PERIODIC = "periodic"  # sin, cos: the input's absolute error matters
    STEEP = "steep"  # the derivative is unbounded somewhere inside the domain: tan, acosh, asin
    LOSS = "loss"  # sums logarithms of probabilities
    RECURSION = "recursion"  # errors are carried over time steps
    BITS = "bits"  # reads the bit pattern: BitCast
    QUANTIZED = "quantized"  # part of a quantized region; its scales are not data
    RANDOM = "random"  # random draws differ with the dtype
    TEXT = "text"  # reads or writes strings

    __hash__ = object.__hash__


class Function(enum.Enum):
    """The arithmetic that structure patterns look for, one name in every dialect."""

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
    RANGE = "range"
    CUMULATIVE_SUM = "cumulative-sum"
    FLOOR = "floor"  # and ceil, round, trunc
    COMPARE = "compare"
    NONE = "none"  # no pattern asks for it

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class OpFacts:
    """One row. Unlisted operators have no row, which a policy reads as deny.

    `keeps_values`: each output element is one of the input's elements (Reshape, MaxPool, Relu is not: it makes zeros).
    `numbers`: attributes that enter the arithmetic as floats (Clip's bounds, Elu's alpha).
    `is_bounded`: the result's magnitude is bounded whatever the input's is (Sigmoid, Softmax, normalizations).
    """

    op: str
    cost: Cost
    function: Function = Function.NONE
    risks: frozenset[Risk] = frozenset()
    keeps_values: bool = False
    is_bounded: bool = False
    source: str = ""
    numbers: tuple[str, ...] = ()


def facts(
    op: str,
    cost: Cost,
    *risks: Risk,
    function: Function = Function.NONE,
    keeps_values: bool = False,
    is_bounded: bool = False,
    source: str = "",
    numbers: tuple[str, ...] = (),
) -> OpFacts:
    """Write one row of a table."""
    return OpFacts(op, cost, function, frozenset(risks), keeps_values, is_bounded, source, numbers)
