"""Replacement of several operators of a result by one equivalent operator."""

from dataclasses import dataclass

from mezzo.ir.nodes import Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One operator in place of `nodes`; it produces the outputs of the last one. `reads`: the uses
    of those nodes that become its operands.
    """

    op: str
    nodes: tuple[int, ...]
    reads: tuple[Use, ...]
