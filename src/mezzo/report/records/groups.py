"""Named nodes, counts of a plan's nodes by precision, and groups of nodes that a rule kept high."""

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mezzo.common.message_style import setting
from mezzo.contracts.plans import DATA_RULES, WIDENED, AddCast, Plan, PlannedNode
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import FP32, WEIGHT_WORDS, weight_float_word, weight_word
from mezzo.report.layout.numbers import spell_count


class NamedNode(NamedTuple):
    """A node's name and operator; without a name, that of its output."""

    name: str
    op: str


class HighCause(enum.Enum):
    """What keeps operators high, by kind."""

    DATA = "data"  # the measured error or range
    RULE = "rule"  # a rule of the policy or about the graph's structure
    TARGET = "target"  # neither the target nor the schema runs them low
    NEIGHBOR = "neighbor"  # low would cost more casts than it gains
    REQUEST = "request"  # an option of the user, or the model's interface

    __hash__ = object.__hash__


_CAUSE_OF_RULE = {
    **dict.fromkeys((*DATA_RULES, "error-budget"), HighCause.DATA),
    **dict.fromkeys(("target", "schema", "free-in-kernel", "blocks"), HighCause.TARGET),
    **dict.fromkeys(("follows", "casts-cost-more", "strategy", "tie"), HighCause.NEIGHBOR),
    **dict.fromkeys(
        ("exclude", "keep-region", "fix-region", "region", "interface", "contract", "typed"),
        HighCause.REQUEST,
    ),
}


@dataclass(frozen=True, slots=True)
class HighNodeGroup:
    """Nodes that one rule kept high. `reasons` are the distinct sentences, in node order."""

    rule: str
    nodes: tuple[PlannedNode, ...]
    reasons: tuple[str, ...]

    @property
    def cause(self) -> HighCause:
        """The kind of cause; a policy's rule unless the name is known as another kind."""
        return _CAUSE_OF_RULE.get(self.rule, HighCause.RULE)


def is_operator(node: PlannedNode) -> bool:
    """Whether a node is an operator, and no input, output, source or tie."""
    return node.kind == "op"


def count_precisions(plan: Plan) -> Mapping[DType, int]:
    """Counts of operators by dtype: low levels, base, then others of the source model."""
    counts = Counter(node.precision.compute for node in plan.nodes if is_operator(node))
    levels = (*plan.lows, plan.high)
    others = sorted((dtype for dtype in counts if dtype not in levels), key=str)
    return {dtype: counts[dtype] for dtype in (*levels, *others)}


def count_weights(plan: Plan) -> Mapping[str, int]:
    """Counts of weights in blocks or in a low float, by the name of their format, "int4"."""
    counts = Counter(weight_word(storage.bits) for _, storage in plan.in_blocks)
    counts.update(weight_float_word(dtype) for _, dtype in plan.stored_floats)
    return {word: counts[word] for word in WEIGHT_WORDS if word in counts}


def runs_low(plan: Plan) -> bool:
    """Whether some operator runs below the base precision, or reads a weight in blocks or in a low
    float.
    """
    counts = count_precisions(plan)
    return bool(plan.in_blocks or plan.stored_floats) or any(counts[dtype] for dtype in plan.lows)


def spell_apart(plan: Plan) -> str:
    """A sentence on nodes in dtypes that the plan does not cover, with a remedy."""
    if not plan.apart:
        return "the model computes no floats"
    counts = " and ".join(f"{spell_count(count, 'node')} in {dtype}" for dtype, count in plan.apart)
    may_widen = plan.dialect == "onnx" and all(
        dtype in LOW_DTYPES.values() for dtype, _ in plan.apart
    )
    first = f"convert it with {setting('to', FP32)} first, or " if may_widen else ""
    return f"the model came with {counts} and none in {plan.high}; {first}export it in {plan.high}"


def count_before(plan: Plan) -> Mapping[DType, int]:
    """Counts of operators by dtype before the plan, for the dtypes of `count_precisions`."""
    already_low = Counter(
        node.precision.compute for node in plan.nodes if is_operator(node) and node.rule == "typed"
    )
    before = dict(count_precisions(plan))
    before[plan.high] -= sum(is_operator(node) and node.rule == WIDENED for node in plan.nodes)
    for dtype in plan.lows:
        before[plan.high] += before[dtype] - already_low[dtype]
        before[dtype] = already_low[dtype]
    return before


def count_casts(plan: Plan) -> int:
    """The number of casts in a plan."""
    return sum(isinstance(edit, AddCast) for edit in plan.edits)


def group_high_nodes(plan: Plan) -> tuple[HighNodeGroup, ...]:
    """Operators that stay high, grouped by rule, the largest group first."""
    by_rule: dict[str, list[PlannedNode]] = {}
    for node in plan.nodes:
        if is_operator(node) and node.precision.compute is plan.high:
            by_rule.setdefault(node.rule, []).append(node)
    groups = [
        HighNodeGroup(rule, tuple(nodes), tuple(dict.fromkeys(node.because for node in nodes)))
        for rule, nodes in by_rule.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.nodes), group.rule)))


def choose_example(plan: Plan) -> PlannedNode | None:
    """The node to suggest for `explain`: high because of another node, else any high node; without
    low levels one that reads a weight, if possible in blocks.
    """
    if not plan.lows:
        weights = sorted(plan.weights, key=lambda weight: not weight.is_narrowed)
        nodes = (plan.by_name.get(name) for weight in weights for name in weight.readers)
        return next((node for node in nodes if node is not None), None)
    groups = group_high_nodes(plan)
    for group in groups:
        for node in group.nodes:
            if node.cause is not None:
                return node
    if groups:
        return groups[0].nodes[0]
    return next((node for node in plan.nodes if is_operator(node)), None)
