"""Which quantized units stand between products: those that gain little by themselves spare conversions there alone.

Source: MXNet's "smart" mode of its quantization pass: what is no product runs quantized only where a chain of its like
leads to a product on both sides.
"""

from collections.abc import Iterable, Mapping, Sequence

from mezzo.core.facts import HEAVY, OpFacts
from mezzo.core.graph import Graph
from mezzo.units.quantized import QuantizedUnit


def between_products(
    graph: Graph, rows: Sequence[OpFacts | None], units: Sequence[QuantizedUnit]
) -> tuple[QuantizedUnit, ...]:
    """The units of products, and of the others those that a chain of units leads to a product on both sides."""
    products = {at for at, unit in enumerate(units) if _is_product(rows, unit)}
    maker = {value: at for at, unit in enumerate(units) for number in unit.nodes for value in _made(graph, number)}
    above = {at: {maker[read.value] for read in unit.reads if read.value in maker} for at, unit in enumerate(units)}
    below: dict[int, set[int]] = {at: set() for at in range(len(units))}
    for at, before in above.items():
        for one in before:
            below[one].add(at)
    has_above, has_below = (_led_to(products, reached, len(units)) for reached in (below, above))
    return tuple(unit for at, unit in enumerate(units) if at in products or (at in has_above and at in has_below))


def _is_product(rows: Sequence[OpFacts | None], unit: QuantizedUnit) -> bool:
    row = rows[unit.nodes[0]]
    return row is not None and row.cost in HEAVY


def _made(graph: Graph, number: int) -> Iterable[int]:
    return (value for value in graph.nodes[number].outputs if value is not None)


def _led_to(starts: Iterable[int], reached: Mapping[int, Iterable[int]], count: int) -> set[int]:
    """What is reached from the starts in one step or more."""
    found, waiting = set[int](), [*starts]
    while waiting:
        for at in reached[waiting.pop()]:
            if at not in found:
                found.add(at)
                waiting.append(at)
    return found
