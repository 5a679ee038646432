"""What a runtime or device can run, and what things cost there. Rows are data; a target is one file.

A target names the formats that it speaks of; in any other it runs nothing. In those it says what it cannot run in one
of two ways, and may use both: by refusals, single rows for a runtime that runs nearly everything, and by a listing, all
that runs in a dtype, for a runtime with a list of kernels. An operator that a listing does not name is refused. What
runs on quantized operands is told by rows alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mezzo.formats.dtypes import HALF_FORMATS, QUANTIZED, DType
from mezzo.tables.quantized_kernels import COMPOSITES, QuantizedKernel
from mezzo.tables.rows import EVERY_VERSION, holds
from mezzo.tables.runtime import Runtime

if TYPE_CHECKING:
    from mezzo.common.machine import Machine


@dataclass(frozen=True, slots=True)
class Costs:
    """Relative prices the planner weighs. The unit is one byte moved through memory.

    `cast_launch`: fixed price of a cast, whatever its size: about what a kernel launch costs; a policy's `worth`
    counts in it.
    `linear_factor`: how much more a byte of a linear operator costs.
    """

    cast_launch: int = 1 << 18
    linear_factor: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One thing a target cannot run. Empty `dtypes` means every low float.

    `attributes` must all match, if any are given: by value, or by one of a frozenset of values.
    `versions`: of the operator, both ends included. `since`: the runtime's version the row was taken from.
    `needs`: features of a machine, any of which the row takes to hold; empty where it holds on every machine. A plan
    heeds every row, as it may be carried to another machine.
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
class Kernel:
    """An operator that runs in the dtype of its listing, at these versions, both ends included."""

    dialect: str
    op: str
    versions: tuple[int, int] = EVERY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOperator:
    """An operator that no schema defines, such as a plug-in's, and what its floats may be beside FP32."""

    dialect: str
    op: str
    dtypes: frozenset[DType]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that a target runs in one dtype. `because` is said of every operator that it does not name."""

    dtype: DType
    kernels: tuple[Kernel, ...]
    because: str
    source: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Whether a dtype makes a model faster on a target. `because` says why it does not, if it does not; `short` says
    it in some forty letters.

    `needs`: features of a machine, any of which the gain takes; empty where every machine has it. Of a target's gains
    the first that holds is what is taken where no dtype is asked for.
    """

    dtype: DType
    is_faster: bool
    because: str
    source: str
    since: str
    needs: tuple[str, ...] = ()
    short: str | None = None

    @property
    def in_short(self) -> str:
        """Why, for a line that has little room."""
        return self.short or self.because

    def is_faster_on(self, machine: "Machine") -> bool | None:
        """Whether a machine gains; None where it does not tell, as a CPU does not of what a GPU needs."""
        if not self.is_faster or not self.needs:
            return self.is_faster
        has = [machine.has(need) for need in self.needs]
        return True if True in has else None if None in has else False

    @property
    def note(self) -> str | None:
        """What to tell a user who asks for the dtype; None where it simply gains."""
        if not self.is_faster:
            return self.because
        return f"{self.because}; needs {' or '.join(self.needs)}" if self.needs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Respelling:
    """An operator that a runtime joins with a normalization that alone reads it, into a kernel slower than the two: it
    is written as `instead`, which says the same of the same operands and which no fusion takes.
    """

    op: str
    instead: str
    source: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NormQuotient:
    """Types in which a runtime finds a norm written out in small operators where it divides by the root, and not where
    it multiplies by the root's reciprocal: results are written by quotients.
    """

    dtypes: frozenset[DType]
    source: str
    since: str


