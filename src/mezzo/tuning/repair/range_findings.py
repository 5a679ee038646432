"""Findings from measured ranges: protected nodes, and nodes cleared for low precision."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.saturating import may_overflow
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import FORMATS
from mezzo.numerics.measures import Ranges
from mezzo.numerics.ranges.protection import protections
from mezzo.numerics.ranges.range_evidence import lifts
from mezzo.planner.options import Options
from mezzo.planner.planner import Judged, rows_of
from mezzo.report.layout.numbers import spell_count
from mezzo.tables.policy import Lifting, NamedFinding

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model

# Values within this factor of the limit are protected too: other data may hold larger ones.
HEADROOM = 2.0


def with_protection(model: "Model", options: Options, ranges: Ranges) -> Options:
    """The options with overflow protection by ranges, harmless values excepted."""
    judged, planning = judge_model(model, options)[1], options.planning
    graph = judged.problem.graph
    rows, floats = rows_of(graph), planning.floats
    findings: list[NamedFinding] = []
    for low in map(FORMATS.__getitem__, floats):
        harmless = may_overflow(StructureView(graph=graph, rows=tuple(rows), low=low))
        limited = judged.limits.keys()
        found = protections(graph, rows, low, ranges.values, HEADROOM, limited, harmless)
        concerns = low.dtype if len(floats) > 1 else None
        findings += [replace(each, dtype=concerns) for each in found]
    return replace(options, planning=replace(planning, found=tuple(findings)))


def with_lifts(model: "Model", options: Options, ranges: Ranges) -> Options:
    """The options with certain overflow protection alone, and with cleared nodes. Masks are clipped
    to the format's range.
    """
    policy = options.planning.policy
    if policy.findings is None or "constant-out-of-range" in policy.findings:
        policy = replace(policy, limits_masks=True)
    options = with_protection(
        model, replace(options, planning=replace(options.planning, policy=policy)), ranges
    )
    judged = judge_model(model, options)[1]
    graph, rows = judged.problem.graph, rows_of(judged.problem.graph)
    samples, limited = ranges.data.samples, judged.limits.keys()
    lifted = {
        low: lifts(graph, rows, FORMATS[low], ranges.values, samples, limited)
        for low in options.planning.floats
    }
    firm = tuple(finding for finding in options.planning.found if finding.lifting is Lifting.NEVER)
    return replace(options, planning=replace(options.planning, found=firm, lifted=lifted))


def count_lifted(model: "Model", options: Options, lifted: Options, ranges: Ranges) -> str:
    """The nodes that data clears, by rule, as text; empty if there are none."""
    denied = with_protection(model, options, ranges).planning.found
    soft = sum(finding.lifting is Lifting.BY_OUTPUTS for finding in denied)
    counts: Counter[str] = Counter({"values that vanish": soft} if soft else {})
    before, judged = (judge_model(model, variant)[1] for variant in (options, lifted))
    if masks := len(judged.limits) - len(before.limits):
        counts["masks"] = masks
    counts += _lifts_in(judged) - _lifts_in(before)  # structure clears some without data
    nodes = sum(counts.values())
    by_rule = ", ".join(f"{rule} {count}" for rule, count in sorted(counts.items()))
    return f"{spell_count(nodes, 'suspected node')} ({by_rule})" if nodes else ""


def _lifts_in(judged: Judged) -> Counter[str]:
    return Counter(
        verdict.lift.rule for side in judged.sides for verdict in side if verdict.lift is not None
    )
