"""Biases that bring the mean of each channel to where it is in floats, product by product, in the order in which they
compute: what one corrects, the next ones no longer see.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import EMULATED
from mezzo.contracts.reading import Artifact, Reading
from mezzo.conversion.results import lab_of
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Use
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.numerics.data.splits import cut
from mezzo.planner.choices.quantizing import name_offset
from mezzo.quantize.arithmetic.correction import corrected_bias
from mezzo.quantize.arithmetic.parameters import is_guarded
from mezzo.quantize.arithmetic.products import Convolution, Floats
from mezzo.quantize.product_layouts import is_own_constant, layout_of

# Samples that means are of, in one pass for each product.
_SAMPLES = 64

# The result of the plan with these biases corrected.
Make = Callable[[Sequence[Correction]], Artifact]


def corrected_biases(
    model: Model,
    planned: Reading,
    nodes: Sequence[int],
    known: Mapping[str, Quantization],
    dataset: Dataset,
    make: Make,
) -> tuple[Correction, ...]:
    """Corrections of the biases of products that run quantized, by node id, of a reading of the model.

    `known`: how values are held, by name; a bias that would take too much of an INT32 sum is left as it is.
    """
    graph = planned.graph
    batches, found = [*_few(dataset)], list[Correction]()
    result: Artifact | None = None
    for node in nodes:
        place = bias_of(graph, node)
        if place is None:
            continue
        if result is None:
            result = make(found)
        moved = _moved(model, result, graph.values[place.made].name, place.axis, batches)
        if moved is None or not moved.any() or not _is_held(model, planned, place, known, moved):
            continue
        added = tuple(map(float, moved))
        found.append(Correction(value=graph.values[place.bias].name, axis=place.along, added=added))
        result = None
    return tuple(found)


def _is_held(model: Model, planned: Reading, place: "Place", known: Mapping[str, Quantization], moved: Floats) -> bool:
    """Whether a bias is finite once it is moved, and takes no more of an INT32 sum than its guard allows."""
    reading = model.read(planned.low, planned.version)
    (numbers,) = (held.reshape(-1) for _, held in model.weights(reading, [place.bias]))
    with np.errstate(over="ignore"):
        corrected = numbers + moved
    how = known.get(name_offset(planned.graph, place.use))
    return bool(np.isfinite(corrected).all()) and (how is None or is_guarded(corrected, how))


class Place(NamedTuple):
    """Of a product: what it makes with its bias, the axis of its channels; the bias, who reads it, and its axis."""

    made: int
    axis: int
    bias: int
    use: Use
    along: int


def bias_of(graph: Graph, number: int) -> Place | None:
    """Where the bias of a product is that nobody else reads, a number for each channel; None where it has none."""
    node = graph.nodes[number]
    product, made = layout_of(graph, node), node.outputs[0]
    if product is None or made is None or node.scope or node.attributes.get("beta", 1.0) != 1.0:
        return None
    use = Use(number, 2)
    if node.op == "MatMul":  # what an Add right behind it adds
        uses = graph.uses[made]
        reader = graph.nodes[uses[0].node] if len(uses) == 1 else None
        if reader is None or reader.op != "Add" or reader.outputs[0] is None:
            return None
        made, use = reader.outputs[0], Use(reader.id, 1 - uses[0].operand)
    operands = graph.nodes[use.node].inputs
    bias = operands[use.operand] if use.operand < len(operands) else None
    if bias is None or not is_own_constant(graph, bias) or bias not in graph.shapes:
        return None
    shape = graph.shapes[bias]
    if not shape or any(size != 1 for size in shape[:-1]):
        return None
    return Place(made, 1 if isinstance(product, Convolution) else -1, bias, use, len(shape) - 1)


def _few(dataset: Dataset) -> Iterator[Batch]:
    """The first samples."""
    left = _SAMPLES
    for batch in dataset:
        if left <= 0:
            return
        yield cut(batch, 0, left) if batch.samples > left and _is_cut(batch) else batch
        left -= batch.samples


def _is_cut(batch: Batch) -> bool:
    return all(getattr(one, "ndim", 0) and len(one) == batch.samples for one in batch.feeds.values())


def _moved(model: Model, result: Artifact, name: str, axis: int, batches: Sequence[Batch]) -> Floats | None:
    """By how much the mean of each channel of a value lies above the result's; None where it cannot be seen."""
    pair = lab_of(model).pair(model.runnable(result), EMULATED)
    layers = pair.layers()
    if name not in layers:
        return None
    sessions, means = pair.load({name: layers[name]}), list[tuple[Floats, Floats]]()
    for batch in batches:
        sides = [np.moveaxis(np.asarray(side[name], np.float64), axis, -1) for side in sessions.run(batch.feeds)]
        if sides[0].shape != sides[1].shape or not sides[0].size:
            return None
        wanted, found = (side.reshape(-1, side.shape[-1]).mean(axis=0) for side in sides)
        means.append((wanted * batch.samples, found * batch.samples))
    count = sum(batch.samples for batch in batches)
    if not count:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return corrected_bias(None, *(np.sum(side, axis=0) / count for side in zip(*means, strict=True)))
