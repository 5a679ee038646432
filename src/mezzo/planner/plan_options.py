"""What the user asks for, as the planner takes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzo.contracts.problem import MeasuredCosts
from mezzo.contracts.strategy import Strategy
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import PrecisionLine, float_of
from mezzo.formats.quantization import Quantization
from mezzo.tables.policy import Evidence, NamedFinding, Policy
from mezzo.tables.target import Target


@dataclass(frozen=True, slots=True)
class ErrorPrice:
    """What a strategy pays for running a node at a level, in cost units: the price of the error that this makes."""

    cost: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """What the user asks for. `include` and `exclude` are globs on node names or `op:` and a glob on operators.

    `io` maps names of graph inputs and outputs to a dtype; `io_default` is for the others: HIGH keeps them, None lets
    outputs take what their producer makes.
    `clamps_constants`: what is past the range is stored as the largest finite number, and protects nobody.
    `keep_regions` are left out of the pass; `fixed_regions` run in the dtype given. Both are patterns of `ByRegion`.
    `assumed` are the ends of graph inputs, by name, for what is estimated without data. `found` are facts measured on
    data, which deny their nodes as structure findings do, and so does `kept`, what was decided when the model was made;
    `lifted`, by node name, tells what was measured of nodes, so that what only suspected otherwise does not count;
    `quantized` are the parameters of values, by name, for a level that takes some; None where nobody has asked yet;
    `coarse`: nodes that are not quantized, as they would share one scale among values of which some are too small;
    `quantize_mode`: "smart" or "full", see `choose_units`. `is_dynamic`: only kernels are
    taken that find ranges as they run; `dynamic`, of a plan that is replayed: the names of all nodes that do so.
    `error_prices`, by a level's dtype and node name, and `measured` weigh what a strategy chooses.
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
    lifted: Mapping[str, Evidence] = field(default_factory=dict)
    error_prices: Mapping[DType, Mapping[str, ErrorPrice]] = field(default_factory=dict)
    measured: MeasuredCosts | None = None
    assumed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    kept: tuple[NamedFinding, ...] = ()
    quantized: Mapping[str, Quantization] | None = None
    coarse: tuple[NamedFinding, ...] = ()
    quantize_mode: str = "smart"
    is_dynamic: bool = False
    dynamic: frozenset[str] | None = None

    @property
    def low(self) -> DType:
        """The float beside the base, if there is one; else the only level beside it."""
        return float_of(self.line)
