"""Small products that bring next to no time and much of the error are left in floats, as the first of a network and the
last often are.

Squares of errors of products add up, so what all of them bring together is tried first, and halves and quarters of them
are given back while that costs next to nothing.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from mezzo.contracts.frontend import Model
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.decided import Decided
from mezzo.conversion.judged_model import judge_model
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.planner.options import Options
from mezzo.planner.plan_options import ErrorPrice
from mezzo.quantize.paired_error_test import Errors, Trials
from mezzo.quantize.product_layouts import layout_of

# What may be left: so much of the work of all products at most, each of which brings so much of the squared error.
_WORK, _LEAST = 0.01, 0.05
# Where there are more weights than a core's cache holds in FP32, each is read from memory for every call, which counts
# as so many products of numbers. Chosen, not measured: on VGG-16 with one image the last two products' 21e6 weights
# took 24 ms longer in FP32 than in INT8, and all 15e9 products in INT8 take 21.
_CACHED, _READ = 1 << 18, 64
# Products that are tried at most, the smallest first, samples that they are tried on, of the first batches, and how
# often they are halved: all of them together bring next to no time, and each trial plans and runs the model.
_MOST, _SAMPLES, _HALVINGS = 32, 8, 2
# No gain outweighs it.
_NEVER = 1 << 40
_BECAUSE = "a product so small brings next to no time, and much of the error"

Nodes = tuple[int, ...]
T = TypeVar("T")


class Left(NamedTuple):
    """Options that leave products in floats, their names, and what they are at most of the work of all products."""

    options: Options
    names: tuple[str, ...]
    share: float


class _Product(NamedTuple):
    """How many numbers a product multiplies, a free axis counting as it does everywhere, how many where it is 1 long,
    and how many weights are read for them.
    """

    multiplied: int
    multiplied_for_one: int
    weights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Light:
    """A small product as it is quantized now, with what runs as one with it, and its share of all work."""

    name: str
    nodes: Nodes
    share: float


def with_floats_left(model: Model, options: Options, seen: Dataset) -> Left | None:
    """The options with the smallest products in floats, of those each of which brings much of the squared error on
    data. None where none does, or another product would have to follow.

    Raises InputError: the data does not fit the model.
    """
    decided, result = convert_model(model, options, None)
    light = _light_products(model, options, decided)
    if not light:
        return None
    few = Trials(Dataset(seen.name, lambda: _first(seen), seen.seed))
    whole = few.errors_of(model, result)

    def square_without(left: Sequence[_Light]) -> float:
        """The squared error where so many are left in floats, over that where none is."""
        changed, made = convert_model(model, _leaving(options, decided, left), None)
        return _over(few.errors_of(model, made), whole) if _keeps_others(decided, changed, left) else np.inf

    chosen = worth_leaving(light, square_without)
    if not chosen:
        return None
    return Left(_leaving(options, decided, chosen), tuple(one.name for one in chosen), sum(one.share for one in chosen))


def worth_leaving(light: Sequence[T], square_without: Callable[[Sequence[T]], float]) -> tuple[T, ...]:
    """Those of which each, or the quarter that it is in, brings much of the squared error; `square_without`: what is
    left of 1 without some.
    """
    every = square_without(light)
    if every > 1 - _LEAST:
        return ()

    def needed(part: Sequence[T], others: Sequence[T], least: float, halvings: int) -> list[T]:
        """Of a part those that have to be left, where the others are; with both the square is `least`."""
        without = square_without(others) if others else 1.0
        if without - least < _LEAST:
            return []
        if len(part) == 1 or not halvings:
            return [*part]
        first, second = part[: len(part) // 2], part[len(part) // 2 :]
        kept = needed(first, [*others, *second], least, halvings - 1)
        held = [*others, *kept]
        rest = square_without([*held, *second]) if len(kept) < len(first) else least
        return [*kept, *needed(second, held, rest, halvings - 1)]

    return tuple(needed(light, [], every, _HALVINGS))


def _first(data: Dataset) -> Iterator[Batch]:
    """Batches until there are samples enough."""
    samples = 0
    for batch in data:
        yield batch
        samples += batch.samples
        if samples >= _SAMPLES:
            return


def _over(errors: Errors, whole: Errors) -> float:
    return (errors.root / whole.root) ** 2 if whole.root > 0 else np.inf


def _light_products(model: Model, options: Options, decided: Decided) -> list[_Light]:
    """The smallest products that run quantized, as far as all of them together are small."""
    graph, line = decided.reading.graph, decided.problem.line
    quantizing = judge_model(model, options)[1].quantizing
    assert quantizing is not None, "asked where something is quantized"
    products = {unit.nodes: _product(graph, graph.nodes[unit.nodes[0]]) for unit in quantizing.units}
    found: list[_Light] = []
    left = 0.0
    for share, nodes in sorted(zip(_shares([*products.values()]), products, strict=True)):
        if share == 0 or decided.levels[nodes[0]] != line.quantized:
            continue
        left += share
        if left > _WORK or len(found) == _MOST:
            break
        found.append(_Light(name=graph.nodes[nodes[0]].name, nodes=nodes, share=share))
    return found


def _shares(products: Sequence[_Product]) -> list[float]:
    """Of the time of all products what each takes: with many samples or with one, whichever is more."""
    reads = _READ if sum(one.weights for one in products) > _CACHED else 0
    many = [one.multiplied for one in products]
    single = [max(one.multiplied_for_one, reads * one.weights) for one in products]
    whole_many, whole_single = (max(sum(works), 1) for works in (many, single))
    return [max(a / whole_many, b / whole_single) for a, b in zip(many, single, strict=True)]


def _product(graph: Graph, node: Node) -> _Product:
    """What a product with weights multiplies and reads; nothing where that is unknown."""
    product, made = layout_of(graph, node), node.outputs[0]
    if product is None or made is None or node.scope:
        return _Product(0, 0, 0)
    shape = graph.shapes[node.inputs[1]] if node.inputs[1] is not None else ()
    weights = np.broadcast_to(np.float32(0), [size or 1 for size in shape])
    _, summed, _ = product.columns(weights).shape
    elements = int(graph.columns.value_elements[made])
    for_one = math.prod(size or 1 for size in graph.shapes[made]) if made in graph.shapes else elements
    return _Product(elements * int(summed), for_one * int(summed), weights.size)


def _leaving(options: Options, decided: Decided, left: Sequence[_Light]) -> Options:
    """The options by which products are not quantized. A price and no verdict: another low format may take them."""
    line, nodes = decided.problem.line, decided.reading.graph.nodes
    assert line.quantized is not None, "asked where something is quantized"
    dtype = line.dtypes[line.quantized]
    prices = {nodes[node].name: ErrorPrice(_NEVER, _BECAUSE) for one in left for node in one.nodes}
    held = {**options.planning.error_prices, dtype: {**options.planning.error_prices.get(dtype, {}), **prices}}
    return replace(options, planning=replace(options.planning, error_prices=held))


def _keeps_others(before: Decided, after: Decided, left: Sequence[_Light]) -> bool:
    """Whether every other product runs as it did."""
    gone = {node for one in left for node in one.nodes}
    graph = before.reading.graph
    return len(graph.nodes) == len(after.reading.graph.nodes) and all(
        before.levels[node.id] == after.levels[node.id]
        for node in graph.nodes
        if node.id not in gone and layout_of(graph, node) is not None
    )
