"""Range evidence that clears nodes suspected of overflow: their values are well within a format.

It overrules suspicions about squares or exponentials. A node whose values were not all measured, or
held only zeros, NaN or infinities, has no evidence.
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

# Safety factors, as other data may hold larger values; powers and their sums grow faster than their
# operands.
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
    """Evidence by node name, in graph order, for nodes whose values were all exercised: the largest
    range, and whether all fit.

    `limited`: masks, as value ids of constants that will be clipped to the format; sums with them
    are as large as they are.
    """
    measured = ranges_by_value(graph, ranges)
    masked = reached_by(graph, rows, limited, measured)
    zeros = frozenset(
        v for v in _unfed(graph) if v in measured and measured[v].count and not measured[v].largest
    )
    evidence_by_node: dict[str, Evidence] = {}
    for node in graph.nodes:
        if node.kind not in (Kind.OP, Kind.TIE) or node.signature.dtype is None:
            continue
        evidence = _evidence(graph, node, rows[node.id], low, measured, masked, zeros, samples)
        if evidence is not None:
            evidence_by_node[node.name] = evidence
    return evidence_by_node


def can_tell(graph: Graph, ranges: Sequence[ValueRange]) -> bool:
    """Whether outputs on the data can validate a plan: none is constant, and nothing is NaN."""
    measured = ranges_by_value(graph, ranges)
    for node in graph.nodes:
        if node.kind not in (Kind.INPUT, Kind.OUTPUT):
            continue
        value = node.outputs[0] if node.kind is Kind.INPUT else node.inputs[0]
        measured_range = None if value is None else measured.get(value)
        if measured_range is not None and (
            measured_range.has_nan
            or (node.kind is Kind.OUTPUT and not measured_range.minimum < measured_range.maximum)
        ):
            return False
    return True


def _evidence(
    graph: Graph, node: Node, row: OpFacts | None, low: Format, measured: Mapping[int, ValueRange],
    masked: Collection[int], zeros: Collection[int], samples: int,
) -> Evidence | None:  # fmt: skip
    """A node's largest range, and whether all fit; None if a value was not exercised."""
    limit = _limit(node, row, low)
    largest: ValueRange | None = None
    fits = True
    for value in _floats(graph, node):
        is_masked = value in masked
        constant = graph.constants.get(value)
        if constant is not None:
            fits &= is_masked or constant.largest < low.overflow_from
            continue
        measured_range = measured.get(value)
        if value in zeros:
            continue
        if (
            measured_range is None
            or not _is_exercised(measured_range)
            or (measured_range.has_infinity and not is_masked)
        ):
            return None
        size = abs(measured_range.maximum) if is_masked else measured_range.largest
        fits &= size < limit and (is_masked or _is_kept(measured_range, low))
        if largest is None or measured_range.largest > largest.largest:
            largest = measured_range
    if largest is None:
        return None
    text = (
        f"{largest.value!r} holds {largest.minimum:.4g} to {largest.maximum:.4g} in {samples}"
        " samples"
    )
    return Evidence(text, fits)


def _unfed(graph: Graph) -> frozenset[int]:
    """Values computed from constants alone, which are the same for all data, zeros included."""
    unfed = set(graph.constants)
    for node in graph.nodes:
        if (
            node.kind is Kind.OP
            and node.inputs
            and all(v is None or v in unfed for v in node.inputs)
        ):
            unfed.update(v for v in node.outputs if v is not None)
    return frozenset(unfed)


def _limit(node: Node, row: OpFacts | None, low: Format) -> float:
    """The magnitude that a node's values must stay below."""
    risks = frozenset[Risk]() if row is None else row.risks
    if Risk.EXPONENTIAL in risks:  # twice the exponent is the square
        return math.sqrt(low.overflow_from)
    if not risks & _POWERS and (len(node.inputs) < 2 or node.inputs[0] != node.inputs[1]):
        return low.overflow_from / _HEADROOM
    limit = low.overflow_from / _HEADROOM_OF_POWERS
    # Squares are computed inside the node.
    return math.sqrt(limit) if Risk.SUM_OF_SQUARES in risks else limit


def _is_exercised(measured_range: ValueRange) -> bool:
    """Whether a value was computed and is not all zeros, which prove nothing."""
    return measured_range.count > 0 and measured_range.largest > 0.0 and not measured_range.has_nan


def _is_kept(measured_range: ValueRange, low: Format) -> bool:
    """Whether a value survives rounding."""
    lost = measured_range.formats.get(low.dtype)
    return lost is None or lost.rounding <= ROUNDING_LIMIT * low.eps


def _floats(graph: Graph, node: Node) -> Iterator[int]:
    """Inputs and outputs of a node that have its own precision."""
    signature = node.signature
    for values, roles in ((node.inputs, signature.inputs), (node.outputs, signature.outputs)):
        for value, role in zip(values, roles, strict=True):
            if value is not None and role is Role.GROUP:
                yield value
