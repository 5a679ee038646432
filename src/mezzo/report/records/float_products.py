"""Matmuls and convolutions that a quantizing plan leaves in floats: counts and main reason."""

import textwrap
from collections import Counter

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.plugins.discovery import op_facts
from mezzo.report.layout.names import clean
from mezzo.report.records.groups import is_operator
from mezzo.tables.facts import HEAVY

# Number of operator types in the sentence, and the longest reason in characters.
_MOST, _WIDTH = 3, 90


def describe_float_products(plan: Plan) -> tuple[str, ...]:
    """A sentence on matmuls and convolutions that a quantizing plan leaves in floats, if any."""
    line = plan.line
    if line.quantized is None:
        return ()
    products = [node for node in plan.nodes if is_operator(node) and _multiplies(plan, node)]
    quantized = line.dtypes[line.quantized]
    in_floats = [
        node
        for node in products
        if node.precision.compute is not quantized and node.rule != "quantized-unit"
    ]
    if not in_floats:
        return ()
    counts = Counter(node.op for node in in_floats).most_common()
    op_counts = ", ".join(f"{count} {clean(op)}" for op, count in counts[:_MOST])
    more = "" if len(counts) <= _MOST else ", ..."
    (rule, because), _ = Counter((node.rule, node.because) for node in in_floats).most_common(1)[0]
    why = textwrap.shorten(clean(because), _WIDTH, placeholder=" ...")
    return (
        (
            f"not in {quantized}: {len(in_floats)} of {len(products)} products ({op_counts}{more});"
            f" {rule}: {why}"
        ),
    )


def _multiplies(plan: Plan, node: PlannedNode) -> bool:
    row = op_facts(plan.dialect).get(node.op)
    return row is not None and row.cost in HEAVY
