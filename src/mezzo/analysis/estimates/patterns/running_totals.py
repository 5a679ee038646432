"""Unrolled running totals: x1 + x2 + x3 and so on, or slow moving averages, each step a node.

Rounding errors of such a total have one sign, as in a loop: steps below its rounding unit are lost.
"""

from collections.abc import Sequence

from mezzo.analysis.estimates.laws.law import Demand
from mezzo.analysis.estimates.moments import LOST, Moments
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Node

# Shorter chains are ignored: their errors are few among those of a model.
_SHORT = 64.0


def note_sum(site: EstimatedGraph, operands: Sequence[int], total: Moments, result: int) -> None:
    """Record the number of steps whose errors have added up in a sum of numbers of mostly one
    sign.
    """
    mean = abs(total.mean)
    if mean <= total.std or total.flags & LOST:
        return
    length, longest = 1.0, None
    for value in operands:
        before = site.chains.get(site.kept[value], 0.0)
        steps = 1.0 + before * abs(site.estimates[value].mean) / mean
        if steps > length:
            length, longest = steps, site.kept[value]
    site.chains[result] = length
    if longest is not None:
        site.continued.add(longest)


def note_scaled(site: EstimatedGraph, total: int, result: int) -> None:
    """Record that a total continues after multiplication by a constant."""
    before = site.chains.get(site.kept[total])
    if before is not None:
        site.chains[result] = before
        site.continued.add(site.kept[total])


def shared(site: EstimatedGraph, node: Node, demand: Demand) -> Demand:
    """The share of the tolerance at the end of a chain that each step may use."""
    result = node.outputs[0]
    length = 0.0 if result is None or result in site.continued else site.chains.get(result, 0.0)
    return (
        demand if length <= _SHORT else Demand(demand.absolute / length, demand.relative / length)
    )
