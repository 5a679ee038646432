"""Norms rewritten from x * (1 / root) to x / root (Div), the form that runtimes fuse in FP16."""

from collections.abc import Sequence
from dataclasses import replace

from mezzo.analysis.fusion import kernels_of
from mezzo.analysis.fusion.partition import partition
from mezzo.analysis.fusion.quotients import quotients_in
from mezzo.analysis.fusion.view import FusionView
from mezzo.common.name_matching import join_with_or
from mezzo.contracts.frontend import Model
from mezzo.contracts.reading import Artifact
from mezzo.contracts.replacements import Replacement
from mezzo.conversion.decided import Decided
from mezzo.ir.graph import Graph
from mezzo.planner.options import Options
from mezzo.planner.planner import rows_of
from mezzo.report.layout.numbers import spell_count


def with_norm_quotients(
    model: Model, options: Options, decided: Decided, result: Artifact
) -> tuple[Decided, Artifact]:
    """Rewrite norms in low floats to the form that the target fuses, and add a note.

    Unchanged if no norm matches, fusion is off, or the checker refuses the rewritten model.
    """
    target, line = options.planning.target, decided.plan.line
    dtypes = {dtype for row in target.norm_quotients for dtype in row.dtypes} & {*line.dtypes}
    if options.fuse == "none" or not dtypes or not decided.plan.edits:
        return decided, result
    quotients: list[Replacement] = []

    def find(graph: Graph) -> Sequence[Replacement]:
        view = FusionView(graph, rows_of(graph))
        split = partition(view, kernels_of(target), target.name)
        quotients.extend(quotients_in(view, split, dtypes))
        return quotients

    written = model.replaced(result, options.planning.floats, find)
    if not quotients or model.fault(decided.reading.graph, written) is not None:
        return decided, result
    verb, formats = "is" if len(quotients) == 1 else "are", join_with_or(sorted(map(str, dtypes)))
    note = (
        f"{spell_count(len(quotients), 'product')} with the reciprocal of a root {verb} written as"
        f" a quotient (Div), which rounds once and not twice: only so {target.name} runs such a"
        f" norm in {formats} as one kernel, in f32 inside"
    )
    if note in decided.plan.notes:  # of a plan that is replayed
        return decided, written
    return replace(decided, plan=replace(decided.plan, notes=(*decided.plan.notes, note))), written
