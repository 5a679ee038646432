"""Which nodes data has exercised, and which of them fit: every value they read and make stays well inside a format.

What is only suspected of such a node, that its squares or exponentials might pass the range, can be lifted. Nothing
speaks for a node whose values were not measured, held nothing but zeros, NaN or infinities.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from mezzo.formats.dtypes import Format
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.numerics.measures import ValueRange
from mezzo.numerics.ranges.protection import ROUNDING_LIMIT, ranges_by_value, reached_by
from mezzo.tables.facts import OpFacts, Risk
from mezzo.tables.policy import Evidence

# Other data may hold values so many times larger; powers and their sums grow faster than what they are of.
_HEADROOM, _HEADROOM_OF_POWERS = 2.0, 8.0
_POWERS = frozenset({Risk.POWER, Risk.PRODUCT, Risk.SUM, Risk.SUM_OF_SQUARES})


def lifts(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    ranges: Sequence[ValueRange],
    samples: int,
    limited: Collection[int] = (),
) -> Mapping[str, Evidence]:
    """Say of each node all of whose values were exercised, by name, what was measured of the largest one and whether
    all of them fit. In graph order.

    `limited` are constants that will be stored within bounds, by value id: masks, whose sums are as large as they are.
    """
    measured = ranges_by_value(graph, ranges)
    masked = reached_by(graph, rows, limited)
    zeros = frozenset(v for v in _unfed(graph) if v in measured and measured[v].count and not measured[v].largest)
    found: dict[str, Evidence] = {}
    for node in graph.nodes:
        if node.kind not in (Kind.OP, Kind.TIE) or node.signature.dtype is None:
            continue
        evidence = _evidence(graph, node, rows[node.id], low, measured, masked, zeros, samples)
        if evidence is not None:
            found[node.name] = evidence
    return found


def can_tell(graph: Graph, ranges: Sequence[ValueRange]) -> bool:
    """Whether answers on the data can speak for a plan: no input or output held NaN, and no output was always the
    same number.
    """
    measured = ranges_by_value(graph, ranges)
    for node in graph.nodes:
        if node.kind not in (Kind.INPUT, Kind.OUTPUT):
            continue
        value = node.outputs[0] if node.kind is Kind.INPUT else node.inputs[0]
        held = None if value is None else measured.get(value)
        if held is not None and (held.has_nan or (node.kind is Kind.OUTPUT and not held.minimum < held.maximum)):
            return False
    return True


def _evidence(
    graph: Graph, node: Node, row: OpFacts | None, low: Format, measured: Mapping[int, ValueRange],
    masked: Collection[int], zeros: Collection[int], samples: int,
) -> Evidence | None:  # fmt: skip
    """What the largest value of a node held, and whether all fit; None where one was not exercised."""
    limit = _limit(node, row, low)
    largest: ValueRange | None = None
    fits = True
    for value in _floats(graph, node):
        is_masked = value in masked
        constant = graph.constants.get(value)
        if constant is not None:
            fits &= is_masked or constant.largest < low.overflow_from
            continue
        held = measured.get(value)
        if value in zeros:
            continue
        if held is None or not _is_exercised(held) or (held.has_infinity and not is_masked):
            return None
        size = abs(held.maximum) if is_masked else held.largest
        fits &= size < limit and (is_masked or _is_kept(held, low))
        if largest is None or held.largest > largest.largest:
            largest = held
    if largest is None:
        return None
    text = f"{largest.value!r} holds {largest.minimum:.4g} to {largest.maximum:.4g} in {samples} samples"
    return Evidence(text, fits)


def _unfed(graph: Graph) -> frozenset[int]:
    """Values that operators make of constants alone: what they held once they always hold, zeros too."""
    unfed = set(graph.constants)
    for node in graph.nodes:
        if node.kind is Kind.OP and node.inputs and all(v is None or v in unfed for v in node.inputs):
            unfed.update(v for v in node.outputs if v is not None)
    return frozenset(unfed)


def _limit(node: Node, row: OpFacts | None, low: Format) -> float:
    """The magnitude that a node's values have to stay below."""
    risks = frozenset[Risk]() if row is None else row.risks
    if Risk.EXPONENTIAL in risks:  # exponents twice as large give the square
        return math.sqrt(low.overflow_from)
    if not risks & _POWERS and (len(node.inputs) < 2 or node.inputs[0] != node.inputs[1]):
        return low.overflow_from / _HEADROOM
    limit = low.overflow_from / _HEADROOM_OF_POWERS
    return math.sqrt(limit) if Risk.SUM_OF_SQUARES in risks else limit  # the squares are inside


def _is_exercised(held: ValueRange) -> bool:
    """Whether a value was computed, and not as zeros alone, which show of no operator what it can do."""
    return held.count > 0 and held.largest > 0.0 and not held.has_nan


def _is_kept(held: ValueRange, low: Format) -> bool:
    """Whether a value survives rounding."""
    lost = held.formats.get(low.dtype)
    return lost is None or lost.rounding <= ROUNDING_LIMIT * low.eps


def _floats(graph: Graph, node: Node) -> Iterator[int]:
    """What a node reads and makes in its own precision."""
    signature = node.signature
    for values, roles in ((node.inputs, signature.inputs), (node.outputs, signature.outputs)):
        for value, role in zip(values, roles, strict=True):
            if value is not None and role is Role.GROUP:
                yield value
