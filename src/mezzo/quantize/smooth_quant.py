"""Where channels of a value differ much in size, what is too much in some is moved into the weights that read them:
whoever makes the value is divided by a factor per channel, and the weights are multiplied, in constants alone.

It takes a maker with a number per channel (LayerNormalization, a Mul, a product), maybe with a Relu behind it, whose
constants and result nobody else reads. How far to go is chosen for each value, by the error of its products on data.

Source: Xiao et al., "SmoothQuant", 2023; Nagel et al., "Data-Free Quantization", 2019, for products in a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.contracts.calibrator import Grid, Range
from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Model
from mezzo.contracts.reading import Reading
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import lab_of
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.numerics.data.datasets import Dataset
from mezzo.planner.options import Options
from mezzo.quantize.arithmetic.arithmetic import laid, round_trip
from mezzo.quantize.arithmetic.correction import smoothing_scales
from mezzo.quantize.arithmetic.parameters import parameters_for
from mezzo.quantize.arithmetic.products import Convolution, Floats, Product
from mezzo.quantize.arithmetic.weights import weight_parameters
from mezzo.quantize.paired_error_test import Errors
from mezzo.quantize.product_layouts import is_own_constant, layout_of

# How far outliers are moved, of 0 to 1; 0 apart, which leaves all as it is.
_ALPHAS = (0.35, 0.5, 0.65, 0.8, 1.0)
# The error that a value's products have to lose by it, on the data that it is chosen on.
_LEAST_GAIN = 0.05
# Numbers of a value that are kept to choose on, and rows that a product is tried on.
_KEPT, _ROWS = 1 << 20, 1024
# Numbers that a product makes of samples together.
_TOGETHER = 1 << 22
_WEIGHTS = Grid(dtype=DType.INT8, is_symmetric=True, is_narrow=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A value whose channels may be scaled. `made`: constants that make them, each with its axis."""

    value: int
    axis: int
    made: tuple[tuple[int, int], ...]
    read: tuple["_Reader", ...]


