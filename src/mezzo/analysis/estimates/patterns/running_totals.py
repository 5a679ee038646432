"""Running totals that a trace unrolled: x1 + x2 + x3 and on, or averages that forget slowly, each step a node.

What rounding takes off such a total is taken off again and again to the same side, as in a loop: steps too small to be
seen are lost beside what they add up to.
"""

from collections.abc import Sequence

from mezzo.analysis.estimates.laws.law import Demand
from mezzo.analysis.estimates.moments import LOST, Moments
from mezzo.analysis.estimates.site import Site
from mezzo.ir.nodes import Node

# Shorter chains are no reason to fear that: their roundings are a few among those of any model.
_SHORT = 64.0


def note_sum(site: Site, operands: Sequence[int], total: Moments, result: int) -> None:
    """Note of a sum of numbers of one sign, mostly, over how many steps errors of its operands have added up."""
    mean = abs(total.mean)
    if mean <= total.std or total.flags & LOST:
        return
    length, longest = 1.0, None
    for value in operands:
        before = site.chains.get(site.kept[value])
        if before is not None and 1.0 + before * abs(site.held[value].mean) / mean > length:
            length, longest = 1.0 + before * abs(site.held[value].mean) / mean, site.kept[value]
    site.chains[result] = length
    if longest is not None:
        site.continued.add(longest)


def note_scaled(site: Site, total: int, result: int) -> None:
    """Note that a total goes on, times a constant."""
    before = site.chains.get(site.kept[total])
    if before is not None:
        site.chains[result] = before
        site.continued.add(site.kept[total])


def shared(site: Site, node: Node, demand: Demand) -> Demand:
    """The part of what is tolerated at the end of a chain that each of its steps may use up."""
    result = node.outputs[0]
    length = 0.0 if result is None or result in site.continued else site.chains.get(result, 0.0)
    return demand if length <= _SHORT else Demand(demand.absolute / length, demand.relative / length)
