"""Protection from overflow by measured ranges: nodes that must not run in low precision, since
values overflow, underflow or lose Softmax accuracy.

A value at risk protects its producer and every operator that would read it in low precision. Values
in subgraphs that never ran on the data protect no node.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mezzo.contracts.plans import DATA_LOGITS, DATA_OVERFLOW, DATA_VANISHES
from mezzo.formats.dtypes import Format
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Function, OpFacts, Risk
from mezzo.tables.policy import Lifting, NamedFinding

if TYPE_CHECKING:
    from mezzo.numerics.measures import ValueRange

# Above this many eps of rounding error, most of a value's weight is in subnormals or out of range.
ROUNDING_LIMIT = 16
# Softmax depends on absolute errors: logits with an error of 0.25 change a probability by a
# quarter.
_LOGIT_ERROR = 0.25
_SOFTMAX = frozenset({Function.SOFTMAX, Function.LOG_SOFTMAX})
# Operators that combine masks with logits.
_MASKING = frozenset(
    {Function.ADD, Function.SUBTRACT, Function.SELECT, Function.MINIMUM, Function.MAXIMUM}
)
# Operators whose error is unbounded where an operand rounds to zero, and that operand's index.
_STEEP_AT_ZERO: Mapping[Function, int] = {
    Function.DIVIDE: 1, Function.RECIPROCAL: 0, Function.SQRT: 0, Function.RSQRT: 0,
    Function.LOG: 0, Function.POWER: 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A reason to protect a value. `lifting`: whether right outputs may overrule it."""

    rule: str
    because: str
    readers_only: frozenset[int] | None = None  # None: all that would read it in low precision
    lifting: Lifting = Lifting.BY_OUTPUTS


def protections(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    ranges: "Sequence[ValueRange]",
    headroom: float = 1.0,
    limited: Collection[int] = (),
    harmless: Collection[str] = (),
) -> tuple[NamedFinding, ...]:
    """Find the nodes that must not run in low precision by measured ranges, in graph order.

    `headroom`: values within this factor of the format's limit count as beyond it, since other data
    may be larger. `limited`: masks, as value ids of constants that will be clipped to the format;
    sums with them are large only because of the mask. `harmless`: names of nodes whose results may
    overflow or underflow.
    """
    measured = ranges_by_value(graph, ranges)
    by_node: dict[int, NamedFinding] = {}
    for value, measured_range in _judged(graph, rows, low, measured, headroom, limited, harmless):
        for trouble in _troubles(graph, rows, low, value, measured_range, headroom):
            _protect(graph, value, trouble, by_node)
    return tuple(by_node[node] for node in sorted(by_node))


def overflowing(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    measured: "Mapping[int, ValueRange]",
    headroom: float,
    limited: Collection[int] = (),
    harmless: Collection[str] = (),
) -> "Iterator[tuple[int, ValueRange]]":
    """Values by id that overflow a format. Arguments as of `protections`."""
    for value, measured_range in _judged(graph, rows, low, measured, headroom, limited, harmless):
        if measured_range.largest * headroom >= low.overflow_from:
            yield value, measured_range


def _judged(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    measured: "Mapping[int, ValueRange]",
    headroom: float,
    limited: Collection[int],
    harmless: Collection[str],
) -> "Iterator[tuple[int, ValueRange]]":
    """The values that are judged by their ranges."""
    masked = reached_by(graph, rows, limited, measured)
    for value, measured_range in measured.items():
        if value in masked and measured_range.maximum * headroom < low.overflow_from:
            continue
        if graph.nodes[graph.values[value].producer].name not in harmless:
            yield value, measured_range


def ranges_by_value(graph: Graph, ranges: "Sequence[ValueRange]") -> "dict[int, ValueRange]":
    """Ranges by value id. Outputs of a tie (carried state, branch join) take its inputs' range."""
    by_name = {
        (measured_range.node, measured_range.value): measured_range for measured_range in ranges
    }
    by_value: dict[int, ValueRange] = {}
    for number, value in enumerate(graph.values):
        measured_range = by_name.get((graph.nodes[value.producer].name, value.name))
        if measured_range is not None:
            by_value[number] = measured_range
    # Loop state is produced inside the subgraph, after its tie, so the outputs of ties come last.
    for node in graph.nodes:
        if node.kind is Kind.TIE:
            inputs = [by_value[v] for v in node.inputs if v is not None and v in by_value]
            if inputs:
                largest = max(inputs, key=lambda measured_range: measured_range.largest)
                by_value.update(
                    {v: largest for v in node.outputs if v is not None and v not in by_value}
                )
    return by_value


