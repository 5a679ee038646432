"""What a runtime or device can run, and what things cost there. Rows are data; a target is one file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mezzo.dtypes import DType


@dataclass(frozen=True, slots=True)
class Costs:
    """Relative prices the planner weighs. The unit is one byte moved through memory.

    `cast_launch`: fixed price of a cast, whatever its size: about what a kernel launch costs; a policy's `worth`
    counts in it.
    `linear_factor`: how much more a byte of a linear operator costs.
    """

    cast_launch: int = 1 << 18
    linear_factor: int = 32


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing a target cannot run. Empty `dtypes` means every low dtype; `attributes` must all match if given."""

    dialect: str
    op: str
    because: str
    source: str
    dtypes: frozenset[DType] = frozenset()
    versions: tuple[int, int] = (1, 1_000)  # operator versions, both ends included
    attributes: Mapping[str, object] = field(default_factory=dict)

    def refuses(self, version: int, attributes: Mapping[str, object], dtype: DType) -> bool:
        if self.dtypes and dtype not in self.dtypes:
            return False
        if not self.versions[0] <= version <= self.versions[1]:
            return False
        # An attribute row ("reduction", None) matches any value but the absent one.
        return all(
            attributes.get(name) is not None if wanted is None else attributes.get(name) == wanted
            for name, wanted in self.attributes.items()
        )


@dataclass(frozen=True)
class Target:
    """A row set. What is not refused runs. `max_opset` is the newest opset the runtime loads, None if it loads all."""

    name: str
    summary: str
    refusals: tuple[Refusal, ...] = ()
    max_opset: int | None = None
    costs: Costs = Costs()
    notes: tuple[str, ...] = ()  # what a user should know before converting for it

    def refusal(
        self, dialect: str, op: str, version: int, attributes: Mapping[str, object], dtype: DType
    ) -> Refusal | None:
        """The row that refuses an operator in a dtype; None where it runs."""
        for row in self._refusals_of.get((dialect, op), ()):
            if row.refuses(version, attributes, dtype):
                return row
        return None

    def mentions(self, dialect: str, op: str) -> bool:
        """Whether any row is about an operator."""
        return (dialect, op) in self._refusals_of

    @cached_property
    def _refusals_of(self) -> Mapping[tuple[str, str], tuple[Refusal, ...]]:
        found: dict[tuple[str, str], tuple[Refusal, ...]] = {}
        for row in self.refusals:
            key = row.dialect, row.op
            found[key] = (*found.get(key, ()), row)
        return found
