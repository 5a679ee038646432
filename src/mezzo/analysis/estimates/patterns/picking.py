"""Loop states that are only moved, concatenated and selected from: caches, lists, buffers, running
maxima.
"""

from collections.abc import Collection

from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import FLOATING
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# Maximum number of values visited per state.
_MOST = 256


def is_only_picked(site: EstimatedGraph, inside: Collection[int], last: int) -> bool:
    """Whether every element of a state at the end of a trip, `last`, is an element of the state at
    its start, `inside`, or independent of it: then errors do not accumulate over trips.
    """
    fresh, is_carried = set(), False
    queue, visited = [last], {last}
    while queue:
        value = queue.pop()
        node = site.producer(value)
        if value in inside:
            is_carried = True
        elif not _picks(site, node):
            fresh.add(value)
        else:
            operands = {v for v in node.present_inputs if site.dtype(v) in FLOATING}
            queue += operands - visited
            visited |= operands
        if len(visited) > _MOST:
            return False
    return is_carried and _is_apart(site, inside, fresh)


def _picks(site: EstimatedGraph, node: Node) -> bool:
    """Whether every output element of a node is one of its input elements."""
    if node.kind in (Kind.CAST, Kind.TIE):
        return True
    row = site.rows[node.id] if node.kind is Kind.OP else None
    if row is None or row.transfer not in _PICKING:
        return False
    return row.keeps_values or (
        row.transfer is Transfer.JOIN and node.attributes.get("reduction", "none") == "none"
    )


_PICKING = frozenset(
    {
        Transfer.KEEP,
        Transfer.MOVE,
        Transfer.JOIN,
        Transfer.SELECT,
        Transfer.MAXIMUM,
        Transfer.MINIMUM,
        Transfer.EXTREME,
    }
)


def _is_apart(site: EstimatedGraph, inside: Collection[int], fresh: Collection[int]) -> bool:
    """Whether none of the fresh values depends on the state."""
    queue, visited = list(inside), set(inside)
    while queue:
        for reader in site.graph.readers(queue.pop()):
            for value in reader.present_outputs:
                if value in fresh:
                    return False
                if value not in visited:
                    visited.add(value)
                    queue.append(value)
        if len(visited) > _MOST:
            return False
    return True