def reached_by(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    limited: Collection[int],
    measured: "Mapping[int, ValueRange]",
) -> frozenset[int]:
    """Values that contain masks, after additions, selections, data movement, or products with
    numbers of at most 1.
    """
    reached, queue = set(limited), list(limited)
    while queue:
        mask = queue.pop()
        for use in graph.uses[mask]:
            node, row = graph.nodes[use.node], rows[use.node]
            propagates = node.kind is Kind.TIE or (
                row is not None
                and (
                    row.keeps_values
                    or row.function in _MASKING
                    or (
                        row.function is Function.MULTIPLY
                        and all(_is_factor(graph, v, measured) for v in node.inputs if v != mask)
                    )
                )
            )
            fresh = (
                [v for v in node.outputs if v is not None and v not in reached]
                if propagates
                else []
            )
            reached.update(fresh)
            queue += fresh
    return frozenset(reached)


def _is_factor(graph: Graph, value: int | None, measured: "Mapping[int, ValueRange]") -> bool:
    """Whether a value never enlarges what it multiplies."""
    holder = None if value is None else graph.constants.get(value) or measured.get(value)
    return holder is not None and holder.largest <= 1.0


def _troubles(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    value: int,
    measured: "ValueRange",
    headroom: float,
) -> Iterator[_Trouble]:
    """Yield the risks of one value: overflow, underflow, inaccurate Softmax inputs."""
    where = (
        f"{measured.value!r} holds {measured.minimum:.4g} to {measured.maximum:.4g} in"
        f" {measured.largest_at}"
    )
    if measured.largest * headroom >= low.overflow_from:
        near = "" if measured.largest >= low.overflow_from else f" within a factor {headroom:g}"
        yield _Trouble(
            DATA_OVERFLOW,
            f"{where}: reaches {low.dtype}'s limit of {low.max_finite:g}{near}",
            None,
            Lifting.NEVER,
        )
        return
    lost = measured.formats.get(low.dtype)
    if lost is None:
        return
    if lost.rounding > ROUNDING_LIMIT * low.eps:
        text = (
            f"{where}: {lost.rounding:.0%} of it is lost in {low.dtype}, whose smallest number is"
        )
        yield _Trouble(DATA_VANISHES, f"{text} {low.smallest_subnormal:.2g}")
        return
    readers = [(graph.nodes[use.node], use.operand) for use in graph.uses[value]]
    steep = frozenset(node.id for node, operand in readers if _is_steep(rows[node.id], operand))
    if lost.vanishing > 0 and steep:
        text = (
            f"{where}: {lost.vanishing:.1%} of its numbers become 0 in {low.dtype}, where the next"
            " operator is steep"
        )
        yield _Trouble(DATA_VANISHES, text)
    softmaxes = frozenset(
        node.id for node, operand in readers if operand == 0 and _is_softmax(rows[node.id])
    )
    if softmaxes:
        size = max(abs(measured.maximum), dict(measured.quantiles).get(0.5, 0.0))
        error = size * low.eps / 2
        if error >= _LOGIT_ERROR:
            text = f"{where}: logits near {size:.4g} are off by up to {error:.2g} in {low.dtype}"
            yield _Trouble(DATA_LOGITS, text, softmaxes)


def _is_steep(row: OpFacts | None, operand: int) -> bool:
    """Whether the error of an operand near zero is amplified without bound."""
    if row is None:
        return False
    if row.function in _STEEP_AT_ZERO:
        return _STEEP_AT_ZERO[row.function] == operand
    return Risk.RECIPROCAL in row.risks


def _is_softmax(row: OpFacts | None) -> bool:
    return row is not None and (row.function in _SOFTMAX or Risk.SOFTMAX in row.risks)


def _protect(graph: Graph, value: int, trouble: _Trouble, by_node: dict[int, NamedFinding]) -> None:
    """Add findings for the producer and the readers that run in the value's precision."""
    producer = graph.nodes[graph.values[value].producer]
    readers = [
        graph.nodes[use.node]
        for use in graph.uses[value]
        if graph.nodes[use.node].signature.inputs[use.operand] is Role.GROUP
        and (trouble.readers_only is None or use.node in trouble.readers_only)
    ]
    makes_it = value in producer.outputs and (
        producer.signature.outputs[producer.outputs.index(value)] is Role.GROUP
    )
    for node in [*([producer] if makes_it else []), *readers]:
        if _is_decided(node):
            present = by_node.get(node.id)
            if present is None or (
                present.lifting is not Lifting.NEVER and trouble.lifting is Lifting.NEVER
            ):
                cause = None if node is producer else producer.name
                by_node[node.id] = NamedFinding(
                    node=node.name,
                    rule=trouble.rule,
                    because=trouble.because,
                    cause=cause,
                    lifting=trouble.lifting,
                )


def _is_decided(node: Node) -> bool:
    return node.signature.dtype is not None and node.kind in (Kind.OP, Kind.TIE)
