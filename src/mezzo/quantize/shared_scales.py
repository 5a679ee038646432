"""Fallback of coarse shared scales: if one scale serves values of very different ranges, such as
boxes and scores, its steps are too coarse for the small ones, and the operators that join, move or
split them stay in floats.
"""

from collections.abc import Iterator, Mapping, Sequence

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.contracts.calibrator import Range
from mezzo.ir.graph import Graph
from mezzo.plugins.discovery import op_facts
from mezzo.tables.policy import NamedFinding
from mezzo.tables.quantized_kernels import OutputMode

# Largest ratio of a shared range to a part's: the part then has 16 of 255 steps, a 2 % rounding
# error.
_MOST = 16.0
_RULE = "coarse-part"
_MOVES = (OutputMode.READ, OutputMode.PASSED)


def coarse_parts(
    graph: Graph,
    units: Sequence[QuantizedUnit],
    own: Mapping[str, Range],
    shared: Mapping[str, Range],
) -> dict[tuple[int, ...], NamedFinding]:
    """Findings, by a unit's nodes, against units whose shared scale is too coarse for one of their
    values.

    Ranges by value name: `own` as observed, `shared` after alignment.
    """
    findings: dict[tuple[int, ...], NamedFinding] = {}
    wide: list[int] = []
    for unit in units:
        members = [*_members(graph, unit)]
        if not members:
            continue
        reaches = {value: _reach(own, graph.values[value].name) for value in members}
        largest = max(members, key=lambda value: _reach(shared, graph.values[value].name))
        smallest = min(
            (value for value in members if reaches[value] > 0),
            key=reaches.__getitem__,
            default=largest,
        )
        reach = _reach(shared, graph.values[largest].name)
        if reach > _MOST * reaches[smallest] > 0:
            small = graph.values[smallest].name
            because = (
                f"{small!r} reaches {reaches[smallest]:.3g}, and would be held by steps for"
                f" {reach:.3g}: {255 * reaches[smallest] / reach:.2g} of 255"
            )
            findings[unit.nodes] = _finding(graph, unit, because)
            # The small value is a slice of the unit's input.
            if smallest in graph.nodes[unit.nodes[0]].outputs:
                wide += [
                    read.value
                    for read in unit.reads
                    if reaches[read.value] > _MOST * reaches[smallest]
                ]
    findings |= {
        unit.nodes: _finding(graph, unit, because) for unit, because in _makers(graph, units, wide)
    }
    return findings


def _makers(
    graph: Graph, units: Sequence[QuantizedUnit], wide: Sequence[int]
) -> Iterator[tuple[QuantizedUnit, str]]:
    """Units that would quantize a value of which a coarse unit takes a small part."""
    by_value = {
        value: unit
        for unit in units
        for value in graph.nodes[unit.nodes[-1]].outputs
        if value is not None
    }
    queue = [*wide]
    while queue:
        value = queue.pop()
        unit = by_value.pop(value, None)
        if unit is not None and unit.hands in (OutputMode.INTEGERS, *_MOVES):
            yield (
                unit,
                (
                    f"makes {graph.values[value].name!r}, of which a part is too small for a scale"
                    " of the whole"
                ),
            )
            queue += [read.value for read in unit.reads] if unit.hands in _MOVES else []


def _members(graph: Graph, unit: QuantizedUnit) -> Iterator[int]:
    """Inputs and outputs of a unit that only moves or selects elements; else nothing."""
    node = graph.nodes[unit.nodes[0]]
    row = op_facts(node.signature.dialect).get(node.signature.op)
    if not unit.kernel.is_dynamic and (
        unit.hands in _MOVES or (row is not None and row.keeps_values)
    ):
        yield from (read.value for read in unit.reads if not read.operand.is_weight)
        yield from (value for value in node.outputs if value is not None)


def _reach(ranges: Mapping[str, Range], name: str) -> float:
    value_range = ranges.get(name)
    return 0.0 if value_range is None else max(-value_range.low, value_range.high)


def _finding(graph: Graph, unit: QuantizedUnit, because: str) -> NamedFinding:
    return NamedFinding(node=graph.nodes[unit.nodes[0]].name, rule=_RULE, because=because)
