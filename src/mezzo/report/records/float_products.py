"""Products that were to be quantized and stay in floats: which, how many, and the first reason."""

import textwrap
from collections import Counter

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.plugins.discovery import op_facts
from mezzo.report.layout.names import clean
from mezzo.report.records.groups import is_operator
from mezzo.tables.facts import HEAVY

# Operators that are named, the others being counted with them, and letters of the reason.
_MOST, _WIDTH = 3, 90


def tell_float_products(plan: Plan) -> tuple[str, ...]:
    """One sentence where the plan quantizes, and leaves some products of the model in floats; else nothing."""
    line = plan.line
    if line.quantized is None:
        return ()
    products = [node for node in plan.nodes if is_operator(node) and _multiplies(plan, node)]
    quantized = line.dtypes[line.quantized]
    left = [node for node in products if node.precision.compute is not quantized and node.rule != "quantized-unit"]
    if not left:
        return ()
    counts = Counter(node.op for node in left).most_common()
    named = ", ".join(f"{count} {clean(op)}" for op, count in counts[:_MOST])
    more = "" if len(counts) <= _MOST else ", ..."
    (rule, because), _ = Counter((node.rule, node.because) for node in left).most_common(1)[0]
    why = textwrap.shorten(clean(because), _WIDTH, placeholder=" ...")
    return (f"not in {quantized}: {len(left)} of {len(products)} products ({named}{more}); {rule}: {why}",)


def _multiplies(plan: Plan, node: PlannedNode) -> bool:
    row = op_facts(plan.dialect).get(node.op)
    return row is not None and row.cost in HEAVY
