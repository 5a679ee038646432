"""Which nodes data has shown to fit: every value that they read and make was measured, and stays well inside a format.

What is only suspected of such a node, that its squares or exponentials might pass the range, can be lifted. Nothing
speaks for a node whose values were not measured, held nothing but zeros, held NaN or infinities, or were lost in
rounding.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from mezzo.dtypes import Format
from mezzo.facts import OpFacts, Risk
from mezzo.graph import Graph, Kind, Node, Role
from mezzo.numerics.measures import ValueRange
from mezzo.numerics.protection import ROUNDING_LIMIT, ranges_by_value, reached_by

# Other data may hold values so many times larger; squares and exponentials grow faster than what they are of.
_HEADROOM = 8.0
# What squares inside the operator, or grows so: its numbers have to stay below the root of the range.
_SQUARING = frozenset({Risk.SUM_OF_SQUARES, Risk.EXPONENTIAL, Risk.POWER, Risk.PRODUCT})


def lifts(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    ranges: Sequence[ValueRange],
    samples: int,
    limited: Collection[int] = (),
) -> Mapping[str, str]:
    """Say of each node whose values fit, by name, what was measured of the largest one. In graph order.

    `limited` are constants that will be stored within bounds, by value id: masks, whose sums are as large as they are.
    """
    measured = ranges_by_value(graph, ranges)
    masked = reached_by(graph, rows, limited)
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.kind not in (Kind.OP, Kind.TIE) or node.signature.dtype is None:
            continue
        held = _held(graph, node, rows[node.id], low, measured, masked)
        if held is not None:
            text = f"{held.value!r} holds {held.minimum:.4g} to {held.maximum:.4g} in {samples} samples"
            found[node.name] = text
    return found


def _held(
    graph: Graph, node: Node, row: OpFacts | None, low: Format, measured: Mapping[int, ValueRange],
    masked: Collection[int],
) -> ValueRange | None:  # fmt: skip
    """The largest value of a node all of whose values fit; None where one does not, or was not measured."""
    limit = low.overflow_from / _HEADROOM
    if row is not None and row.risks & _SQUARING:
        limit = low.overflow_from**0.5
    largest: ValueRange | None = None
    for value in _floats(graph, node):
        constant = graph.constants.get(value)
        if constant is not None:
            if value not in masked and not constant.largest < low.overflow_from:
                return None
            continue
        held = measured.get(value)
        if held is None or not _is_exercised(held) or held.has_nan:
            return None
        size = abs(held.maximum) if value in masked else held.largest
        if not size < limit or (value not in masked and not _is_kept(held, low)):
            return None
        if largest is None or held.largest > largest.largest:
            largest = held
    return largest


def _is_exercised(held: ValueRange) -> bool:
    """Whether a value was computed, and not as zeros alone, which show of no operator what it can do."""
    return held.count > 0 and held.largest > 0.0


def _is_kept(held: ValueRange, low: Format) -> bool:
    """Whether a value survives rounding."""
    lost = held.formats.get(low.dtype)
    return not held.has_infinity and (lost is None or lost.rounding <= ROUNDING_LIMIT * low.eps)


def _floats(graph: Graph, node: Node) -> Iterator[int]:
    """What a node reads and makes in its own precision."""
    signature = node.signature
    for values, roles in ((node.inputs, signature.inputs), (node.outputs, signature.outputs)):
        for value, role in zip(values, roles, strict=True):
            if value is not None and role is Role.GROUP:
                yield value
