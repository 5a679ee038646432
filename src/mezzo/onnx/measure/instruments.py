"""Calibration statistics of a model's float values: min, max, NaN and infinity, and a sample each.

The statistics are computed inside the graph, so a run's outputs are small and independent of tensor
sizes. The model is an FP32 copy, tagged with the planner's nodes: values have the planner's ids.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mezzo.common.errors import ContractError
from mezzo.contracts.lab import MeasuredValue, Records
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.edit import opset as opsets
from mezzo.onnx.emulate.fp32_simulation import twin
from mezzo.onnx.emulate.tags import tagged
from mezzo.onnx.measure.insert_observers import ObserverInserter
from mezzo.onnx.measure.instruments_nodes import Places
from mezzo.onnx.measure.instruments_records import (
    Doubles,
    Floats,
    Ints,
    gather_whole,
    join,
    rectify,
    runs,
)
from mezzo.onnx.measure.instruments_sizes import (
    Size,
    infer_shapes,
    input_symbols,
    known_sizes,
    row_length,
)
from mezzo.onnx.measure.instruments_values import mark_casts
from mezzo.onnx.measure.observed_graphs import InstrumentedModel, ValueFacts
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.protos.graphs import stored_names
from mezzo.onnx.run.feeds import fit_feeds
from mezzo.onnx.run.runtime import MEASURING
from mezzo.onnx.run.session import Engine, Session
from mezzo.onnx.schema.value_types import value_types

# Samples per value in a subgraph: it may run thousands of times, so each run returns fewer.
BODY_SAMPLE = 64
# The newest opset that the observer operators need; older models are upgraded to it where that is
# exact.
_WANTED_OPSET = 11
# After this many sessions every value gets the slower observers for NaN and empty tensors, which
# makes further reloads unnecessary.
_MOST_LOADS = 4
# Tensors of at most this many elements are output whole, which is faster than observers.
WHOLE_UP_TO = 4096
# Tensors of at least this many elements are reduced in rows, which runs on several cores.
_LARGE = 1 << 19
# Batches this many times longer than the first have their observers chosen again.
_GROWTH = 4
_HEADER = 4


class OnnxInstruments:
    """An instrumented model and its session. `values` are the measured values in the planner's
    order; `skipped` lists the others, with the reason.
    """

    def __init__(self, model: OnnxModel, feeds: Mapping[str, Any]) -> None:
        """Load the model; `feeds` is a typical batch. Raises ContractError: it does not load."""
        self._declared = list(model.source.model.graph.input)
        self.input_names = [port.name for port in self._declared]
        self.optional = frozenset(self.input_names).intersection(
            stored_names(model.source.model.graph)
        )
        reading = model.read(DType.FLOAT16)
        if reading.version is not None and reading.version < _WANTED_OPSET:
            reachable = opsets.reach(reading.handles.model, _WANTED_OPSET)[0]
            if reachable > reading.version:
                reading = model.read(DType.FLOAT16, version=reachable)
        graph = reading.graph
        self.fingerprint = graph.content
        mark_casts(graph, reading.handles)
        source = tagged(model, reading)
        self._weights = source.weights
        model_fp32 = twin(source.model)
        self._inserter = ObserverInserter(graph, model_fp32, value_types(model_fp32))
        shapes = infer_shapes(model_fp32)
        self._sizes: Mapping[str, Size] = known_sizes(shapes)
        self._rows = {
            name: length
            for name, shape in shapes.items()
            if (length := row_length(shape)) is not None
        }
        self._symbols = input_symbols(model_fp32)
        self._careful: set[int] | None = set()
        self._lengths = self._bind(feeds) or {}
        self._loads = 0
        self._session: Session | None = None
        self._loaded = self._load()
        numbers = [slot.value for slot in self._loaded.slots]
        numbers += [value for group in self._loaded.groups for value in group.values]
        numbers = sorted([*numbers, *self._loaded.rectified])
        self.size = len(numbers)
        self._positions = np.full(len(graph.values), -1, np.int64)
        self._positions[numbers] = np.arange(len(numbers))
        self._numbers: list[int] = numbers
        self.skipped = tuple(self._loaded.skipped)
        # Elements of all measured values with a static size.
        sizes = [self._evaluate(slot.size) for slot in self._loaded.slots]
        self.elements = sum(filter(None, sizes))
        sources = _spread(graph, {number: number for number in numbers} | self._loaded.same)
        self.values = tuple(
            MeasuredValue(
                int(self._positions[sources[number]]), value.name, producer.name, producer.op
            )
            for number in sorted(sources)
            for value in (graph.values[number],)
            for producer in (graph.nodes[value.producer],)
        )

    def run(self, feeds: Mapping[str, Any], draw: int, sample: int) -> Records:
        """Run the model once. `draw` seeds the sampled positions, at most `sample` per value.

        Raises: InputError if the feeds do not fit; ContractError if the model fails.
        """
        places = self._places(draw, sample)
        if not self.size:
            fit_feeds(feeds, self._declared, self.optional)
            return join([])
        self._fit(feeds)
        while True:
            gathered = rectify(self._run(feeds, places), self._pairs())
            not_finite = self._odd(gathered)
            if self._careful is None or not_finite <= self._careful:
                return gathered
            self._reload(self._careful | not_finite, self._sizes)

    @property
    def width(self) -> int:
        """How many runs to prepare together."""
        return 1 if self._session is None else self._session.width

    def prepare(self, many: Sequence[tuple[Mapping[str, Any], int, int]]) -> None:
        """Run the next calls of `run` (their arguments) in one batch, if the session can."""
        if self._session is not None and self.width > 1:
            self._session.prepare(
                [{**feeds, **self._places(draw, sample)} for feeds, draw, sample in many]
            )

    def _places(self, draw: int, sample: int) -> dict[str, Any]:
        rng = np.random.default_rng(draw)
        places = _draw(self._loaded.places, sample, rng)
        return places | _draw(self._loaded.body_places, min(BODY_SAMPLE, sample), rng)

    def _run(self, feeds: Mapping[str, Any], places: Mapping[str, Any]) -> Records:
        """Run; on failure, run again with slower observers, as empty tensors have no min and max
        and declared sizes may be wrong.
        """
        if self._session is None:
            self._loaded = self._load()
        assert self._session is not None, "just loaded"
        try:
            return self._read(self._session.run({**feeds, **places}), places)
        except ContractError:
            if self._careful is None and not self._sizes:
                raise
        careful, sizes = self._careful, self._sizes
        self._careful, self._sizes = None, {}
        self._loaded = self._load()
        gathered = self._read(self._session.run({**feeds, **places}), places)
        empty = self._numbers_of(gathered.values[gathered.counts == 0])
        if careful is not None:
            self._reload(careful | empty | self._odd(gathered), sizes if empty - careful else {})
        return gathered

    def _odd(self, gathered: Records) -> set[int]:
        """Values with NaN or infinity that were not output whole."""
        not_finite = self._numbers_of(gathered.values[gathered.has_nan | gathered.has_infinity])
        return not_finite - {slot.value for slot in self._loaded.slots if slot.is_whole}

    def _pairs(self) -> tuple[Ints, Ints]:
        """Positions of Relu outputs, and of the Relu inputs that they are derived from."""
        rectified, sources = [*self._loaded.rectified], [*self._loaded.rectified.values()]
        return self._positions[rectified], self._positions[sources]

    def _numbers_of(self, positions: Ints) -> set[int]:
        """The planner's ids of values at these positions."""
        return {self._numbers[position] for position in np.unique(positions).tolist()}

    def _reload(self, careful: set[int] | None, sizes: Mapping[str, Size]) -> None:
        """Load another session before the next run; after _MOST_LOADS, one that fits all data."""
        if self._loads >= _MOST_LOADS:
            careful, sizes, self._lengths = None, {}, {}
        if (careful, sizes) != (self._careful, self._sizes):
            self._careful, self._sizes, self._session = careful, sizes, None

    def _load(self) -> InstrumentedModel:
        self._session = None  # frees its memory before the next one loads
        facts = ValueFacts(self._sizes, self._is_small, self._columns())
        loaded = self._inserter.insert(self._careful, facts)
        if loaded.model.graph.output:
            declared = [*self._declared, *loaded.model.graph.input[-4:]]
            self._session = Session(
                loaded.model, declared, Engine.ONNXRUNTIME, MEASURING, self._weights
            )
        self._loads += 1
        if self._session is None or not self._session.may_load_again:
            loaded.model.Clear()  # the session holds the weights
        return loaded

    def _fit(self, feeds: Mapping[str, Any]) -> None:
        """Load again if a batch is much longer than the first, or contradicts the symbols."""
        lengths = self._bind(feeds)
        if lengths is None:
            self._reload(self._careful, {})
        elif self._lengths and any(
            lengths[symbol] > _GROWTH * previous for symbol, previous in self._lengths.items()
        ):
            self._lengths = lengths if self._loads < _MOST_LOADS else {}
            self._session = None

    def _bind(self, feeds: Mapping[str, Any]) -> dict[str, int] | None:
        """Lengths of the symbols in the inputs' shapes; None if a symbol has two lengths."""
        bound = {symbol: 0 for _, _, symbol in self._symbols}
        for name, axis, symbol in self._symbols:
            shape = np.shape(feeds[name]) if feeds.get(name) is not None else ()
            if axis < len(shape):
                if bound[symbol] not in (0, shape[axis]):
                    return None
                bound[symbol] = shape[axis]
        return bound

    def _is_small(self, size: Size) -> bool:
        count = self._evaluate(size)
        return count is not None and count <= WHOLE_UP_TO

    def _columns(self) -> dict[str, int]:
        """Row lengths of large tensors by name; empty after declared sizes proved wrong."""
        large = (
            name for name, size in self._sizes.items() if (self._evaluate(size) or 0) >= _LARGE
        )
        return {name: self._rows[name] for name in large if name in self._rows}

    def _evaluate(self, size: Size) -> int | None:
        """A size as a number of elements, for the lengths of the first batch; None if unknown."""
        if isinstance(size, int):
            return size
        if isinstance(size, str):
            return None
        factor, *symbols = size
        lengths = [self._lengths.get(str(symbol), 0) for symbol in symbols]
        return math.prod([int(factor), *lengths]) if all(lengths) else None

    # -- outputs -----------------------------------------------------------------------------------

    def _read(self, results: Mapping[str, Any], places: Mapping[str, Any]) -> Records:
        pieces = []
        shares = places[self._loaded.places.shares]
        if self._loaded.vector is not None and self._loaded.sizes is not None:
            pieces.append(
                self._read_vector(results[self._loaded.vector], results[self._loaded.sizes], shares)
            )
        for group in self._loaded.groups:
            # SequenceMap outputs a list, which may be empty.
            extremes, oddness, samples = (
                np.asarray(results[name], np.float32) for name in group.outputs[:3]
            )
            counts = np.asarray(results[group.outputs.counts], np.int64)
            pieces.append(self._read_group(group.values, extremes, oddness, samples, counts))
        return join(pieces)

    def _read_vector(self, vector: Floats, sizes: Ints, shares: Doubles) -> Records:
        slots = self._loaded.slots
        numbers = np.array([slot.value for slot in slots], np.int64)
        is_whole = np.array([slot.is_whole for slot in slots], bool)
        counts = sizes[[slot.position for slot in slots]]
        # All sampled values have samples of equal length, which follows from the vector's length.
        sampled = int((~is_whole).sum())
        length = (len(vector) - int(counts[is_whole].sum())) // max(sampled, 1) - _HEADER
        widths = np.where(is_whole, counts, length + _HEADER)
        if int(widths.sum()) != len(vector):
            raise ContractError("the shapes that the model declares are not those of its values")
        starts = np.cumsum(widths) - widths
        sampled_starts = starts[~is_whole]
        header = vector[sampled_starts[:, None] + np.arange(_HEADER)]
        lengths = np.minimum(counts[~is_whole], length)
        pieces = [
            self._gathered(
                numbers[~is_whole],
                header,
                counts[~is_whole],
                lengths,
                vector[runs(sampled_starts + _HEADER, lengths)],
            )
        ]
        if is_whole.any():
            values = self._positions[numbers[is_whole]]
            pieces.append(gather_whole(values, vector, starts[is_whole], counts[is_whole], shares))
        return join(pieces)

    def _read_group(
        self,
        values: Sequence[int],
        extremes: Floats,
        oddness: Floats,
        samples: Floats,
        counts: Ints,
    ) -> Records:
        """Read the records of T runs of a subgraph; inputs without the axis T are of one run."""
        extremes, oddness, counts = (
            extremes.reshape(-1, 2),
            oddness.reshape(-1, 2),
            counts.reshape(-1),
        )
        length = samples.shape[-1] if samples.size else 0
        lengths = np.minimum(counts, length)
        starts = np.arange(len(counts)) * length
        header = np.concatenate([extremes[:, :1], -extremes[:, 1:], oddness], 1)
        numbers = np.tile(np.array(values, np.int64), len(counts) // len(values))
        return self._gathered(
            numbers, header, counts, lengths, samples.reshape(-1)[runs(starts, lengths)]
        )

    def _gathered(
        self, numbers: Ints, header: Floats, counts: Ints, lengths: Ints, samples: Floats
    ) -> Records:
        is_careful = np.ones(len(numbers), bool)
        if self._careful is not None:
            is_careful = np.isin(numbers, np.array(sorted(self._careful), np.int64))
        total, infinite = header[:, 2], header[:, 3]
        # Fast observers return a sum: a non-finite one may mean NaN, infinity or overflow.
        has_nan = np.where(is_careful, total != 0, np.isnan(total))
        has_infinity = np.where(is_careful, infinite != 0, np.isinf(total))
        return Records(
            values=self._positions[numbers],
            lowest=header[:, 0],
            highest=header[:, 1],
            has_nan=has_nan,
            has_infinity=has_infinity,
            counts=counts,
            lengths=lengths,
            samples=samples,
        )


def _spread(graph: Graph, sources: dict[int, int]) -> dict[int, int]:
    """Extend a map from value to measured value over values that cross function boundaries."""
    for node in graph.nodes:
        if node.kind is Kind.TIE and len(node.inputs) == 1 and node.inputs[0] in sources:
            source = sources[node.inputs[0]]
            sources |= {
                value: source
                for value in node.outputs
                if value is not None and value not in sources
            }
    return sources


def _draw(places: Places, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Feeds for stratified sampling: one random position in each of `count` equal parts."""
    steps = np.arange(count, dtype=np.float64)
    # 1e-9 below 1, so that a tensor's length times a share stays below the length after rounding.
    return {places.shares: (steps + rng.random(count)) / count * (1 - 1e-9), places.steps: steps}
