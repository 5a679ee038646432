"""Smooth quant: moves activation outliers into the weights that read them, by a factor per channel
in constants alone: the producer is divided by it, the weights are multiplied.

The producer needs per-channel constants (a norm, Mul, matmul or convolution), may have a Relu after
it, and its constants and result must have no other readers. The strength is chosen per value by the
error of its reading layers on data.

Source: Xiao et al., "SmoothQuant", 2023; Nagel et al., "Data-Free Quantization", 2019, for
consecutive layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.contracts.calibrator import Grid, Range
from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.reading import Reading
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.numerics.data.datasets import Dataset
from mezzo.planner.options import Options
from mezzo.quantize.arithmetic.arithmetic import laid, round_trip
from mezzo.quantize.arithmetic.correction import smoothing_scales
from mezzo.quantize.arithmetic.parameters import parameters_for
from mezzo.quantize.arithmetic.products import Convolution, Floats, Matrix, Product
from mezzo.quantize.arithmetic.weights import weight_grid, weight_parameters
from mezzo.quantize.paired_error_test import Errors
from mezzo.quantize.product_layouts import is_own_constant, weight_of
from mezzo.tables.quantized_kernels import Operand

# Candidate strengths from 0 to 1, without 0, which changes nothing.
_ALPHAS = (0.35, 0.5, 0.65, 0.8, 1.0)
# Minimum relative reduction of the layers' error, on the data that the strength is chosen on.
_LEAST_GAIN = 0.05
# Elements of a value stored for the choice, and rows on which a layer is tried.
_KEPT, _ROWS = 1 << 20, 1024
# Output elements of one batched matmul.
_TOGETHER = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledValue:
    """A value to scale per channel. `made`: its producer's constants and channel axes. `read`: its
    readers' weights.
    """

    value: int
    axis: int
    made: tuple[tuple[int, int], ...]
    read: tuple["_Reader", ...]


class _Reader(NamedTuple):
    """A weight (value id) that reads the channels: layer, how its kernel reads it, axis of its
    scales, channel axis.
    """

    weight: int
    product: Product
    operand: Operand
    axis: int | None
    channels: int


@dataclass(slots=True, kw_only=True)
class _Seen:
    """Statistics of a value: the range of each channel, and some samples."""

    low: Floats | None = None
    high: Floats | None = None
    kept: list[Floats] = field(default_factory=list)
    size: int = 0
    batches: int = 0

    def add(self, numbers: Floats, axis: int) -> None:
        axis %= numbers.ndim
        others = tuple(at for at in range(numbers.ndim) if at != axis)
        low, high = numbers.min(axis=others), numbers.max(axis=others)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)
        for sample in np.split(numbers, len(numbers)) if numbers.ndim > 1 else [numbers]:
            if self.size + sample.size > _KEPT // 4 * (1 + self.batches) and self.kept:
                break  # a share of each of the first batches
            self.kept.append(sample.copy())
            self.size += sample.size
        self.batches = min(self.batches + 1, 3)


def smoothed(
    model: Model, options: Options, data: Dataset, held_out: Dataset
) -> tuple[Correction, ...]:
    """The SmoothQuant corrections of values whose reading layers have a smaller error on `data`,
    and significantly so on `held_out`; empty if there are none.

    Raises InputError: the data does not fit the model.
    """
    reading, judged = judge_model(model, options)
    assert judged.quantizing is not None and options.planning.quantized is not None, (
        "asked once values have parameters"
    )
    graph, quantized = reading.graph, options.planning.quantized
    places = [
        place
        for place in find_places(graph, judged.quantizing.units)
        if graph.values[place.value].name in quantized
    ]
    if not places:
        return ()
    statistics, held_out_statistics = (
        _watch(model, reading, places, dataset) for dataset in (data, held_out)
    )
    corrections: list[Correction] = []
    for place in places:
        weights = dict(model.weights(reading, [reader.weight for reader in place.read]))
        trial = _Trial(
            place, statistics[place.value], weights, quantized[graph.values[place.value].name]
        )
        factors = trial.best()
        if factors is not None and trial.is_shown(factors, held_out_statistics[place.value].kept):
            corrections += scaling_corrections(graph, place, factors)
    return tuple(corrections)


def _watch(
    model: Model, planned: Reading, places: Sequence[ScaledValue], dataset: Dataset
) -> dict[int, _Seen]:
    axes = {place.value: place.axis for place in places}
    statistics = {value: _Seen() for value in axes}
    show = lab_of(model).observer(model.read(*planned.lows, version=planned.version), [*axes])
    for batch in dataset:
        for shown in show(batch.feeds):
            if shown.numbers.size and np.isfinite(shown.numbers).all():
                statistics[shown.value].add(shown.numbers, axes[shown.value])
    return statistics


def scaling_corrections(graph: Graph, place: ScaledValue, factors: Floats) -> Iterator[Correction]:
    """Divide the producer's constants by the factors, and multiply the weights."""
    inverse = tuple(map(float, np.float32(1) / factors))
    for value, axis in place.made:
        yield Correction(value=graph.values[value].name, axis=axis, factors=inverse)
    for reader in place.read:
        name = graph.values[reader.weight].name
        yield Correction(value=name, axis=reader.channels, factors=tuple(map(float, factors)))