@dataclass(frozen=True, kw_only=True)
class Target:
    """Rows of one runtime. What is neither refused nor missing in a listing runs, in the formats spoken of: those of
    `formats`, those that have a listing, and quantized ones that some row of quantized kernels is about.

    `newest` is the newest version that the runtime loads of each dialect; all of one that it does not name. `notes` are
    for users of every dtype. `also` are other words for it; one that several targets have is asked back.
    """

    name: str
    summary: str
    refusals: tuple[Refusal, ...] = ()
    newest: Mapping[str, int] = field(default_factory=dict)
    costs: Costs = Costs()
    notes: tuple[str, ...] = ()
    listings: tuple[Listing, ...] = ()
    gains: tuple[Gain, ...] = ()
    formats: frozenset[DType] = HALF_FORMATS
    fuses_as: str = ""  # the target whose fusion patterns hold, where they are another's: a file's base
    fused_formats: frozenset[DType] = frozenset()  # of which these patterns say anything: plans need them for no other
    quantized: tuple[QuantizedKernel, ...] = ()  # of those about one operator the first is what to prefer
    custom: tuple[CustomOperator, ...] = ()
    respellings: tuple[Respelling, ...] = ()  # before normalizations, in models that are brought to normal form
    norm_quotients: tuple[NormQuotient, ...] = ()
    runtime: Runtime | None = field(default=None, compare=False)  # None where a target is no runtime
    also: tuple[str, ...] = field(default=(), compare=False)

    def speaks_of(self, dtype: DType) -> bool:
        """Whether the table says anything of what runs in a format."""
        if dtype in QUANTIZED:
            return dtype in self._quantized_formats
        return dtype in self.formats or any(listing.dtype is dtype for listing in self.listings)

    def refusal(
        self, dialect: str, op: str, version: int, attributes: Mapping[str, object], dtype: DType
    ) -> Refusal | None:
        """The row that refuses an operator in a dtype; None where it runs.

        What is no operator, and has no dialect, such as the border of a function's call, stands in no listing.
        """
        if not self.speaks_of(dtype):
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
        if dtype in QUANTIZED and dialect and not self._runs_quantized(dtype, dialect, op, version, attributes):
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
        """How an operator runs on operands quantized to a format, as far as its attributes tell; of several ways the
        first is to be preferred.
        """
        found = self._quantized_of.get((dtype, dialect, op), ())
        return tuple(row for row in found if row.fits(dialect, op, version, attributes))

    def has_quantized(self, dtype: DType, dialect: str, op: str) -> bool:
        """Whether some row is about an operator on operands quantized to a format, at whatever version and with what
        attributes.
        """
        return (dtype, dialect, op) in self._quantized_of

    def finds_ranges(self, dtype: DType) -> bool:
        """Whether some kernel finds the range of its data as it runs, and rounds it to a format."""
        return any(row.is_dynamic for row in self.quantized if row.format is dtype)

    def _runs_quantized(
        self, dtype: DType, dialect: str, op: str, version: int, attributes: Mapping[str, object]
    ) -> bool:
        """Whether an operator runs on quantized operands, or in the kernel of one before it."""
        if (op if dialect == "onnx" else f"{dialect}:{op}") in self._taken_in[dtype]:
            return True
        return any(row.operands for row in self.quantized_kernels(dtype, dialect, op, version, attributes))

    @cached_property
    def _quantized_formats(self) -> frozenset[DType]:
        return frozenset(row.format for row in self.quantized)

    @cached_property
    def _taken_in(self) -> Mapping[DType, frozenset[str]]:
        found = {}
        for dtype in self._quantized_formats:
            named = frozenset(name for row in self.quantized if row.format is dtype for name in row.followers)
            found[dtype] = named.union(*(COMPOSITES[name] for name in named if name in COMPOSITES))
        return found

    def _refuse_unquantized(self, dtype: DType, dialect: str, op: str, version: int) -> Refusal:
        """What is said of an operator that no row runs on quantized operands."""
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
        """The target with only those refusals that hold on a machine with these features."""
        held = [row for row in self.refusals if not row.needs or any(need in features for need in row.needs)]
        return replace(self, refusals=tuple(held))

    def may_refuse(self, dialect: str, op: str, version: int, dtype: DType) -> bool:
        """Whether some row may refuse an operator, whatever its attributes: cheap to ask before asking node by node."""
        is_unlisted = any(listing.dtype is dtype and dialect for listing in self.listings) and not self._lists(
            dtype, dialect, op, version
        )
        is_unlisted |= dtype in QUANTIZED and bool(dialect)  # rows of quantized kernels ask for attributes
        return is_unlisted or (dialect, op) in self._refusals_of or not self.speaks_of(dtype)

    def gain(self, dtype: DType) -> Gain | None:
        """What is known of the speed of a dtype; None where nothing is."""
        return next((gain for gain in self.gains if gain.dtype is dtype), None)

    def notes_for(self, dtype: DType) -> tuple[str, ...]:
        """What a user should know before converting to a dtype for this target."""
        gain = self.gain(dtype)
        note = None if gain is None else gain.note
        return self.notes if note is None else (*self.notes, note)

    def custom_operator(self, dialect: str, op: str, dtype: DType) -> CustomOperator | None:
        """The row of a custom operator that runs in a dtype; None where the target has none."""
        rows = (row for row in self.custom if (row.dialect, row.op) == (dialect, op) and dtype in row.dtypes)
        return next(rows, None)

    def _lists(self, dtype: DType, dialect: str, op: str, version: int) -> bool:
        if not version:  # no schema defines it, so no list of kernels can name it
            return True
        ranges = self._kernels_of.get((dtype, dialect, op), ())
        return any(first <= version <= last for first, last in ranges)

    @cached_property
    def _refusals_of(self) -> Mapping[tuple[str, str], tuple[Refusal, ...]]:
        found: dict[tuple[str, str], tuple[Refusal, ...]] = {}
        for row in self.refusals:
            key = row.dialect, row.op
            found[key] = (*found.get(key, ()), row)
        return found

    @cached_property
    def _quantized_of(self) -> Mapping[tuple[DType, str, str], tuple[QuantizedKernel, ...]]:
        found: dict[tuple[DType, str, str], tuple[QuantizedKernel, ...]] = {}
        for row in self.quantized:
            key = row.format, row.dialect, row.op
            found[key] = (*found.get(key, ()), row)
        return found

    @cached_property
    def _kernels_of(self) -> Mapping[tuple[DType, str, str], tuple[tuple[int, int], ...]]:
        found: dict[tuple[DType, str, str], tuple[tuple[int, int], ...]] = {}
        for listing in self.listings:
            for row in listing.kernels:
                key = listing.dtype, row.dialect, row.op
                found[key] = (*found.get(key, ()), row.versions)
        return found


def kernels(dialect: str, text: str) -> tuple[Kernel, ...]:
    """Read rows from text such as "Abs 6-13, Gelu 20, Gather", in any layout. No version means every version.

    Raises: ValueError: a version is no number.
    """
    found = []
    for entry in text.split(","):
        op, *spelled = entry.split()
        if not spelled:
            found.append(Kernel(dialect, op))
            continue
        first, _, last = spelled[0].partition("-")
        found.append(Kernel(dialect, op, (int(first), int(last or first))))
    return tuple(found)
