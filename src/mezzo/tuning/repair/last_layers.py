"""The products nearest to a model's outputs go back to floats, where a quantized result answers wrong.

Behind them nothing averages errors, and an output may hold numbers of several units, as boxes beside scores.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mezzo.planner.options import Options
from mezzo.tuning.repair.float_fallback import without_format

if TYPE_CHECKING:
    from mezzo.conversion.decided import Decided

RULE = "last-layers"
# Of all units that run quantized the last ones are tried, by these shares.
_SHARES = (16, 8, 4, 2)


def without_last(decided: "Decided", options: Options, because: str) -> Iterator[tuple[tuple[str, ...], Options]]:
    """The names of units that are left in floats, the last in the graph's order, and options that leave them so: the
    fewest first; none where nothing is quantized. `because`: what is wrong while they are quantized.
    """
    nodes, quantized = decided.reading.graph.nodes, decided.problem.line.quantized_format
    if quantized is None:
        return
    units = [unit.nodes for unit in decided.quantized_units]
    for count in sorted({-(-len(units) // share) for share in _SHARES if len(units) > 1}):
        last = units[-count:]
        returned = [(nodes[number].name, quantized) for unit in last for number in unit]
        yield tuple(nodes[unit[0]].name for unit in last), without_format(options, returned, RULE, because)