class _Reader(NamedTuple):
    """A weight that reads channels, by value id: its product, the axis of its own scales, and that of the channels."""

    weight: int
    product: Product
    axis: int | None
    channels: int


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a value held: the ends of each channel, and some samples."""

    low: Floats | None = None
    high: Floats | None = None
    kept: list[Floats] = field(default_factory=list)
    size: int = 0
    batches: int = 0

    def add(self, numbers: Floats, axis: int) -> None:
        axis %= numbers.ndim
        others = tuple(one for one in range(numbers.ndim) if one != axis)
        low, high = numbers.min(axis=others), numbers.max(axis=others)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)
        for sample in np.split(numbers, len(numbers)) if numbers.ndim > 1 else [numbers]:
            if self.size + sample.size > _KEPT // 4 * (1 + self.batches) and self.kept:
                break  # some of each of the first batches
            self.kept.append(sample.copy())
            self.size += sample.size
        self.batches = min(self.batches + 1, 3)


def smoothed(model: Model, options: Options, data: Dataset, held_out: Dataset) -> tuple[Correction, ...]:
    """The corrections that make channels alike where products are nearer by that on data, and on what was held out by
    more than samples vary; none where none are.

    Raises InputError: the data does not fit the model.
    """
    reading, judged = judge_model(model, options)
    assert judged.quantizing is not None and options.planning.quantized is not None, "asked once values have parameters"
    graph, known = reading.graph, options.planning.quantized
    places = [place for place in _places(graph, judged.quantizing.units) if graph.values[place.value].name in known]
    if not places:
        return ()
    seen, unseen = (_watch(model, reading, places, dataset) for dataset in (data, held_out))
    found: list[Correction] = []
    for place in places:
        weights = dict(model.weights(reading, [one.weight for one in place.read]))
        trial = _Trial(place, seen[place.value], weights, known[graph.values[place.value].name])
        factors = trial.best()
        if factors is not None and trial.is_shown(factors, unseen[place.value].kept):
            found += _corrections(graph, place, factors)
    return tuple(found)


def _watch(model: Model, planned: Reading, places: Sequence[_Place], dataset: Dataset) -> dict[int, _Seen]:
    axes = {place.value: place.axis for place in places}
    seen = {value: _Seen() for value in axes}
    show = lab_of(model).observer(model.read(planned.low, planned.version), [*axes])
    for batch in dataset:
        for shown in show(batch.feeds):
            if shown.numbers.size and np.isfinite(shown.numbers).all():
                seen[shown.value].add(shown.numbers, axes[shown.value])
    return seen


def _corrections(graph: Graph, place: _Place, factors: Floats) -> Iterator[Correction]:
    inverse = tuple(map(float, np.float32(1) / factors))
    for value, axis in place.made:
        yield Correction(value=graph.values[value].name, axis=axis, factors=inverse)
    for one in place.read:
        name = graph.values[one.weight].name
        yield Correction(value=name, axis=one.channels, factors=tuple(map(float, factors)))


@dataclass(frozen=True, slots=True)
class _Trial:
    """Factors tried on what was seen of a value."""

    place: _Place
    seen: _Seen
    weights: Mapping[int, Floats]
    how: Quantization

    def best(self) -> Floats | None:
        """What to divide the channels by, of what was tried the best; None where it gains too little."""
        place, seen, weights = self.place, self.seen, self.weights
        if seen.low is None or seen.high is None or len(weights) < len(place.read):
            return None
        of_weights = np.max([_largest(weights[one.weight], one.channels) for one in place.read], axis=0)
        largest = np.maximum(-seen.low, seen.high)
        tried = [smoothing_scales(largest, of_weights, alpha) for alpha in _ALPHAS]
        as_it_is, *errors = (one.root for one in self.errors([np.ones_like(largest), *tried], seen.kept))
        best = int(np.argmin(errors))
        return tried[best] if errors[best] < (1 - _LEAST_GAIN) * as_it_is else None

    def is_shown(self, factors: Floats, kept: Sequence[Floats]) -> bool:
        """Whether products are nearer on other samples by more than these vary."""
        before, after = self.errors([np.ones_like(factors), factors], kept)
        return before.falls_to(after)

    def errors(self, tried: Sequence[Floats], kept: Sequence[Floats]) -> list[Errors]:
        """How far all products that read the value are off on samples, for each of some factors of its channels."""
        ways = [self._stored(factors) for factors in tried]
        squares = np.zeros((len(ways), len(kept)))
        for number, one in enumerate(self.place.read):
            exact = one.product.columns(self.weights[one.weight])
            taken = [one.product.rows(numbers, _ROWS) for numbers in kept]
            for part in _parts([each.shape[1] for each in taken], exact.shape[0] * exact.shape[2]):
                rows = np.concatenate(taken[part], axis=1)  # one product of many rows is faster than many of few
                starts = np.cumsum([0, *(each.shape[1] for each in taken[part])])[:-1]
                sums = rows @ exact
                for way, (held, scaled) in enumerate(ways):
                    factors, stored = scaled[number]
                    off = round_trip(rows / factors, held) @ stored
                    off -= sums
                    by_row = np.einsum("grm,grm->r", off, off, dtype=np.float64)
                    squares[way, part] += np.add.reduceat(by_row, starts)
        return [Errors(each) for each in squares]

    def _stored(self, factors: Floats) -> tuple[Quantization, list[tuple[Floats, Floats]]]:
        """The parameters of the value with its channels divided by factors, and for each product the factors of what it
        sums, [groups, 1, summed], and its weights as they are stored then, [groups, summed, made].
        """
        seen, how = self.seen, self.how
        assert seen.low is not None and seen.high is not None, "it was seen"
        ends = Range(float((seen.low / factors).min()), float((seen.high / factors).max()))
        held = parameters_for(ends, Grid(dtype=how.dtype, is_symmetric=how.dtype is DType.INT8))
        scaled = []
        for one in self.place.read:
            weight = self.weights[one.weight]
            each = np.broadcast_to(laid(factors, weight.ndim, one.channels), weight.shape)
            multiplied = weight * each
            stored = round_trip(multiplied, weight_parameters(multiplied, _WEIGHTS, one.axis))
            scaled.append((one.product.columns(each)[:, None, :, 0], one.product.columns(stored)))
        return held, scaled


def _parts(rows: Sequence[int], made: int) -> Iterator[slice]:
    """Runs of samples with so many rows each that make `_TOGETHER` numbers, or are one; none is empty."""
    first, held = 0, 0
    for at, count in enumerate(rows):
        if at > first and (held + count) * made > _TOGETHER:
            yield slice(first, at)
            first, held = at, 0
        held += count
    if rows:
        yield slice(first, len(rows))


def _largest(numbers: Floats, axis: int) -> Floats:
    """The largest magnitude of each slice."""
    found: Floats = np.abs(numbers).max(axis=tuple(at for at in range(numbers.ndim) if at != axis))
    return found


# -- places -----------------------------------------------------------------------------------------------------------


def _places(graph: Graph, units: Sequence[QuantizedUnit]) -> Iterator[_Place]:
    """Values whose channels may be scaled: each constant in one place alone, so that places do not change each other's
    products but by what they are scaled with.
    """
    readers: dict[int, list[QuantizedUnit]] = {}
    for unit in units:
        for read in unit.reads:
            if not read.operand.is_weight:
                readers.setdefault(read.value, []).append(unit)
    taken: set[int] = set()
    for value, held in readers.items():
        if graph.values[value].scope or len(held) != len(graph.uses[value]):
            continue
        reads = [one for unit in held if (one := _read(graph, value, unit)) is not None]
        if len(reads) < len(held):
            continue
        axis = 1 if any(isinstance(one.product, Convolution) for one in reads) else -1
        counts = {_size(graph, one.weight, one.channels) for one in reads}
        count = counts.pop()
        made = _made(graph, value, axis, count) if count is not None and not counts else None
        constants = {constant for constant, _ in made or ()} | {one.weight for one in reads}
        if made and not constants & taken:
            taken |= constants
            yield _Place(value=value, axis=axis, made=made, read=tuple(reads))


def _read(graph: Graph, value: int, unit: QuantizedUnit) -> _Reader | None:
    """The weight by which a unit multiplies a value, with its product, its own axis, and that of the channels."""
    node = graph.nodes[unit.nodes[0]]
    weight = next((read for read in unit.reads if read.operand.is_weight), None)
    product = layout_of(graph, node)
    if weight is None or product is None or node.inputs[0] != value or not _is_own(graph, weight.value):
        return None
    rank = len(graph.shapes[weight.value])
    axis = None if weight.operand.axis is None else weight.operand.axis % rank
    if not isinstance(product, Convolution):
        return _Reader(weight.value, product, axis, 1 if product.is_transposed else 0)
    if product.groups == 1:
        return _Reader(weight.value, product, axis, 1)
    is_depthwise = graph.shapes[weight.value][:2] == (product.groups, 1)
    return _Reader(weight.value, product, axis, 0) if is_depthwise else None


def _made(graph: Graph, value: int, axis: int, count: int) -> tuple[tuple[int, int], ...] | None:
    """The constants that make the channels of a value, with the axis of each; None where none do alone."""
    node = graph.nodes[graph.values[value].producer]
    while node.kind is Kind.OP and node.op == "Relu" and node.inputs[0] is not None:
        if len(graph.uses[node.inputs[0]]) != 1:
            return None
        node = graph.nodes[graph.values[node.inputs[0]].producer]
    if node.kind is not Kind.OP or node.scope or len([one for one in node.outputs if one is not None]) != 1:
        return None
    found = _constants(graph, node, axis, count)
    is_alone = found is not None and all(_is_own(graph, constant) for constant, _ in found)
    is_laid = found is not None and all(_size(graph, constant, at) == count for constant, at in found)
    return found if is_alone and is_laid else None


def _constants(graph: Graph, node: Node, axis: int, count: int) -> tuple[tuple[int, int], ...] | None:
    """The constants by which a node makes channels along an axis, as far as its operator says."""
    match node.op:
        case "LayerNormalization" if axis == -1 and node.attributes.get("axis", -1) == -1:
            return tuple((value, 0) for value in node.inputs[1:3] if value is not None)
        case "Mul" if axis == -1:
            named = [one for one in node.inputs if one is not None and graph.shapes.get(one) == (count,)]
            return ((named[0], 0),) if len(named) == 1 else None
        case "Conv" if axis == 1 and layout_of(graph, node) is not None:
            return tuple((value, 0) for value in node.inputs[1:3] if value is not None)
        case "Gemm" if axis == -1 and layout_of(graph, node) is not None:
            across = 0 if node.attributes.get("transB") else 1
            weight, offsets = node.inputs[1], node.inputs[2:3]
            assert weight is not None, "it has a layout"
            biases = tuple((value, len(graph.shapes.get(value) or (0,)) - 1) for value in offsets if value is not None)
            return ((weight, across), *biases)
    return None


def _is_own(graph: Graph, value: int) -> bool:
    """Whether a value is a finite constant of the main graph that one operand alone reads."""
    facts = graph.constants.get(value)
    return facts is not None and not (facts.has_infinity or facts.has_nan) and is_own_constant(graph, value)


def _size(graph: Graph, value: int, axis: int) -> int | None:
    shape = graph.shapes.get(value)
    return shape[axis] if shape is not None and axis < len(shape) else None
