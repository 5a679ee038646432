"""Groups the nodes of a plan for people: how many run in which precision, and why some stayed high."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.contracts.plans import AddCast, Plan, PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.report.layout.numbers import spell_count


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that one rule kept high. `reasons` are the different sentences, in node order."""

    rule: str
    nodes: tuple[PlannedNode, ...]
    reasons: tuple[str, ...]


def is_operator(node: PlannedNode) -> bool:
    """Tell operators from the plan's inputs, outputs, sources and ties."""
    return node.kind == "op"


def count_precisions(plan: Plan) -> Mapping[DType, int]:
    """Count the operators that run in each dtype: the levels beside the base, the base, and others the model came
    with.
    """
    counts = Counter(node.precision.compute for node in plan.nodes if is_operator(node))
    levels = (*plan.lows, plan.high)
    others = sorted((dtype for dtype in counts if dtype not in levels), key=str)
    return {dtype: counts[dtype] for dtype in (*levels, *others)}


def spell_apart(plan: Plan) -> str:
    """What a model computes in of which nothing is planned, and what to do about it."""
    if not plan.apart:
        return "the model computes no floats"
    counts = " and ".join(f"{spell_count(count, 'node')} in {dtype}" for dtype, count in plan.apart)
    return f"the model came with {counts} and none in {plan.high}; export it in {plan.high}"


def count_before(plan: Plan) -> Mapping[DType, int]:
    """Count the operators that ran in each dtype before the plan, those of `count_precisions`."""
    typed = Counter(node.precision.compute for node in plan.nodes if is_operator(node) and node.rule == "typed")
    before = dict(count_precisions(plan))
    for dtype in plan.lows:
        before[plan.high] += before[dtype] - typed[dtype]
        before[dtype] = typed[dtype]
    return before


def count_casts(plan: Plan) -> int:
    """Count the casts a plan makes."""
    return sum(isinstance(edit, AddCast) for edit in plan.edits)


def group_high_nodes(plan: Plan) -> tuple[Group, ...]:
    """Group the operators that stay high by the rule that kept them, the largest group first."""
    by_rule: dict[str, list[PlannedNode]] = {}
    for node in plan.nodes:
        if is_operator(node) and node.precision.compute is plan.high:
            by_rule.setdefault(node.rule, []).append(node)
    groups = [
        Group(rule, tuple(nodes), tuple(dict.fromkeys(node.because for node in nodes)))
        for rule, nodes in by_rule.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.nodes), group.rule)))


def choose_example(plan: Plan) -> PlannedNode | None:
    """Pick the node most worth asking about: one that stays high because of another node, else any that does."""
    groups = group_high_nodes(plan)
    for group in groups:
        for node in group.nodes:
            if node.cause is not None:
                return node
    if groups:
        return groups[0].nodes[0]
    return next((node for node in plan.nodes if is_operator(node)), None)
