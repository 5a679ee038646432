"""Bias correction: restores the float mean of each output channel, layer by layer in execution
order, so that each correction includes the effect of earlier ones. Layers are matmuls and
convolutions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import EMULATED
from mezzo.contracts.reading import Artifact, Reading
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Use
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.numerics.data.splits import cut
from mezzo.planner.choices.quantized_parameters import name_offset
from mezzo.quantize.arithmetic.correction import corrected_bias
from mezzo.quantize.arithmetic.parameters import is_guarded
from mezzo.quantize.arithmetic.products import Convolution, Floats
from mezzo.quantize.product_layouts import is_own_constant, layout_of

# Samples for the means, in one pass per layer.
_SAMPLES = 64

# Converts the model by the plan, with these bias corrections.
Make = Callable[[Sequence[Correction]], Artifact]


def corrected_biases(
    model: Model,
    planned: Reading,
    nodes: Sequence[int],
    known: Mapping[str, Quantization],
    dataset: Dataset,
    make: Make,
) -> tuple[Correction, ...]:
    """Bias corrections of quantized layers, given as node ids of `planned`.

    `known`: quantization parameters by value name; a bias that would take too much of the INT32
    range is not corrected.
    """
    graph = planned.graph
    batches, corrections = [*_few(dataset)], list[Correction]()
    result: Artifact | None = None
    for node in nodes:
        place = bias_of(graph, node)
        if place is None:
            continue
        if result is None:
            result = make(corrections)
        shift = _moved(model, result, graph.values[place.made].name, place.axis, batches)
        if shift is None or not shift.any() or not _is_held(model, planned, place, known, shift):
            continue
        added = tuple(map(float, shift))
        corrections.append(
            Correction(value=graph.values[place.bias].name, axis=place.along, added=added)
        )
        result = None
    return tuple(corrections)


def _is_held(
    model: Model,
    planned: Reading,
    place: "LayerBias",
    quantized: Mapping[str, Quantization],
    shift: Floats,
) -> bool:
    """Whether a shifted bias is finite, and within its guard of the INT32 range."""
    reading = model.read(*planned.lows, version=planned.version)
    (numbers,) = (array.reshape(-1) for _, array in model.weights(reading, [place.bias]))
    with np.errstate(over="ignore"):
        corrected = numbers + shift
    how = quantized.get(name_offset(planned.graph, place.use))
    return bool(np.isfinite(corrected).all()) and (how is None or is_guarded(corrected, how))


class LayerBias(NamedTuple):
    """The bias of a layer: the layer's output with the bias added, and its channel axis; the bias
    value, the use that reads it, and the bias's axis.
    """

    made: int
    axis: int
    bias: int
    use: Use
    along: int


def bias_of(graph: Graph, number: int) -> LayerBias | None:
    """A layer's per-channel bias that has no other reader; None if there is none."""
    node = graph.nodes[number]
    product, output = layout_of(graph, node), node.outputs[0]
    if product is None or output is None or node.scope or node.attributes.get("beta", 1.0) != 1.0:
        return None
    use = Use(number, 2)
    if node.op == "MatMul":  # MatMul has no bias operand: an Add directly after it is the bias
        uses = graph.uses[output]
        reader = graph.nodes[uses[0].node] if len(uses) == 1 else None
        if reader is None or reader.op != "Add" or reader.outputs[0] is None:
            return None
        output, use = reader.outputs[0], Use(reader.id, 1 - uses[0].operand)
    operands = graph.nodes[use.node].inputs
    bias = operands[use.operand] if use.operand < len(operands) else None
    if bias is None or not is_own_constant(graph, bias) or bias not in graph.shapes:
        return None
    shape, made_shape = graph.shapes[bias], graph.shapes.get(output)
    axis = 1 if isinstance(product, Convolution) else -1
    if not shape or any(size != 1 for size in shape[:-1]):
        return None
    if made_shape is not None and made_shape[axis] not in (None, shape[-1]):
        return None  # one number for all channels
    return LayerBias(output, axis, bias, use, len(shape) - 1)


def _few(dataset: Dataset) -> Iterator[Batch]:
    """The first `_SAMPLES` samples."""
    left = _SAMPLES
    for batch in dataset:
        if left <= 0:
            return
        yield cut(batch, 0, left) if batch.samples > left and _is_cut(batch) else batch
        left -= batch.samples


def _is_cut(batch: Batch) -> bool:
    return all(
        getattr(feed, "ndim", 0) and len(feed) == batch.samples for feed in batch.feeds.values()
    )


def _moved(
    model: Model, result: Artifact, name: str, axis: int, batches: Sequence[Batch]
) -> Floats | None:
    """The bias correction per channel of a value; None if the two cannot be compared."""
    pair = lab_of(model).pair(model.runnable(result), EMULATED)
    layers = pair.layers()
    if name not in layers:
        return None
    sessions, means = pair.load({name: layers[name]}), list[tuple[Floats, Floats]]()
    for batch in batches:
        sides = [
            np.moveaxis(np.asarray(side[name], np.float64), axis, -1)
            for side in sessions.run(batch.feeds)
        ]
        if sides[0].shape != sides[1].shape or not sides[0].size:
            return None
        float_mean, int8_mean = (side.reshape(-1, side.shape[-1]).mean(axis=0) for side in sides)
        means.append((float_mean * batch.samples, int8_mean * batch.samples))
    count = sum(batch.samples for batch in batches)
    if not count:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return corrected_bias(
            None, *(np.sum(side, axis=0) / count for side in zip(*means, strict=True))
        )
