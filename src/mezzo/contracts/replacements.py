"""What is written in place of several operators of a result that one says."""

from dataclasses import dataclass

from mezzo.ir.nodes import Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One operator in place of `nodes` of a graph, the last of which makes what it makes. `reads`: the uses of those
    nodes whose values it reads.
    """

    op: str
    nodes: tuple[int, ...]
    reads: tuple[Use, ...]