@dataclass(frozen=True, slots=True)
class _Trial:
    """Evaluates channel factors on the samples of a value."""

    place: ScaledValue
    seen: _Seen
    weights: Mapping[int, Floats]
    how: Quantization

    def best(self) -> Floats | None:
        """The best candidate divisors of the channels; None if the gain is too small."""
        place, statistics, weights = self.place, self.seen, self.weights
        if statistics.low is None or statistics.high is None or len(weights) < len(place.read):
            return None
        of_weights = np.max(
            [_largest(weights[each.weight], each.channels) for each in place.read], axis=0
        )
        largest = np.maximum(-statistics.low, statistics.high)
        candidates = [smoothing_scales(largest, of_weights, alpha) for alpha in _ALPHAS]
        as_it_is, *errors = (
            each.root for each in self.errors([np.ones_like(largest), *candidates], statistics.kept)
        )
        best = int(np.argmin(errors))
        return candidates[best] if errors[best] < (1 - _LEAST_GAIN) * as_it_is else None

    def is_shown(self, factors: Floats, samples: Sequence[Floats]) -> bool:
        """Whether the layers' error on other samples is significantly smaller."""
        before, after = self.errors([np.ones_like(factors), factors], samples)
        return before.falls_to(after)

    def errors(self, candidates: Sequence[Floats], samples: Sequence[Floats]) -> list[Errors]:
        """Errors per sample of all layers that read the value, for each candidate of factors."""
        ways = [self._stored(factors) for factors in candidates]
        squares = np.zeros((len(ways), len(samples)))
        for number, reader in enumerate(self.place.read):
            exact = reader.product.columns(self.weights[reader.weight])
            rows_by_sample = [reader.product.rows(numbers, _ROWS) for numbers in samples]
            for part in _parts(
                [each.shape[1] for each in rows_by_sample], exact.shape[0] * exact.shape[2]
            ):
                # One matmul of many rows is faster than many of few.
                rows = np.concatenate(rows_by_sample[part], axis=1)
                starts = np.cumsum([0, *(each.shape[1] for each in rows_by_sample[part])])[:-1]
                sums = rows @ exact
                for way, (quantization, scaled) in enumerate(ways):
                    factors, stored = scaled[number]
                    off = round_trip(rows / factors, quantization) @ stored
                    off -= sums
                    by_row = np.einsum("grm,grm->r", off, off, dtype=np.float64)
                    squares[way, part] += np.add.reduceat(by_row, starts)
        return [Errors(each) for each in squares]

    def _stored(self, factors: Floats) -> tuple[Quantization, list[tuple[Floats, Floats]]]:
        """The value's parameters with its channels divided by `factors`; and for each layer the
        factors of its inputs, [groups, 1, inputs], and its stored weights, [groups, inputs,
        outputs].
        """
        statistics, how = self.seen, self.how
        assert statistics.low is not None and statistics.high is not None, "it was seen"
        ends = Range(
            float((statistics.low / factors).min()), float((statistics.high / factors).max())
        )
        quantization = parameters_for(
            ends, Grid(dtype=how.dtype, is_symmetric=how.dtype is DType.INT8)
        )
        scaled = []
        for reader in self.place.read:
            weight = self.weights[reader.weight]
            each = np.broadcast_to(laid(factors, weight.ndim, reader.channels), weight.shape)
            multiplied = weight * each
            grid, in_pairs = weight_grid(reader.operand), reader.operand.in_pairs
            chosen = weight_parameters(multiplied, grid, reader.axis, in_pairs)
            stored = round_trip(multiplied, chosen)
            scaled.append(
                (reader.product.columns(each)[:, None, :, 0], reader.product.columns(stored))
            )
        return quantization, scaled


def _parts(rows: Sequence[int], outputs: int) -> Iterator[slice]:
    """Nonempty slices of samples with at most `_TOGETHER` output elements, or of one sample."""
    first, total = 0, 0
    for at, count in enumerate(rows):
        if at > first and (total + count) * outputs > _TOGETHER:
            yield slice(first, at)
            first, total = at, 0
        total += count
    if rows:
        yield slice(first, len(rows))


def _largest(numbers: Floats, axis: int) -> Floats:
    """The largest magnitude of each slice."""
    largest: Floats = np.abs(numbers).max(
        axis=tuple(at for at in range(numbers.ndim) if at != axis)
    )
    return largest


# -- search for places -----------------------------------------------------------------------------


