"""Removal of quantized units that are not between two matmuls or convolutions with weights: alone,
they cost more conversions than they save. A matmul of two activations is treated likewise: both
operands would be quantized at run time, its softmax stays in floats, and its errors affect every
token. Measured: docs/figures/int8-accuracy.md, "INT8 on trained networks".

Source: MXNet's "smart" mode of its quantization pass: an operator that is no matmul or convolution
is quantized only on a path of such operators between two of them. Here the path may also contain
elementwise float operators: residual sums before a norm with given statistics are included. Norms
that compute their own statistics (LayerNormalization) end the path: there the sums stay in floats,
as their errors affect every token.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import HEAVY, Cost, OpFacts, Transfer


def between_products(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    units: Sequence[QuantizedUnit],
    free: Collection[int],
) -> tuple[QuantizedUnit, ...]:
    """The units of matmuls and convolutions with weights, and of the others those that read only
    outputs of retained units and lead to such a matmul or convolution. `free`: values whose
    quantization costs nothing, which count as outputs of the unit that they are computed from.
    """
    products = {index for index, unit in enumerate(units) if _is_product(rows, unit)}
    maker = {
        value: index
        for index, unit in enumerate(units)
        for number in unit.nodes
        for value in _made(graph, number)
    }
    every = range(len(graph.values))
    above, behind = (
        {
            index: [_source(graph, rows, maker, read.value, passed) for read in unit.reads]
            for index, unit in enumerate(units)
        }
        for passed in (free, every)
    )
    live, dropped = {*range(len(units))}, {-1}
    while dropped:  # each round removes units isolated by the previous one
        leads_on = _led_to(
            products,
            {index: [source for source in behind[index] if source in live] for index in live},
        )
        dropped = {
            index
            for index in live - products
            if index not in leads_on or not all(source in live for source in above[index])
        }
        live -= dropped
    return tuple(unit for index, unit in enumerate(units) if index in live)


def _is_product(rows: Sequence[OpFacts | None], unit: QuantizedUnit) -> bool:
    row = rows[unit.nodes[0]]
    return (
        row is not None and row.cost in HEAVY and any(read.operand.is_weight for read in unit.reads)
    )


def _made(graph: Graph, number: int) -> Iterable[int]:
    return (value for value in graph.nodes[number].outputs if value is not None)


def _source(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    maker: Mapping[int, int],
    value: int,
    passed: Container[int],
) -> int | None:
    """The unit that a value is from, through elementwise operators on one variable with results in
    `passed`; None if there is none.
    """
    while value not in maker:
        node = graph.nodes[graph.values[value].producer]
        row = rows[node.id]
        operands = [
            operand
            for operand in node.inputs
            if operand is not None and operand not in graph.constants
        ]
        if row is not None and row.transfer is Transfer.GIVEN_STATISTICS:
            # Statistics may be state, which is no constant.
            operands = [each for each in operands if len(graph.shapes.get(each) or ()) != 1]
        if value not in passed or not _is_by_number(node, row) or len(operands) != 1:
            return None
        (value,) = operands
    return maker[value]


def _is_by_number(node: Node, row: OpFacts | None) -> bool:
    """Whether an operator is elementwise in its data operand."""
    is_pointwise = row is not None and (
        row.cost is Cost.POINTWISE or row.transfer is Transfer.GIVEN_STATISTICS
    )
    return node.kind is Kind.OP and is_pointwise


def _led_to(starts: Iterable[int], reached: Mapping[int, Iterable[int | None]]) -> set[int]:
    """Units reachable from the starts in one or more steps."""
    visited, waiting = set[int](), [*starts]
    while waiting:
        for index in reached[waiting.pop()]:
            if index is not None and index not in visited:
                visited.add(index)
                waiting.append(index)
    return visited
