"""Float fallback: options that bar nodes from a format, by findings with the nodes' names.

If a quantized result is wrong, its last matmuls and convolutions return to floats: no later layer
averages their errors, and an output may hold elements of several units, such as boxes and scores.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.formats.dtypes import DType
from mezzo.planner.options import Options
from mezzo.tables.policy import NamedFinding

if TYPE_CHECKING:
    from mezzo.conversion.decided import Decided

LAST_LAYERS = "last-layers"
# Fractions of the quantized units, counted from the end, that are tried.
_SHARES = (16, 8, 4, 2)


def without_format(
    options: Options, nodes: Iterable[tuple[str, DType]], rule: str, because: str
) -> Options:
    """The options with findings that bar these (node, format) pairs, replacing earlier ones."""
    findings = {
        (name, dtype): NamedFinding(node=name, rule=rule, because=because, dtype=dtype)
        for name, dtype in nodes
    }
    remaining = tuple(
        finding
        for finding in options.planning.found
        if (finding.node, finding.dtype) not in findings
    )
    return replace(
        options, planning=replace(options.planning, found=(*remaining, *findings.values()))
    )


def without_last(
    decided: "Decided", options: Options, because: str
) -> Iterator[tuple[tuple[str, ...], Options]]:
    """Yield the names of the last units, in graph order, and options that keep them in floats,
    fewest first; nothing if no unit is quantized. `because`: the fault that their quantization
    causes.
    """
    nodes, quantized = decided.reading.graph.nodes, decided.problem.line.quantized_format
    if quantized is None:
        return
    units = [unit.nodes for unit in decided.quantized_units]
    for count in sorted({-(-len(units) // share) for share in _SHARES if len(units) > 1}):
        last = units[-count:]
        returned = [(nodes[number].name, quantized) for unit in last for number in unit]
        yield (
            tuple(nodes[unit[0]].name for unit in last),
            without_format(options, returned, LAST_LAYERS, because),
        )
