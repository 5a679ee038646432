"""Inputs of the planner: the validated options and measurements of one conversion."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzo.contracts.plans import Accumulation
from mezzo.contracts.problem import MeasuredCosts
from mezzo.contracts.strategy import Strategy
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import PrecisionLine, float_of, floats_of
from mezzo.formats.quantization import Quantization
from mezzo.tables.policy import Evidence, NamedFinding, Policy
from mezzo.tables.target import Target


@dataclass(frozen=True, slots=True)
class ErrorPrice:
    """Penalty for running a node at a level, in cost units: the price of the error it causes."""

    cost: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """Inputs of the planner. `include` and `exclude`: globs on node names, or `op:` and a glob on
    operators.

    `io`: dtype by name of graph inputs and outputs; `io_default` for the others: HIGH keeps FP32,
    None gives outputs the dtype of their producer. `clamps_constants`: constants past the range are
    clamped to the largest finite value, and no node is protected. `keep_regions` stay FP32;
    `fixed_regions` run in the given dtype; both are patterns of `ByRegion`. `assumed`: ranges of
    graph inputs by name, for estimates without data. `feedback`: outputs that become inputs of the
    next call, as `find_feedback` reads them. `found`: findings measured on data, which deny
    their nodes; `kept`: the same for decisions recorded in the model. `lifted`: measurements by
    float and node name that overrule estimated findings. `quantized`: quantization parameters by
    value name; None before calibration. `coarse`: nodes not quantized because one scale cannot
    represent the small values among their inputs. `quantize_mode`: "smart" and others, see
    `choose_units`. `is_dynamic`: only kernels with dynamic quantization are used; `dynamic`: for a
    replayed plan, the nodes that run so. `weight_bits`: weights are stored as integers of one of
    these widths, in blocks; `in_blocks`: their storage by name, None for the usual one of the
    target's kernels; `weight_float`: weights are stored in it and cast to FP32, `stored_floats`:
    which ones by name, None for all that it holds; `decode`: the share of time that matmuls run at
    one row. `error_prices` (by dtype and node name) and `measured` are costs for the strategy.
    """

    line: PrecisionLine
    policy: Policy
    strategy: Strategy
    target: Target
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    io: Mapping[str, DType] = field(default_factory=dict)
    io_default: DType | None = HIGH
    clamps_constants: bool = False
    keep_regions: tuple[str, ...] = ()
    fixed_regions: tuple[tuple[str, DType], ...] = ()
    found: tuple[NamedFinding, ...] = ()
    lifted: Mapping[DType, Mapping[str, Evidence]] = field(default_factory=dict)
    error_prices: Mapping[DType, Mapping[str, ErrorPrice]] = field(default_factory=dict)
    measured: MeasuredCosts | None = None
    assumed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    feedback: tuple[str, ...] = ()
    kept: tuple[NamedFinding, ...] = ()
    quantized: Mapping[str, Quantization] | None = None
    coarse: tuple[NamedFinding, ...] = ()
    quantize_mode: str = "smart"
    is_dynamic: bool = False
    dynamic: frozenset[str] | None = None
    weight_bits: tuple[int, ...] = ()
    decode: float = 1.0
    in_blocks: Mapping[str, BlockStorage] | None = None
    weight_float: DType | None = None
    stored_floats: Mapping[str, DType] | None = None

    @property
    def sums(self) -> Accumulation | None:
        """How the target's kernels sum in the line's formats; None if in FP32."""
        return Accumulation.of(self.target, self.line.other_dtypes)

    @property
    def low(self) -> DType:
        """The float beside the base, if there is one; else the only level beside it."""
        return float_of(self.line)

    @property
    def floats(self) -> tuple[DType, ...]:
        """The floats next to the base, the preferred one first; else the only other level."""
        return floats_of(self.line)

    def evidence(self, low: DType) -> Mapping[str, Evidence]:
        """Measurements that overrule estimated findings at a level, by node name."""
        return self.lifted.get(low if low in self.floats else self.low, {})
