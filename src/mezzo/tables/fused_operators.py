"""What is written in place of several operators that a runtime of its own says in one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzo.ir.nodes import Use

Attribute = int | float | str | tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One operator in place of `nodes` of a graph, the last of which makes what it makes.

    `reads`: the uses of those nodes whose values it reads, None where it leaves an operand out. `like`: the node whose
    attributes it has, beside its own.
    """

    dialect: str
    op: str
    nodes: tuple[int, ...]
    reads: tuple[Use | None, ...]
    like: int | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
