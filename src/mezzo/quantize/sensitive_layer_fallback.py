"""Float fallback of sensitive layers: small matmuls and convolutions with much of the INT8 error,
often the first and last.

Squared errors of layers add up, so all candidates are tried together first; then halves and
quarters of them are quantized again as long as that adds little error.
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

# Limits on a fallback: its share of the work of all layers, and the least squared error that each
# removes.
_WORK, _LEAST = 0.01, 0.05
# If weights exceed a core's cache in FP32, each is read from memory per call, which counts as this
# many multiplications. Chosen, not measured: on VGG-16 with one image the last two layers' 21e6
# weights took 24 ms longer in FP32 than in INT8, and all 15e9 products in INT8 take 21.
_CACHED, _READ = 1 << 18, 64
# Limits on the candidates, smallest first, on samples to try them on, and on how often candidates
# are halved: all together take little time, and each trial plans and runs the model.
_MOST, _SAMPLES, _HALVINGS = 32, 8, 2
# A price that no speedup outweighs.
_NEVER = 1 << 40
_BECAUSE = "a product so small brings next to no time, and much of the error"

Nodes = tuple[int, ...]
T = TypeVar("T")


class Left(NamedTuple):
    """Options that keep layers in floats, their names, and their largest share of the work."""

    options: Options
    names: tuple[str, ...]
    share: float


class _Product(NamedTuple):
    """A layer's multiplications, at assumed and minimal lengths of open axes, and weights."""

    multiplied: int
    multiplied_for_one: int
    weights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Light:
    """A small quantized layer with the nodes fused with it, and its share of the work."""

    name: str
    nodes: Nodes
    share: float


def with_floats_left(model: Model, options: Options, seen: Dataset) -> Left | None:
    """The options with those of the smallest layers in floats that each cause much of the squared
    error on the data. None if there are none, or if other layers would change precision too.

    Raises InputError: the data does not fit the model.
    """
    decided, result = convert_model(model, options, None)
    light = _light_products(model, options, decided)
    if not light:
        return None
    few = Trials(Dataset(seen.name, lambda: _first(seen), seen.seed))
    whole = few.errors_of(model, result)

    def square_without(left: Sequence[_Light]) -> float:
        """The squared error with these layers in floats, relative to that with none."""
        changed, artifact = convert_model(model, _leaving(options, decided, left), None)
        return (
            _over(few.errors_of(model, artifact), whole)
            if _keeps_others(decided, changed, left)
            else np.inf
        )

    chosen = worth_leaving(light, square_without)
    if not chosen:
        return None
    return Left(
        _leaving(options, decided, chosen),
        tuple(layer.name for layer in chosen),
        sum(layer.share for layer in chosen),
    )


def worth_leaving(
    light: Sequence[T], square_without: Callable[[Sequence[T]], float]
) -> tuple[T, ...]:
    """The layers that each, or in a group of a quarter, cause much of the squared error.
    `square_without`: the relative squared error that remains without some.
    """
    every = square_without(light)
    if every > 1 - _LEAST:
        return ()

    def needed(part: Sequence[T], others: Sequence[T], least: float, halvings: int) -> list[T]:
        """The layers of a part that must be in floats, if `others` are; `least`: the squared error
        with both in floats.
        """
        without = square_without(others) if others else 1.0
        if without - least < _LEAST:
            return []
        if len(part) == 1 or not halvings:
            return [*part]
        first, second = part[: len(part) // 2], part[len(part) // 2 :]
        required = needed(first, [*others, *second], least, halvings - 1)
        in_floats = [*others, *required]
        rest = square_without([*in_floats, *second]) if len(required) < len(first) else least
        return [*required, *needed(second, in_floats, rest, halvings - 1)]

    return tuple(needed(light, [], every, _HALVINGS))


def _first(data: Dataset) -> Iterator[Batch]:
    """Batches until there are `_SAMPLES` samples."""
    samples = 0
    for batch in data:
        yield batch
        samples += batch.samples
        if samples >= _SAMPLES:
            return


def _over(errors: Errors, whole: Errors) -> float:
    return (errors.root / whole.root) ** 2 if whole.root > 0 else np.inf


def _light_products(model: Model, options: Options, decided: Decided) -> list[_Light]:
    """The smallest quantized layers that are small together."""
    graph, line = decided.reading.graph, decided.problem.line
    quantizing = judge_model(model, options)[1].quantizing
    assert quantizing is not None, "asked where something is quantized"
    products = {
        unit.nodes: _product(graph, graph.nodes[unit.nodes[0]]) for unit in quantizing.units
    }
    light: list[_Light] = []
    left = 0.0
    for share, nodes in sorted(zip(_shares([*products.values()]), products, strict=True)):
        if share == 0 or decided.levels[nodes[0]] != line.quantized:
            continue
        left += share
        if left > _WORK or len(light) == _MOST:
            break
        light.append(_Light(name=graph.nodes[nodes[0]].name, nodes=nodes, share=share))
    return light


def _shares(products: Sequence[_Product]) -> list[float]:
    """Each layer's share of the time, for many samples or for one, whichever is larger."""
    reads = _READ if sum(layer.weights for layer in products) > _CACHED else 0
    many = [layer.multiplied for layer in products]
    single = [max(layer.multiplied_for_one, reads * layer.weights) for layer in products]
    whole_many, whole_single = (max(sum(works), 1) for works in (many, single))
    return [max(a / whole_many, b / whole_single) for a, b in zip(many, single, strict=True)]


def _product(graph: Graph, node: Node) -> _Product:
    """The multiplications and weights of a layer; zeros if unknown."""
    product, output = layout_of(graph, node), node.outputs[0]
    if product is None or output is None or node.scope:
        return _Product(0, 0, 0)
    shape = graph.shapes[node.inputs[1]] if node.inputs[1] is not None else ()
    weights = np.broadcast_to(np.float32(0), [size or 1 for size in shape])
    _, summed, _ = product.columns(weights).shape
    elements = int(graph.columns.value_elements[output])
    for_one = (
        math.prod(size or 1 for size in graph.shapes[output])
        if output in graph.shapes
        else elements
    )
    return _Product(elements * int(summed), for_one * int(summed), weights.size)


def _leaving(options: Options, decided: Decided, left: Sequence[_Light]) -> Options:
    """The options that keep layers out of INT8, by a price instead of a verdict: another low format
    may still be chosen.
    """
    line, nodes = decided.problem.line, decided.reading.graph.nodes
    assert line.quantized is not None, "asked where something is quantized"
    dtype = line.dtypes[line.quantized]
    prices = {
        nodes[node].name: ErrorPrice(_NEVER, _BECAUSE) for layer in left for node in layer.nodes
    }
    prices_by_format = {
        **options.planning.error_prices,
        dtype: {**options.planning.error_prices.get(dtype, {}), **prices},
    }
    return replace(options, planning=replace(options.planning, error_prices=prices_by_format))


def _keeps_others(before: Decided, after: Decided, left: Sequence[_Light]) -> bool:
    """Whether all other layers keep their precision."""
    gone = {node for layer in left for node in layer.nodes}
    graph = before.reading.graph
    return len(graph.nodes) == len(after.reading.graph.nodes) and all(
        before.levels[node.id] == after.levels[node.id]
        for node in graph.nodes
        if node.id not in gone and layout_of(graph, node) is not None
    )
