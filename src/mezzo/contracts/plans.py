"""What was decided, why, and the edits that realise it. A plan is data: printed, saved, diffed, edited, replayed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from mezzo.contracts.corrections import Correction
from mezzo.contracts.quantized_level import DynamicProduct
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import Precision, PrecisionLine
from mezzo.formats.quantization import Quantization
from mezzo.ir.display import Shown
from mezzo.ir.nodes import Use
from mezzo.tables.policy import Category
from mezzo.tables.target import Gain


class Accumulation(NamedTuple):
    """Sums in tiles: products are summed in FP32 within `tile` steps of the contracted axis, and the partial sums in
    `dtype`, rounded after every tile.
    """

    dtype: DType
    tile: int


class Reason(NamedTuple):
    """Why a node has its precision: a rule's name, the evidence in words, and the node that caused it."""

    rule: str
    because: str
    cause: int | None = None


class Retype(NamedTuple):
    """The value itself has another dtype: its producer runs in it, or its constant is stored in it.

    `limit`: the constant's finite numbers beyond it are stored as the limit.
    """

    value: int
    dtype: DType
    limit: float | None = None


class AddCast(NamedTuple):
    """A further form of the value, made by one cast right after its producer, in the producer's scope.

    `reads`: the form that is cast, where it is not the value itself.
    """

    value: int
    dtype: DType
    reads: DType | None = None


class AddCopy(NamedTuple):
    """A further form of a value that comes from a source: a constant stored again, an integer cast again."""

    value: int
    dtype: DType
    limit: float | None = None


class Rewire(NamedTuple):
    """Operand `operand` of `node` reads the form of `value` that has `dtype`."""

    node: int
    operand: int
    value: int
    dtype: DType


class Quantize(NamedTuple):
    """A further form of the value: its base form quantized, right after the producer of that form, and dequantized
    again for those who read it. A weight is stored as integers and dequantized.

    `takes_over`: all who read the base form read the dequantized one. Else only `Rewire` with the quantized dtype does.
    `reader`: who alone reads it, of a weight that is held otherwise for others; it needs no Rewire.
    """

    value: int
    how: Quantization
    takes_over: bool
    reader: Use | None = None


class RunDynamic(NamedTuple):
    """A product runs on integers, and finds the range of its data as it runs: what it reads and makes are floats."""

    node: int
    product: DynamicProduct


Edit = Retype | AddCast | AddCopy | Quantize | Rewire | RunDynamic


class PlannedNode(NamedTuple):
    """One line of a plan. `cause` is the name of the node that led to it."""

    name: str
    op: str
    kind: str
    precision: Precision
    category: Category | None
    rule: str
    because: str
    cause: str | None


class Names(NamedTuple):
    """What else the nodes of a plan are known by: those that make a value, and those that read one that none of them
    makes, by the value's name; the module that a node was exported from; what a value without floats holds.
    """

    makers: Mapping[str, tuple[str, ...]]
    readers: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, str]
    without_floats: Mapping[str, str]


_NO_NAMES = Names({}, {}, {}, {})


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Shown):
    """An assignment with its reasons and edits, bound to one model by `fingerprint`.

    `dialect` is that of the model, and `version` the one of it that the edits need; None where no step is taken.
    `settings` are the options that made the plan, by name, for the reader. `limits` are the constants stored within
    bounds: the name of their source, the bound. `quantized` are the parameters of values, by name, that nodes read or
    make quantized; `dynamic` are the nodes, by name, that find the range of their data as they run; `corrected` are
    constants that were changed before anything was planned. `origin` is what the model tells of how it was made, as far
    as it bears on the plan; `gain` what the target's table says of its speed; `choice` why this format is taken, where
    nobody has asked for one; `obstacle` what keeps the model from a version at which more would run low; `apart` how
    many operators compute in a float that the plan has no level of, by that float. `names` are empty where the plan
    stands apart from its model, as a saved one does. The nodes, the fingerprint and the names are worked out when first
    asked for: most conversions never do.
    """

    line: PrecisionLine
    dialect: str
    version: int | None
    settings: tuple[tuple[str, str], ...]
    edits: tuple[Edit, ...]
    limits: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    make_nodes: Callable[[], tuple[PlannedNode, ...]] = field(repr=False, compare=False)
    make_fingerprint: Callable[[], str] = field(repr=False, compare=False)
    origin: tuple[str, ...] = ()
    quantized: tuple[tuple[str, Quantization], ...] = ()
    dynamic: tuple[str, ...] = ()
    corrected: tuple[Correction, ...] = ()
    gain: Gain | None = field(default=None, repr=False, compare=False)
    choice: str | None = field(default=None, repr=False, compare=False)
    obstacle: str | None = field(default=None, repr=False, compare=False)
    apart: tuple[tuple[DType, int], ...] = field(default=(), repr=False, compare=False)
    make_names: Callable[[], Names] = field(default=lambda: _NO_NAMES, repr=False, compare=False)

    @cached_property
    def names(self) -> Names:
        """What else the nodes are known by."""
        return self.make_names()

    @cached_property
    def nodes(self) -> tuple[PlannedNode, ...]:
        """One line per node that holds a precision, in graph order."""
        return self.make_nodes()

    @cached_property
    def fingerprint(self) -> str:
        """Names the model's structure; a plan fits no other."""
        return self.make_fingerprint()

    @property
    def high(self) -> DType:
        """What the plan's model came in."""
        return self.line.base_dtype

    @property
    def lows(self) -> tuple[DType, ...]:
        """What the plan's levels beside the base hand on, in their order."""
        return self.line.beside

    @property
    def low(self) -> DType:
        """The one other dtype of a plan of two levels."""
        return self.line.only_other

    def with_nodes(self, nodes: Iterable[PlannedNode]) -> "Plan":
        """The same plan with other lines, to be checked and lowered when it is replayed."""
        given = tuple(nodes)
        return replace(self, make_nodes=lambda: given)

    @cached_property
    def by_name(self) -> dict[str, PlannedNode]:
        return {node.name: node for node in self.nodes}
