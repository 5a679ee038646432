"""Which quantized units stand between products with weights: those that gain little by themselves spare conversions
there alone. A product of two activations is one of them: both its operands have to be quantized as the model runs, its
softmax stays in floats, and its errors reach every token. Measured: docs/figures.md, "INT8 on trained networks".

Source: MXNet's "smart" mode of its quantization pass: what is no product runs quantized only where a chain of its like
leads to a product on both sides. Here the chain passes what computes number by number in floats on its way to a product
too: residual sums before a norm of given statistics lead on. They do not past a norm that makes its own
(LayerNormalization): there the sums stay in floats, as their errors reach every token.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import HEAVY, Cost, OpFacts, Transfer


def between_products(
    graph: Graph, rows: Sequence[OpFacts | None], units: Sequence[QuantizedUnit]
) -> tuple[QuantizedUnit, ...]:
    """The units of products with weights, and of the others those that read nothing but what kept units make, and that
    a chain of kept units leads on to a product.
    """
    products = {at for at, unit in enumerate(units) if _is_product(rows, unit)}
    maker = {value: at for at, unit in enumerate(units) for number in unit.nodes for value in _made(graph, number)}
    above = {at: [maker.get(read.value) for read in unit.reads] for at, unit in enumerate(units)}
    behind = {
        at: [maker.get(value) for read in unit.reads for value in _sources(graph, rows, maker, read.value)]
        for at, unit in enumerate(units)
    }
    kept, dropped = {*range(len(units))}, {-1}
    while dropped:  # each round takes out those that the round before has cut off
        leads_on = _led_to(products, {at: [one for one in behind[at] if one in kept] for at in kept})
        dropped = {at for at in kept - products if at not in leads_on or not all(one in kept for one in above[at])}
        kept -= dropped
    return tuple(unit for at, unit in enumerate(units) if at in kept)


def _is_product(rows: Sequence[OpFacts | None], unit: QuantizedUnit) -> bool:
    row = rows[unit.nodes[0]]
    return row is not None and row.cost in HEAVY and any(read.operand.is_weight for read in unit.reads)


def _made(graph: Graph, number: int) -> Iterable[int]:
    return (value for value in graph.nodes[number].outputs if value is not None)


def _sources(graph: Graph, rows: Sequence[OpFacts | None], made: Container[int], value: int) -> Iterator[int]:
    """A value that a unit makes, and else what it comes of, number by number, from one value that is no constant."""
    while value not in made:
        node = graph.nodes[graph.values[value].producer]
        operands = [one for one in node.inputs if one is not None and one not in graph.constants]
        if not _is_by_number(node, rows[node.id]) or len(operands) != 1:
            return
        (value,) = operands
    yield value


def _is_by_number(node: Node, row: OpFacts | None) -> bool:
    """Whether an operator computes each number of its result from one number of its data."""
    is_pointwise = row is not None and (row.cost is Cost.POINTWISE or row.transfer is Transfer.GIVEN_STATISTICS)
    return node.kind is Kind.OP and is_pointwise


def _led_to(starts: Iterable[int], reached: Mapping[int, Iterable[int | None]]) -> set[int]:
    """What is reached from the starts in one step or more."""
    found, waiting = set[int](), [*starts]
    while waiting:
        for at in reached[waiting.pop()]:
            if at is not None and at not in found:
                found.add(at)
                waiting.append(at)
    return found
