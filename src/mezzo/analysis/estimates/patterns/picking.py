"""Loop state that is only moved, joined and picked from: caches, lists, buffers, running extremes."""

from collections.abc import Collection

from mezzo.analysis.estimates.site import Site
from mezzo.formats.dtypes import FLOATING
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# A state that more operators than this read is not looked into.
_MOST = 256


def is_only_picked(site: Site, inside: Collection[int], last: int) -> bool:
    """Whether every number of a state at the end of a trip, `last`, is one of the state at its start, whose values are
    `inside`, or is made without it: then no error of one trip adds to another's.
    """
    fresh, is_carried = set(), False
    queue, seen = [last], {last}
    while queue:
        value = queue.pop()
        node = site.producer(value)
        if value in inside:
            is_carried = True
        elif not _picks(site, node):
            fresh.add(value)
        else:
            operands = {v for v in node.inputs if v is not None and site.graph.values[v].dtype in FLOATING}
            queue += operands - seen
            seen |= operands
        if len(seen) > _MOST:
            return False
    return is_carried and _is_apart(site, inside, fresh)


def _picks(site: Site, node: Node) -> bool:
    """Whether every number that a node makes is one that it reads."""
    if node.kind in (Kind.CAST, Kind.TIE):
        return True
    row = site.rows[node.id] if node.kind is Kind.OP else None
    if row is None or row.transfer not in _PICKING:
        return False
    return row.keeps_values or (row.transfer is Transfer.JOIN and node.attributes.get("reduction", "none") == "none")


_PICKING = frozenset(
    {Transfer.KEEP, Transfer.MOVE, Transfer.JOIN, Transfer.SELECT, Transfer.MAXIMUM, Transfer.MINIMUM, Transfer.EXTREME}
)


def _is_apart(site: Site, inside: Collection[int], fresh: Collection[int]) -> bool:
    """Whether none of the fresh values is made from the state."""
    queue, seen = list(inside), set(inside)
    while queue:
        for use in site.graph.uses[queue.pop()]:
            for value in site.graph.nodes[use.node].outputs:
                if value in fresh:
                    return False
                if value is not None and value not in seen:
                    seen.add(value)
                    queue.append(value)
        if len(seen) > _MOST:
            return False
    return True
