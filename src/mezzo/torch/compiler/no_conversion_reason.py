"""Explanation of graphs in which every matmul and convolution stays in FP32, or had better."""

from collections import Counter
from typing import NamedTuple

from mezzo.aten.read.read import facts_of
from mezzo.common.machine import find_machine
from mezzo.contracts.plans import PlannedNode
from mezzo.formats.dtypes import FORMATS, HIGH
from mezzo.ir.nodes import Kind
from mezzo.report.layout.names import join_some
from mezzo.tables.facts import HEAVY
from mezzo.tables.target import Target
from mezzo.torch.compiler.rewriting import RewrittenGraph

_SHOWN = 4
_UNSPOKEN = frozenset({"otherwise", "unlisted", "unknown-format"})


class NoConversionReason(NamedTuple):
    """Why no matmul or convolution runs low. `is_unmeant`: the policy has no rule for them."""

    because: str
    is_unmeant: bool


def find_no_conversion_reason(planned: RewrittenGraph, policy: str) -> NoConversionReason | None:
    """Why nothing runs low; None if something does, or without matmuls and convolutions."""
    if planned.decided.count_nodes()[0]:
        return None
    graph = planned.reading.graph
    planned_nodes = {node.name: node for node in planned.plan.nodes}
    products: list[PlannedNode] = []
    typed: dict[str, None] = {}
    for node in graph.nodes:
        row = facts_of(node.signature.dialect, node.op) if node.kind is Kind.OP else None
        if row is None or row.cost not in HEAVY:
            continue
        if node.signature.dtype is HIGH:
            products.append(planned_nodes[node.name])
        else:
            typed |= {
                str(graph.values[value].dtype): None for value in node.outputs if value is not None
            }
    if products:
        ops = join_some(sorted({product.op for product in products}), _SHOWN)
        if all(product.rule in _UNSPOKEN for product in products):
            return NoConversionReason(
                f"no product runs low: policy {policy!r} has no rule for what the graph has"
                f" ({ops})",
                True,
            )
        ((rule, because), _), *_ = Counter(
            (product.rule, product.because) for product in products
        ).most_common()
        return NoConversionReason(
            f"no product runs low ({ops}), by rule {rule!r}: {because}", False
        )
    if typed:
        formats = " and ".join(typed)
        return NoConversionReason(
            f"products are {formats} as they came: by an autocast around the call, by casts, or by"
            " weights",
            False,
        )
    return None


def tell_emulated(planned: RewrittenGraph, target: Target) -> str | None:
    """What to know if PyTorch emulates a matmul or convolution of a plan on this machine's CPU;
    None if it emulates none.
    """
    machine, graph = find_machine(), planned.reading.graph
    for node in planned.plan.nodes:
        dialect = graph.nodes[graph.by_name[node.name]].signature.dialect
        row = facts_of(dialect, node.op)
        gain = target.gain(node.precision.compute)
        if row is None or row.cost not in HEAVY or gain is None:
            continue
        if gain.is_faster_on(machine) is False:
            word = FORMATS[gain.dtype].words[0]
            return (
                f"this CPU has no {' or '.join(gain.needs)}: PyTorch emulates matmuls and"
                f" convolutions in {word}, many times slower than in FP32; in inference to='int8'"
                " gains here"
            )
    return None
