"""Reasons for each node's precision: its own decision, or one propagated from a neighbour."""

from collections.abc import Mapping, Sequence

from mezzo.contracts.plans import Reason
from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import DType
from mezzo.formats.format_words import weight_word
from mezzo.formats.precision_line import PrecisionLine, floats_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.planner.choices.block_weights import may_read_in
from mezzo.planner.choices.choosing import refusal_of
from mezzo.planner.choices.zero_cost_fp32 import free_reason
from mezzo.planner.plan_options import ErrorPrice, PlanningOptions
from mezzo.planner.planner import ONLY_WEIGHTS, Judged
from mezzo.tables.policy import Category, NodeVerdict


def reasons(judged: Judged, levels: Sequence[int], planning: PlanningOptions) -> list[Reason]:
    """The reason for each node's precision. A node that follows a neighbour names it."""
    problem = judged.problem
    by_node = [
        decided_reason(judged, node, levels[node.id], planning) for node in problem.graph.nodes
    ]
    is_planned: list[bool] = (~problem.is_absent).tolist()
    queue = [n for n, reason in enumerate(by_node) if reason is not None and is_planned[n]]
    follow(
        problem.graph, levels, is_planned, by_node, queue, problem.line, planning.strategy.because
    )
    remaining = Reason(*planning.strategy.leaves)
    return [
        (
            reason or remaining
            if level == problem.line.base
            else _with_lift(reason or remaining, judged.verdicts(level)[number])
        )
        for number, (reason, level) in enumerate(zip(by_node, levels, strict=True))
    ]


def decided_reason(
    judged: Judged, node: Node, level: int, planning: PlanningOptions
) -> Reason | None:
    """Why a node runs at its level; None if it follows or is left to the strategy."""
    line = judged.problem.line
    if level != line.base:
        return _reason_beside(judged, node, level)
    if not line.others:
        return Reason(ONLY_WEIGHTS.rule, ONLY_WEIGHTS.because)
    against = {
        line.dtypes[other]: _reason_at_base(judged, node, other, planning) for other in line.others
    }
    return _united(against)


def _united(against: Mapping[DType, Reason | None]) -> Reason | None:
    """Reasons against all non-base levels as one; None if a level has none."""
    present = [reason for reason in against.values() if reason is not None]
    if len(present) < len(against):
        return None
    nearest = present[0]
    if len(set(present)) == 1:
        return nearest
    texts = [
        f"in {dtype}: {reason.because}" for dtype, reason in zip(against, present, strict=True)
    ]
    return nearest._replace(because="; ".join(texts))


def _reason_beside(judged: Judged, node: Node, level: int) -> Reason | None:
    """Why a node runs at a non-base level."""
    dtype, verdict = judged.problem.line.dtypes[level], judged.verdicts(level)[node.id]
    choice = judged.problem.side(level).choices[node.id]
    if choice is Choice.ABSENT:
        return Reason(verdict.rule, verdict.because, verdict.cause)
    if choice is Choice.LOW and node.kind is Kind.OP and node.signature.dtype is dtype:
        return Reason("typed", f"is {dtype} in the model already")
    if node.kind in (Kind.INPUT, Kind.OUTPUT, Kind.CAST):
        return Reason(verdict.rule, verdict.because)
    refused = _refused_by_first(judged, node, dtype)
    if refused is not None:
        return refused
    return (
        Reason(verdict.rule, verdict.because, verdict.cause)
        if verdict.category is Category.ALLOW
        else None
    )


def _refused_by_first(judged: Judged, node: Node, dtype: DType) -> Reason | None:
    """Why a node runs in the second float and not in the preferred one, if a rule says so."""
    line = judged.problem.line
    first, *others = floats_of(line)
    verdict = judged.verdict_of(node.id, line.dtypes.index(first)) if dtype in others else None
    if verdict is None or verdict.category is not Category.DENY:
        return None
    return Reason(verdict.rule, f"not in {first}: {verdict.because}", verdict.cause)


def _reason_at_base(
    judged: Judged, node: Node, level: int, planning: PlanningOptions
) -> Reason | None:
    """Why a node runs at the base and not at `level`."""
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


def _with_lift(reason: Reason, verdict: NodeVerdict) -> Reason:
    """Add the denial that calibration data lifted to the reason of a node that runs low."""
    if verdict.lift is None:
        return reason
    return reason._replace(
        because=f"{reason.because}; lifted {verdict.lift.rule!r}: {verdict.lift.because}"
    )


def _decisive_price(
    judged: Judged, node: Node, level: int, planning: PlanningOptions
) -> ErrorPrice | None:
    """The error cost of a node, if it alone exceeds the gain of running it at `level`."""
    price = planning.error_prices.get(judged.problem.line.dtypes[level], {}).get(node.name)
    return (
        price if price is not None and price.cost > judged.problem.gains[level, node.id] else None
    )


def _illegal(judged: Judged, node: Node, level: int, planning: PlanningOptions) -> Reason:
    dtype = judged.problem.line.dtypes[level]
    graph, in_blocks = judged.problem.graph, judged.problem.in_blocks
    for value in node.present_inputs:
        storage = in_blocks.get(value)
        if storage and not may_read_in(graph, planning.target, value, storage, dtype):
            name, word = graph.producer(value).name, weight_word(storage.bits)
            text = (
                f"{planning.target.name} reads {name!r} in {word} blocks only with operands in f32"
            )
            return Reason("blocks", text)
    signature, refusal = node.signature, refusal_of(node, planning, dtype)
    if refusal is not None:
        return Reason("target", f"{planning.target.name}: {refusal.because} ({refusal.source})")
    if signature.is_custom:
        return Reason(
            "schema",
            f"no schema defines {signature.op}, and the types of its ports are not all known",
        )
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
    """Propagate reasons breadth-first, in place, to neighbours of the same precision."""
    at = 0
    while at < len(queue):
        node = graph.nodes[queue[at]]
        at += 1
        for other in _neighbours(graph, node):
            if found[other] is None and is_planned[other] and levels[other] == levels[node.id]:
                text = (
                    f"follows {node.name!r}, its neighbour in {line.dtypes[levels[node.id]]}:"
                    f" {because}"
                )
                found[other] = Reason("follows", text, node.id)
                queue.append(other)


def _neighbours(graph: Graph, node: Node) -> list[int]:
    producers = [graph.values[v].producer for v in node.inputs if v is not None]
    users = [use.node for v in node.outputs if v is not None for use in graph.uses[v]]
    return producers + users
