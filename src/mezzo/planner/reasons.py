"""Why each node has its precision: what was decided for the node itself, and what follows from a neighbour."""

from collections.abc import Mapping, Sequence

from mezzo.contracts.plans import Reason
from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import PrecisionLine
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.planner.choices.choosing import refusal_of
from mezzo.planner.choices.zero_cost_fp32 import free_reason
from mezzo.planner.plan_options import ErrorPrice, PlanningOptions
from mezzo.planner.planner import Judged
from mezzo.tables.policy import Category, Verdict


def reasons(judged: Judged, levels: Sequence[int], planning: PlanningOptions) -> list[Reason]:
    """Why each node has its precision. A node that follows names the neighbour on the way to what it follows."""
    problem = judged.problem
    found = [decided_reason(judged, node, levels[node.id], planning) for node in problem.graph.nodes]
    is_planned: list[bool] = (~problem.is_absent).tolist()
    queue = [n for n, reason in enumerate(found) if reason is not None and is_planned[n]]
    follow(problem.graph, levels, is_planned, found, queue, problem.line, planning.strategy.because)
    left = Reason(*planning.strategy.leaves)
    return [
        reason or left if level == problem.line.base else _with_lift(reason or left, judged.verdicts(level)[number])
        for number, (reason, level) in enumerate(zip(found, levels, strict=True))
    ]


def decided_reason(judged: Judged, node: Node, level: int, planning: PlanningOptions) -> Reason | None:
    """Why a node runs at its level, if it was decided for the node itself; None for what follows or is left over."""
    line = judged.problem.line
    if level != line.base:
        return _reason_beside(judged, node, level)
    against = {line.dtypes[other]: _reason_at_base(judged, node, other, planning) for other in line.others}
    return _united(against)


def _united(against: Mapping[DType, Reason | None]) -> Reason | None:
    """Why a node runs at none of the levels: what is said of all alike, or of each; None where nothing is of one."""
    reasons_given = [reason for reason in against.values() if reason is not None]
    if len(reasons_given) < len(against):
        return None
    nearest = reasons_given[0]
    if len(set(reasons_given)) == 1:
        return nearest
    texts = [f"in {dtype}: {reason.because}" for dtype, reason in zip(against, reasons_given, strict=True)]
    return nearest._replace(because="; ".join(texts))


def _reason_beside(judged: Judged, node: Node, level: int) -> Reason | None:
    """Why a node runs at a level beside the base."""
    dtype, verdict = judged.problem.line.dtypes[level], judged.verdicts(level)[node.id]
    choice = judged.problem.side(level).choices[node.id]
    if choice is Choice.ABSENT:
        return Reason(verdict.rule, verdict.because, verdict.cause)
    if choice is Choice.LOW and node.kind is Kind.OP and node.signature.dtype is dtype:
        return Reason("typed", f"is {dtype} in the model already")
    if node.kind in (Kind.INPUT, Kind.OUTPUT, Kind.CAST):
        return Reason(verdict.rule, verdict.because)
    return Reason(verdict.rule, verdict.because, verdict.cause) if verdict.category is Category.ALLOW else None


def _reason_at_base(judged: Judged, node: Node, level: int, planning: PlanningOptions) -> Reason | None:
    """Why a node runs at the base and not at a level."""
    verdict, choice = judged.verdicts(level)[node.id], judged.problem.side(level).choices[node.id]
    if choice is Choice.ABSENT or verdict.category is Category.DENY:
        return Reason(verdict.rule, verdict.because, verdict.cause)
    if choice is Choice.HIGH and node.kind in (Kind.OP, Kind.TIE):
        return _illegal(judged, node, level, planning)
    if node.kind in (Kind.INPUT, Kind.OUTPUT, Kind.CAST):
        return Reason(verdict.rule, verdict.because)
    price = _decisive_price(judged, node, level, planning)
    if price is not None:
        return Reason("error-budget", price.because)
    return free_reason(judged.problem, judged.split, node, level)


def _with_lift(reason: Reason, verdict: Verdict) -> Reason:
    """Tell of a node that runs low what would have kept it from that without data."""
    if verdict.lift is None:
        return reason
    return reason._replace(because=f"{reason.because}; lifted {verdict.lift.rule!r}: {verdict.lift.because}")


def _decisive_price(judged: Judged, node: Node, level: int, planning: PlanningOptions) -> ErrorPrice | None:
    """The price of a node's error, if it alone outweighs what running it at a level would save."""
    price = planning.error_prices.get(judged.problem.line.dtypes[level], {}).get(node.name)
    return price if price is not None and price.cost > judged.problem.gains[level, node.id] else None


def _illegal(judged: Judged, node: Node, level: int, planning: PlanningOptions) -> Reason:
    dtype = judged.problem.line.dtypes[level]
    signature, refusal = node.signature, refusal_of(node, planning, dtype)
    if refusal is not None:
        return Reason("target", f"{planning.target.name}: {refusal.because} ({refusal.source})")
    if signature.is_custom:
        return Reason("schema", f"no schema defines {signature.op}, and the types of its ports are not all known")
    return Reason("schema", f"{signature.op} version {signature.version} does not allow {dtype}")


def follow(
    graph: Graph,
    levels: Sequence[int],
    is_planned: Sequence[bool],
    found: list[Reason | None],
    queue: list[int],
    line: PrecisionLine,
    because: str,
) -> None:
    """Spread reasons from decided nodes, the queue, to neighbours of the same precision, nearest first."""
    at = 0
    while at < len(queue):
        node = graph.nodes[queue[at]]
        at += 1
        for other in _neighbours(graph, node):
            if found[other] is None and is_planned[other] and levels[other] == levels[node.id]:
                text = f"follows {node.name!r}, its neighbour in {line.dtypes[levels[node.id]]}: {because}"
                found[other] = Reason("follows", text, node.id)
                queue.append(other)


def _neighbours(graph: Graph, node: Node) -> list[int]:
    made = [graph.values[v].producer for v in node.inputs if v is not None]
    read = [use.node for v in node.outputs if v is not None for use in graph.uses[v]]
    return made + read