def find_places(graph: Graph, units: Sequence[QuantizedUnit]) -> Iterator[ScaledValue]:
    """Values whose channels may be scaled. They share no constants, so are independent."""
    readers: dict[int, list[QuantizedUnit]] = {}
    for unit in units:
        for read in unit.reads:
            if not read.operand.is_weight:
                readers.setdefault(read.value, []).append(unit)
    used: set[int] = set()
    for value, value_units in readers.items():
        if graph.values[value].scope or len(value_units) != len(graph.uses[value]):
            continue
        reads = [
            reader for unit in value_units if (reader := _read(graph, value, unit)) is not None
        ]
        if len(reads) < len(value_units):
            continue
        axis = 1 if any(isinstance(reader.product, Convolution) for reader in reads) else -1
        counts = {_size(graph, reader.weight, reader.channels) for reader in reads}
        count = counts.pop()
        producers = _made(graph, value, axis, count) if count is not None and not counts else None
        constants = {constant for constant, _ in producers or ()} | {
            reader.weight for reader in reads
        }
        if producers and not constants & used:
            used |= constants
            yield ScaledValue(value=value, axis=axis, made=producers, read=tuple(reads))


def _read(graph: Graph, value: int, unit: QuantizedUnit) -> _Reader | None:
    """The weight by which a unit multiplies a value, as a `_Reader`; None if it is unsupported."""
    node = graph.nodes[unit.nodes[0]]
    weight = next((read for read in unit.reads if read.operand.is_weight), None)
    layout = weight_of(graph, node)
    if (
        weight is None
        or layout is None
        or layout[0] != weight.value
        or node.inputs[0] != value
        or not _is_own(graph, weight.value)
    ):
        return None
    product = layout[1]
    rank = len(graph.shapes[weight.value])
    axis = None if weight.operand.axis is None else weight.operand.axis % rank
    reader = partial(_Reader, weight.value, product, weight.operand, axis)
    if not isinstance(product, Convolution):
        return reader(1 if product.is_transposed else 0)
    if product.groups == 1:
        return reader(1)
    is_depthwise = graph.shapes[weight.value][:2] == (product.groups, 1)
    return reader(0) if is_depthwise else None


def _made(graph: Graph, value: int, axis: int, count: int) -> tuple[tuple[int, int], ...] | None:
    """The constants that produce a value's channels, each with its axis; None if not alone."""
    node = graph.nodes[graph.values[value].producer]
    while node.kind is Kind.OP and node.op in ("Relu", "relu") and node.inputs[0] is not None:
        if len(graph.uses[node.inputs[0]]) != 1:
            return None
        node = graph.nodes[graph.values[node.inputs[0]].producer]
    if (
        node.kind is not Kind.OP
        or node.scope
        or len([output for output in node.outputs if output is not None]) != 1
    ):
        return None
    constants = _constants(graph, node, axis, count)
    is_alone = constants is not None and all(_is_own(graph, constant) for constant, _ in constants)
    is_laid = constants is not None and all(
        _size(graph, constant, at) == count for constant, at in constants
    )
    return constants if is_alone and is_laid else None


def _constants(
    graph: Graph, node: Node, axis: int, count: int
) -> tuple[tuple[int, int], ...] | None:
    """A node's constants with an entry per channel, and their axes; None if unsupported."""
    weight, product = weight_of(graph, node) or (None, None)
    match node.op:
        case "LayerNormalization" | "layer_norm" | "native_layer_norm":
            is_of_channels = axis == -1 and node.attributes.get("axis", -1) == -1
            return _affine(node) if is_of_channels and node.operand(1) is not None else None
        case "_native_batch_norm_legit_no_training":
            return _affine(node) if axis == 1 and node.operand(1) is not None else None
        case "Mul" | "mul" if axis == -1:
            named = [
                operand
                for operand in node.inputs
                if operand is not None and graph.shapes.get(operand) == (count,)
            ]
            return ((named[0], 0),) if len(named) == 1 else None
        case _ if axis == 1 and isinstance(product, Convolution):
            return _affine(node)
        case "Gemm" | "linear" | "addmm" if axis == -1 and isinstance(product, Matrix):
            assert weight is not None, "it has a layout"
            biases = tuple(
                (value, len(graph.shapes.get(value) or (0,)) - 1)
                for value in node.inputs[2:3]
                if value is not None
            )
            return ((weight, 0 if product.is_transposed else 1), *biases)
    return None


def _affine(node: Node) -> tuple[tuple[int, int], ...]:
    """A node's weight and bias, whose first axis is that of the channels."""
    return tuple((value, 0) for value in node.inputs[1:3] if value is not None)


def _is_own(graph: Graph, value: int) -> bool:
    """Whether a value is a finite constant of the main graph with exactly one reader."""
    facts = graph.constants.get(value)
    return (
        facts is not None
        and not (facts.has_infinity or facts.has_nan)
        and is_own_constant(graph, value)
    )


def _size(graph: Graph, value: int, axis: int) -> int | None:
    shape = graph.shapes.get(value)
    return shape[axis] if shape is not None and axis < len(shape) else None
