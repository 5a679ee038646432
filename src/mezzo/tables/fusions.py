"""Kernel fusions of a target: patterns that it runs as one kernel, and the types that its kernel
takes. Rows of a target.

A row names a pattern of the catalogue, which `mezzo.analysis.fusion.patterns` matches, so that
runtimes with the same fusion refer to one pattern.
"""

import enum
from dataclasses import dataclass

from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.tables.facts import Function


class Inside(enum.Enum):
    """Which dtypes the values between a unit's nodes may have at no cost."""

    ONE_TYPE = "one type"  # the result's; a conversion between its nodes prevents the fusion
    FLOAT32 = "fp32"  # the kernel computes in FP32 internally, so its nodes may stay in FP32
    # One type outside, as above, but arithmetic in FP32: a low type is worth no conversion.
    REGISTERS = "fp32 in registers"
    # A kernel of FP32 only: in a low type the runtime converts before and after it, like Casts.
    WRAPPED = "fp32 between conversions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Type constraints of a kernel, for the formats that it names; other formats have ordinary
    costs.

    `formats`: those in which its nodes are fused. `is_linked`: only if all have one type, so the
    nodes agree on a level. `exact`: functions computed in FP32 from the inputs, bit for bit,
    regardless of types; `most_keys`: with at most so many elements in a sum of them, no bound if
    None. `reads_free`, `writes_free`: formats that the kernel converts to FP32 while reading, and
    from FP32 while writing, at no cost.
    """

    inside: Inside = Inside.ONE_TYPE
    formats: frozenset[DType] = frozenset()
    is_linked: bool = False
    exact: frozenset[Function] = frozenset()
    most_keys: int | None = None
    reads_free: frozenset[DType] = frozenset()
    writes_free: frozenset[DType] = frozenset()

    @property
    def named(self) -> frozenset[DType]:
        """All formats that the constraint names."""
        return self.formats | self.reads_free | self.writes_free


class Step(enum.Enum):
    """An operation after a matmul or convolution that its kernel may include."""

    BIAS = "bias"  # adds a constant that varies along the last axis only
    SCALE_COLUMNS = "scale-columns"  # the same, or multiplies by such a constant
    SCALE_CHANNELS = "scale-channels"  # by channel, BatchNormalization included
    RESIDUAL = "residual"  # adds a value of the same shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of an epilogue: any of the activations, or the step. `most`: maximum number of
    operators in it.

    `activations` names operators and composites such as "gelu-erf". `channel_block`: the step
    applies only to images whose number of channels is a multiple of it.
    """

    activations: frozenset[str] = frozenset()
    step: Step | None = None
    channel_block: int | None = None
    most: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """A pattern that a target runs as one kernel. A target's fusions are matched in their order,
    and each node is fused once.

    `pattern` and `form`: a pattern of the catalogue, and which of its forms; empty for the usual
    one. `operators`: for patterns that take them, the operators of the kernel. `epilogues`: what
    may follow, as alternative sequences of stages, of which the longest match is taken. `source`
    and `since`: the document or runtime graph, and the version, that show the fusion. `least`:
    minimum number of nodes. `absorbs_casts`: Casts at the border do not prevent the fusion, so that
    the kernel may need one type beyond its unit.
    """

    pattern: str
    form: str = ""
    operators: frozenset[str] = frozenset()
    epilogues: tuple[tuple[Stage, ...], ...] = ()
    constraint: Constraint = Constraint()
    source: str
    since: str
    least: int = 2
    absorbs_casts: bool = False


def fused_by_inductor(since: str) -> Fusion:
    """The fusion of Inductor, which generates kernels of pointwise work and reductions on every
    device. `since`: the PyTorch of the evidence.
    """
    return Fusion(
        pattern="inductor",
        constraint=Constraint(
            inside=Inside.FLOAT32,
            formats=HALF_FORMATS,
            reads_free=HALF_FORMATS,
            writes_free=HALF_FORMATS,
        ),
        source=(
            "torch._inductor: low operands of pointwise work and reductions are widened as they"
            " are loaded"
        ),
        since=since,
        least=1,
    )
