"""Verdicts on custom operators: they have no schema, and keep their types unless a policy rule, the
target or an option names them.
"""

from collections.abc import Iterator, Sequence

from mezzo.common.message_style import setting
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Signature
from mezzo.tables.policy import Category, NodeVerdict, Policy
from mezzo.tables.target import Target

_RULE = "custom-operator"
_NODES_SHOWN = 3


def judge_custom(signature: Signature, policy: Policy, target: Target, low: DType) -> NodeVerdict:
    """The verdict by a policy rule that names the operator, else the target's row, else denial."""
    key = signature.dialect, signature.op
    verdict = policy.judge(key, None, low)
    if any(rule.name == verdict.rule and rule.ops for rule in policy.rules):
        return verdict
    row = target.custom_operator(*key, low)
    if row is not None:
        because = f"{target.name} runs this custom operator in {low} ({row.source})"
        return NodeVerdict(category=Category.INFER, rule=_RULE, because=because)
    because = "no schema defines it, and nothing states that it runs in other types"
    return NodeVerdict(category=Category.DENY, rule=_RULE, because=because)


def mention_custom(graph: Graph, verdicts: Sequence[NodeVerdict]) -> Iterator[str]:
    """One note per custom operator that stays in FP32 because nothing names it."""
    names: dict[str, list[str]] = {}
    for node, verdict in zip(graph.nodes, verdicts, strict=True):
        is_kept = verdict.rule == _RULE and verdict.category is Category.DENY
        if is_kept and node.kind is Kind.OP and node.signature.is_custom:
            names.setdefault(node.op, []).append(node.name)
    for op, nodes in sorted(names.items()):
        shown = ", ".join(map(repr, nodes[:_NODES_SHOWN])) + (
            ", ..." if len(nodes) > _NODES_SHOWN else ""
        )
        yield (
            f"no schema defines operator {op} ({len(nodes)}: {shown}), so it stays in {HIGH}; "
            f"{setting('include', f'op:{op}')} runs it low"
        )
