"""Targets: what a runtime or device can run, and its costs. Rows are data; a target is one file.

A target lists its formats; in others it runs nothing. Within them, what cannot run is stated by
refusals, single rows for a runtime that runs nearly everything, or by a listing of all kernels of a
dtype: operators missing in it are refused. Both may be combined. Quantized operators are stated by
rows of quantized kernels only.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from mezzo.formats.dtypes import FORMATS, HALF_FORMATS, QUANTIZED, DType
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.fusions import Fusion
from mezzo.tables.quantized_kernels import COMPOSITES, QuantizedKernel
from mezzo.tables.rows import EVERY_VERSION, holds
from mezzo.tables.runtime import Runtime
from mezzo.tables.sums import LowSum, PairSum

if TYPE_CHECKING:
    from mezzo.common.machine import Machine

_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Costs:
    """Relative prices for the planner. The unit is one byte moved through memory.

    `cast_launch`: fixed price of a cast, about that of a kernel launch; a policy's `worth` is in
    units of it. `linear_factor`: how much more a byte of a linear operator costs.
    """

    cast_launch: int = 1 << 18
    linear_factor: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One operator that a target cannot run. Empty `dtypes` means every low float.

    `attributes`: must all match, by value or by one of a frozenset. `versions`: of the operator,
    both ends included. `since`: the runtime version of the evidence. `needs`: machine features, any
    of which makes the row apply; empty for every machine. A plan respects every row, as it may be
    used on another machine.
    """

    dialect: str
    op: str
    because: str
    source: str
    dtypes: frozenset[DType] = frozenset()
    versions: tuple[int, int] = EVERY_VERSION
    attributes: Mapping[str, object] = field(default_factory=dict)
    since: str = ""
    needs: tuple[str, ...] = ()

    def refuses(self, version: int, attributes: Mapping[str, object], dtype: DType) -> bool:
        if dtype in QUANTIZED if not self.dtypes else dtype not in self.dtypes:
            return False
        return holds(self.versions, self.attributes, version, attributes)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """An operator that runs in the dtype of its listing, at these versions, both ends included."""

    dialect: str
    op: str
    versions: tuple[int, int] = EVERY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedOperator:
    """A standard operator whose kernel is faster than the same written out in small operators, so
    that these are replaced by it. Targets that fuse the small operators, or expand the standard one
    into them, have no row.
    """

    op: str
    source: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOperator:
    """An operator without a schema, such as a plug-in's, and the low dtypes of its floats."""

    dialect: str
    op: str
    dtypes: frozenset[DType]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelListing:
    """All kernels of a target in one dtype. `because`: the reason for refusing every other
    operator.
    """

    dtype: DType
    kernels: tuple[KernelRow, ...]
    because: str
    source: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Whether a dtype makes a model faster on a target: a float, a quantized format, or INT4 and
    INT8, which are weights alone in blocks. `because`: why not, if not; `short`: the
    same in some 40 characters.

    `needs`: machine features, any of which suffices, the fastest first; empty if every machine
    gains. Of a target's gains the first that applies gives the default format. `speeds`: matmuls'
    times FP32's speed at one row, and at 64; None if not measured.
    """

    dtype: DType
    is_faster: bool
    because: str
    source: str
    since: str
    needs: tuple[str, ...] = ()
    short: str | None = None
    speeds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        assert self.dtype in (*FORMATS, DType.INT8), (
            f"a gain is of a format, and {self.dtype} is none"
        )

    @property
    def in_short(self) -> str:
        """The reason, short if available."""
        return self.short or self.because

    def is_faster_on(self, machine: "Machine") -> bool | None:
        """Whether the dtype is faster on a machine; None if its features are unknown."""
        if not self.is_faster or not self.needs:
            return self.is_faster
        has = [machine.has(need) for need in self.needs]
        return True if True in has else None if None in has else False

    def feature_on(self, machine: "Machine") -> str | None:
        """The first needed feature that a machine has; None if it has none or none is needed."""
        return next((need for need in self.needs if machine.has(need)), None)

    @property
    def note(self) -> str | None:
        """Note for users of the dtype; None if it is faster without conditions."""
        if not self.is_faster:
            return self.because
        return f"{self.because}; needs {' or '.join(self.needs)}" if self.needs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Respelling:
    """An operator that a runtime would fuse with the normalization that is its only use, into a
    kernel slower than both: it is written as `instead`, an equivalent that no fusion matches.
    """

    op: str
    instead: str
    source: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NormQuotient:
    """Dtypes in which a runtime fuses a decomposed norm if it divides by the root, but not if it
    multiplies by its reciprocal: results are written with divisions.
    """

    dtypes: frozenset[DType]
    source: str
    since: str


@dataclass(frozen=True, kw_only=True)
class Target:
    """Rows of one runtime. An operator runs if it is neither refused nor missing in a listing, in
    formats of `formats`, with a listing, or with quantized kernels.

    `newest`: the newest version of each dialect that the runtime loads; no limit for others.
    `notes`: for users of every dtype. `also`: aliases; one that several targets share is rejected
    as ambiguous. `default_for`: requests for formats, such as "bf16" or "int8,fp16", that take this
    target unless another is named. `weight_casts`: what it does with weights in a low float that
    are cast to FP32, as measured; None if not known.
    """

    name: str
    summary: str
    refusals: tuple[Refusal, ...] = ()
    newest: Mapping[str, int] = field(default_factory=dict)
    costs: Costs = Costs()
    notes: tuple[str, ...] = ()
    listings: tuple[KernelListing, ...] = ()
    gains: tuple[Gain, ...] = ()
    formats: frozenset[DType] = HALF_FORMATS
    fusions: tuple[Fusion, ...] = ()  # matched in this order
    fuses_as: str = ""  # the target whose fusions these are, if not its own: a file's base
    quantized: tuple[QuantizedKernel, ...] = ()  # the first row of an operator is preferred
    in_blocks: tuple[BlockKernel, ...] = ()  # likewise
    weight_casts: str | None = None
    custom: tuple[CustomOperator, ...] = ()
    respellings: tuple[Respelling, ...] = ()  # before normalizations, in models in normal form
    norm_quotients: tuple[NormQuotient, ...] = ()
    raised: tuple[RaisedOperator, ...] = ()  # next to norms and activations, which all raise
    sums: tuple[LowSum, ...] = ()  # operators without a row sum in FP32
    pair_sum: PairSum | None = None  # of the quantized kernels; None: all sum in INT32
    # None where a target is no runtime.
    runtime: Runtime | None = field(default=None, compare=False)
    also: tuple[str, ...] = field(default=(), compare=False)
    default_for: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def fused_formats(self) -> frozenset[DType]:
        """Formats that the fusions concern; for others no pattern is loaded."""
        return frozenset(dtype for fusion in self.fusions for dtype in fusion.constraint.named)

    @cached_property
    def raised_operators(self) -> frozenset[str]:
        """Names of the operators of `raised`."""
        return frozenset(row.op for row in self.raised)

    def covers(self, dtype: DType) -> bool:
        """Whether the table covers a format."""
        if dtype in QUANTIZED:
            return dtype in self._quantized_formats
        return dtype in self.formats or any(listing.dtype is dtype for listing in self.listings)

    def reads_blocks(self, bits: int) -> bool:
        """Whether some kernel reads weights stored in integers of `bits` bits, in blocks."""
        return any(row.bits == bits for row in self.in_blocks)

    def refusal(
        self, dialect: str, op: str, version: int, attributes: Mapping[str, object], dtype: DType
    ) -> Refusal | None:
        """The row that refuses an operator in a dtype; None if it runs.

        Nodes without a dialect, such as the border of a function call, are no operators and need no
        listing.
        """
        if not self.covers(dtype):
            return Refusal(
                dialect=dialect,
                op=op,
                because=f"its table says nothing of {dtype}",
                source=self.name,
                dtypes=frozenset({dtype}),
            )
        for row in self._refusals_of.get((dialect, op), ()):
            if row.refuses(version, attributes, dtype):
                return row
        if (
            dtype in QUANTIZED
            and dialect
            and not self._runs_quantized(dtype, dialect, op, version, attributes)
        ):
            return self._refuse_unquantized(dtype, dialect, op, version)
        for listing in self.listings:
            if listing.dtype is dtype and dialect and not self._lists(dtype, dialect, op, version):
                because = f"{listing.because} for {op} version {version}"
                row_dtypes = frozenset({dtype})
                return Refusal(
                    dialect=dialect,
                    op=op,
                    because=because,
                    source=listing.source,
                    dtypes=row_dtypes,
                    versions=(version, version),
                    since=listing.since,
                )
        return None

    def quantized_kernels(
        self, dtype: DType, dialect: str, op: str, version: int, attributes: Mapping[str, object]
    ) -> tuple[QuantizedKernel, ...]:
        """The quantized kernels of an operator; the first is preferred."""
        rows = self._quantized_of.get((dtype, dialect, op), ())
        return tuple(row for row in rows if row.fits(dialect, op, version, attributes))

    def has_quantized(self, dtype: DType, dialect: str, op: str) -> bool:
        """Whether an operator has a quantized kernel in a format, at any version and attributes."""
        return (dtype, dialect, op) in self._quantized_of

    def finds_ranges(self, dtype: DType) -> bool:
        """Whether some kernel quantizes its data dynamically to a format."""
        return any(row.is_dynamic for row in self.quantized if row.format is dtype)

    def _runs_quantized(
        self, dtype: DType, dialect: str, op: str, version: int, attributes: Mapping[str, object]
    ) -> bool:
        """Whether an operator runs quantized, or fused into a quantized kernel before it."""
        if (op if dialect == "onnx" else f"{dialect}:{op}") in self._taken_in[dtype]:
            return True
        return any(
            row.operands for row in self.quantized_kernels(dtype, dialect, op, version, attributes)
        )

    @cached_property
    def _quantized_formats(self) -> frozenset[DType]:
        return frozenset(row.format for row in self.quantized)

    @cached_property
    def _taken_in(self) -> Mapping[DType, frozenset[str]]:
        fused = {}
        for dtype in self._quantized_formats:
            named = frozenset(
                name
                for row in self.quantized
                if row.format is dtype
                for name in (*row.followers, *row.through)
            )
            fused[dtype] = named.union(*(COMPOSITES[name] for name in named if name in COMPOSITES))
        return fused

    def _refuse_unquantized(self, dtype: DType, dialect: str, op: str, version: int) -> Refusal:
        """The refusal of an operator without a quantized kernel."""
        others = tuple(row for row in self.quantized if row.format is dtype)
        row = self._quantized_of.get((dtype, dialect, op), others)[0]
        return Refusal(
            dialect=dialect,
            op=op,
            because="has no kernel of it on quantized operands",
            source=row.source,
            dtypes=frozenset({dtype}),
            versions=(version, version),
            since=row.since,
        )

    def on_machine(self, features: Collection[str]) -> "Target":
        """The target with only the refusals that apply to a machine with these features."""
        applicable = [
            row
            for row in self.refusals
            if not row.needs or any(need in features for need in row.needs)
        ]
        return replace(self, refusals=tuple(applicable))

    def in_reduced_range(self) -> "Target":
        """The target whose INT8 kernels add pairs of products in INT16."""

        def reduced(row: QuantizedKernel) -> QuantizedKernel:
            in_pairs = row.format is DType.QUANTIZED8
            operands = (replace(each, in_pairs=in_pairs) for each in row.operands)
            return replace(row, operands=tuple(operands))

        return replace(self, quantized=tuple(map(reduced, self.quantized)))

    @cached_property
    def adds_pairs(self) -> bool:
        """Whether INT8 kernels add pairs of products in INT16."""
        return any(operand.in_pairs for row in self.quantized for operand in row.operands)

    def may_refuse(self, dialect: str, op: str, version: int, dtype: DType) -> bool:
        """Whether some row may refuse an operator, for whatever attributes: a cheap filter before
        `refusal`.
        """
        is_unlisted = any(
            listing.dtype is dtype and dialect for listing in self.listings
        ) and not self._lists(dtype, dialect, op, version)
        # Quantized kernels depend on attributes.
        is_unlisted |= dtype in QUANTIZED and bool(dialect)
        return is_unlisted or (dialect, op) in self._refusals_of or not self.covers(dtype)

    def gain(self, dtype: DType) -> Gain | None:
        """Performance row of a dtype; None if unknown."""
        return next((gain for gain in self.gains if gain.dtype is dtype), None)

    def notes_for(self, dtype: DType) -> tuple[str, ...]:
        """Notes for users who convert to a dtype for this target."""
        gain = self.gain(dtype)
        note = None if gain is None else gain.note
        return self.notes if note is None else (*self.notes, note)

    def custom_operator(self, dialect: str, op: str, dtype: DType) -> CustomOperator | None:
        """The row of a custom operator that runs in a dtype; None if there is none."""
        rows = (
            row
            for row in self.custom
            if (row.dialect, row.op) == (dialect, op) and dtype in row.dtypes
        )
        return next(rows, None)

    def _lists(self, dtype: DType, dialect: str, op: str, version: int) -> bool:
        if not version:  # no schema defines it, so no list of kernels can name it
            return True
        ranges = self._kernels_of.get((dtype, dialect, op), ())
        return any(first <= version <= last for first, last in ranges)

    @cached_property
    def _refusals_of(self) -> Mapping[tuple[str, str], tuple[Refusal, ...]]:
        return _grouped(((row.dialect, row.op), row) for row in self.refusals)

    @cached_property
    def _quantized_of(self) -> Mapping[tuple[DType, str, str], tuple[QuantizedKernel, ...]]:
        return _grouped(((row.format, row.dialect, row.op), row) for row in self.quantized)

    @cached_property
    def _kernels_of(self) -> Mapping[tuple[DType, str, str], tuple[tuple[int, int], ...]]:
        return _grouped(
            ((listing.dtype, row.dialect, row.op), row.versions)
            for listing in self.listings
            for row in listing.kernels
        )


def _grouped(pairs: Iterable[tuple[_Key, _Row]]) -> Mapping[_Key, tuple[_Row, ...]]:
    """Rows by key, in their order."""
    groups: dict[_Key, tuple[_Row, ...]] = {}
    for key, row in pairs:
        groups[key] = (*groups.get(key, ()), row)
    return groups


def kernels(dialect: str, text: str) -> tuple[KernelRow, ...]:
    """Parse rows such as "Abs 6-13, Gelu 20, Gather". No version means every version.

    Raises ValueError: a version is no number.
    """
    rows = []
    for entry in text.split(","):
        op, *spelled = entry.split()
        if not spelled:
            rows.append(KernelRow(dialect, op))
            continue
        oldest, _, newest = spelled[0].partition("-")
        rows.append(KernelRow(dialect, op, (int(oldest), int(newest or oldest))))
    return tuple(rows)
