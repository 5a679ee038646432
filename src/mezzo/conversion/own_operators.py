"""A result in its runtime's own operators, on request: what the runtime fuses as it loads stands fused in the file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mezzo.analysis.fusion import kernels_of
from mezzo.analysis.fusion.own import fused_in
from mezzo.analysis.fusion.partition import partition
from mezzo.analysis.fusion.view import View
from mezzo.common.errors import ContractError
from mezzo.common.message_style import setting
from mezzo.contracts.frontend import Model
from mezzo.contracts.reading import Artifact
from mezzo.conversion.decided import Decided
from mezzo.ir.graph import Graph
from mezzo.planner.options import Options
from mezzo.planner.planner import rows_of
from mezzo.tables.fused_operators import Fused
from mezzo.tables.target import Target

_FUSES_NOTHING = frozenset({"none", "standard", "simplify"})
_LONGEST_FAULT = 200


def with_own_operators(model: Model, options: Options, decided: Decided, result: Artifact) -> tuple[Decided, Artifact]:
    """A result with the fused operators of its target's runtime in it, and a note of them; both as they are where
    nobody asks for that. What runs low or on integers is left as it is.

    Raises ContractError: the checker refuses it.
    """
    if options.fuse in _FUSES_NOTHING:
        return decided, result
    found: list[Fused] = []

    def find(graph: Graph) -> list[Fused]:
        found.extend(_find(graph, options.wishes.target))
        return found

    written = model.written(result, find)
    fault = model.fault(decided.reading.graph, written)
    if fault is not None:
        raise ContractError(
            f"with {options.fuse}'s operators the result would be no valid {model.frontend.words.form}: "
            f"{fault.text[:_LONGEST_FAULT]}; take {setting('fuse', 'standard')}"
        )
    plan, note = decided.plan, _tell(found, options.fuse)
    if note in plan.notes:  # of a plan that is replayed
        return decided, written
    return replace(decided, plan=replace(plan, notes=(*plan.notes, note))), written


def _find(graph: Graph, target: Target) -> list[Fused]:
    name = target.fuses_as or target.name
    view = View(graph, rows_of(graph))
    return [*fused_in(view, partition(view, kernels_of(name), name), target.own_operators)]


def _tell(found: Sequence[Fused], fuse: str) -> str:
    """What was written, in words."""
    if not found:
        return f"none of {fuse}'s own operators says more than one of the result's"
    counts = Counter(fused.op for fused in found)
    ops = ", ".join(f"{op} {count}" for op, count in sorted(counts.items()))
    gone = sum(len(fused.nodes) for fused in found)
    return f"{gone} operators are written as {len(found)} of {fuse}'s own ({ops}): no other runtime loads the result"
