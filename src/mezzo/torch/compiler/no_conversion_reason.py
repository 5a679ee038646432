"""Says of a graph whose products all stay as they are why they do."""

from collections import Counter
from typing import NamedTuple

from mezzo.aten.read.read import facts_of
from mezzo.contracts.plans import PlannedNode
from mezzo.formats.dtypes import HIGH
from mezzo.ir.nodes import Kind
from mezzo.report.layout.names import join_some
from mezzo.tables.facts import HEAVY
from mezzo.torch.compiler.rewriting import Planned

_SHOWN = 4
_UNSPOKEN = frozenset({"otherwise", "unlisted", "unknown-format"})


class Idle(NamedTuple):
    """Why no product of a graph runs low. `is_unmeant`: nobody asked for that, the policy has no rule for any."""

    because: str
    is_unmeant: bool


def find_idle(planned: Planned, policy: str) -> Idle | None:
    """Why nothing of a planned graph runs low; None where something does, or where nothing multiplies."""
    if planned.decided.count_nodes()[0]:
        return None
    graph = planned.reading.graph
    told = {one.name: one for one in planned.plan.nodes}
    products: list[PlannedNode] = []
    typed: dict[str, None] = {}
    for node in graph.nodes:
        row = facts_of(node.signature.dialect, node.op) if node.kind is Kind.OP else None
        if row is None or row.cost not in HEAVY:
            continue
        if node.signature.dtype is HIGH:
            products.append(told[node.name])
        else:
            typed |= {str(graph.values[one].dtype): None for one in node.outputs if one is not None}
    if products:
        said = join_some(sorted({one.op for one in products}), _SHOWN)
        if all(one.rule in _UNSPOKEN for one in products):
            return Idle(f"no product runs low: policy {policy!r} has no rule for what the graph has ({said})", True)
        ((rule, because), _), *_ = Counter((one.rule, one.because) for one in products).most_common()
        return Idle(f"no product runs low ({said}), by rule {rule!r}: {because}", False)
    if typed:
        said = " and ".join(typed)
        return Idle(f"products are {said} as they came: by an autocast around the call, by casts, or by weights", False)
    return None
