"""Custom operators: those that no schema defines, so that neither facts nor lists of kernels speak of them. They keep
their types unless somebody names them: a policy's rule, the target, an option.
"""

from collections.abc import Iterator, Sequence

from mezzo.common.message_style import setting
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Signature
from mezzo.tables.policy import Category, Policy, Verdict
from mezzo.tables.target import Target

_RULE = "custom-operator"
_NODES_SHOWN = 3


def judge_custom(signature: Signature, policy: Policy, target: Target, low: DType) -> Verdict:
    """A custom operator's verdict, options apart: a rule that names it, else a row of the target, else a denial."""
    key = signature.dialect, signature.op
    verdict = policy.judge(key, None, low)
    if any(rule.name == verdict.rule and rule.ops for rule in policy.rules):
        return verdict
    row = target.custom_operator(*key, low)
    if row is not None:
        because = f"{target.name} runs this custom operator in {low} ({row.source})"
        return Verdict(category=Category.INFER, rule=_RULE, because=because)
    because = "no schema defines it, and nobody says that it runs in other types"
    return Verdict(category=Category.DENY, rule=_RULE, because=because)


def mention_custom(graph: Graph, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Custom operators that keep FP32 as nobody says more of them, by operator, each once."""
    names: dict[str, list[str]] = {}
    for node, verdict in zip(graph.nodes, verdicts, strict=True):
        is_kept = verdict.rule == _RULE and verdict.category is Category.DENY
        if is_kept and node.kind is Kind.OP and node.signature.is_custom:
            names.setdefault(node.op, []).append(node.name)
    for op, nodes in sorted(names.items()):
        shown = ", ".join(map(repr, nodes[:_NODES_SHOWN])) + (", ..." if len(nodes) > _NODES_SHOWN else "")
        yield (
            f"no schema defines operator {op} ({len(nodes)}: {shown}), so it stays in {HIGH}; "
            f"{setting('include', f'op:{op}')} runs it low"
        )
