"""Measures the float values of a model while it runs: extremes, what is not finite, and samples, gathered in the graph.

The model is its FP32 twin, tagged with the planner's nodes, so values are named as plans name them. What comes out of a
run is small and does not grow with the tensors.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from mezzo.common.errors import ContractError
from mezzo.contracts.lab import MeasuredValue, Records
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.edit import opset as opsets
from mezzo.onnx.emulate.fp32_simulation import twin
from mezzo.onnx.emulate.tags import tagged
from mezzo.onnx.measure.insert_observers import Known, Weaver, Woven
from mezzo.onnx.measure.instruments_nodes import Places
from mezzo.onnx.measure.instruments_records import Doubles, Floats, Ints, gather_whole, join, rectify, runs
from mezzo.onnx.measure.instruments_sizes import Size, known_sizes, row_length
from mezzo.onnx.measure.instruments_values import mark_casts
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.run.feeds import fit_feeds
from mezzo.onnx.run.run import Engine, Session
from mezzo.onnx.run.runtime import MEASURING
from mezzo.onnx.schema.shapes import can_infer
from mezzo.onnx.schema.value_types import value_types

_log = logging.getLogger(__name__)

# Bodies may run thousands of times, so each run hands out fewer numbers.
BODY_SAMPLE = 64
# The newest opset whose operators measuring takes; older models are raised to it where that keeps their meaning.
_WANTED_OPSET = 11
# After so many sessions every value is measured carefully, which costs time, but no more sessions.
_MOST_LOADS = 4
# Tensors of at most so many numbers come out whole: that takes less time than measuring them.
WHOLE_UP_TO = 4096
# Tensors of at least so many numbers are worth reducing by several processors.
_LARGE = 1 << 19
# Batches so many times as long as those that this was decided by have it decided again.
_GROWTH = 4
# Weights of up to so many numbers may be shapes, which shape inference reads.
_SMALL = 1024
_HEADER = 4


class Instruments:
    """A model made ready to be measured. `values` are what it measures in the planner's order; `skipped` says what it
    cannot measure, and why.
    """

    def __init__(self, model: OnnxModel, feeds: Mapping[str, Any]) -> None:
        """Load the model; `feeds` show how long its tensors may be. Raises: ContractError if it does not load."""
        self.input_names = [port.name for port in model.source.model.graph.input]
        initialized = {tensor.name for tensor in model.source.model.graph.initializer}
        self.optional = frozenset(name for name in self.input_names if name in initialized)
        reading = model.read(DType.FLOAT16)
        if reading.version is not None and reading.version < _WANTED_OPSET:
            reachable = opsets.reachable_opset(reading.handles.model, _WANTED_OPSET)
            if reachable > reading.version:
                reading = model.read(DType.FLOAT16, reachable)
        graph = reading.graph
        self.fingerprint = graph.content
        self._declared = list(model.source.model.graph.input)
        mark_casts(graph, reading.handles)
        source = tagged(model, reading)
        self._weights = source.weights
        whole = twin(source.model)
        self._weaver = Weaver(graph, whole, value_types(whole))
        shapes = _input_shapes(whole)
        self._sizes: Mapping[str, Size] = known_sizes(shapes)
        self._rows = {name: length for name, shape in shapes.items() if (length := row_length(shape)) is not None}
        self._symbols = _symbols(whole)
        self._careful: set[int] | None = set()
        self._lengths = self._bind(feeds) or {}
        self._loads = 0
        self._session: Session | None = None
        self._woven = self._load()
        numbers = [slot.value for slot in self._woven.slots]
        numbers += [value for group in self._woven.groups for value in group.values]
        numbers = sorted([*numbers, *self._woven.rectified])
        self.size = len(numbers)
        self._positions = np.full(len(graph.values), -1, np.int64)
        self._positions[numbers] = np.arange(len(numbers))
        self._numbers: list[int] = numbers
        self.skipped = tuple(self._woven.skipped)
        # What is known of it before the first run.
        self.elements = sum(filter(None, map(self._evaluate, self._woven.slot_sizes)))
        held = _spread(graph, {number: number for number in numbers} | self._woven.same)
        self.values = tuple(
            MeasuredValue(int(self._positions[held[number]]), value.name, producer.name, producer.op)
            for number in sorted(held)
            for value in (graph.values[number],)
            for producer in (graph.nodes[value.producer],)
        )

    def run(self, feeds: Mapping[str, Any], draw: int, sample: int) -> Records:
        """Run the model once. `draw` chooses the places that are sampled, at most `sample` per value.

        Raises: InputError if the feeds do not fit; ContractError if the model fails.
        """
        places = self._places(draw, sample)
        if not self.size:
            fit_feeds(feeds, self._declared, self.optional)
            return join([])
        self._fit(feeds)
        while True:
            gathered = rectify(self._run(feeds, places), self._pairs())
            odd = self._odd(gathered)
            if self._careful is None or odd <= self._careful:
                return gathered
            self._reload(self._careful | odd, self._sizes)

    @property
    def width(self) -> int:
        """How many runs are worth preparing together."""
        return 1 if self._session is None else self._session.width

    def prepare(self, many: Sequence[tuple[Mapping[str, Any], int, int]]) -> None:
        """Run the model on what is asked for next, where that saves something: arguments of `run`."""
        if self._session is not None and self.width > 1:
            self._session.prepare([{**feeds, **self._places(draw, sample)} for feeds, draw, sample in many])

    def _places(self, draw: int, sample: int) -> dict[str, Any]:
        rng = np.random.default_rng(draw)
        places = _draw(self._woven.places, sample, rng)
        return places | _draw(self._woven.body_places, min(BODY_SAMPLE, sample), rng)

    def _run(self, feeds: Mapping[str, Any], places: Mapping[str, Any]) -> Records:
        """Run; where that fails do so carefully, since empty tensors have no extremes and sizes may deceive."""
        if self._session is None:
            self._woven = self._load()
        assert self._session is not None, "just loaded"
        try:
            return self._read(self._session.run({**feeds, **places}), places)
        except ContractError:
            if self._careful is None and not self._sizes:
                raise
        careful, sizes = self._careful, self._sizes
        self._careful, self._sizes = None, {}
        self._woven = self._load()
        gathered = self._read(self._session.run({**feeds, **places}), places)
        empty = self._numbers_of(gathered.values[gathered.counts == 0])
        if careful is not None:
            self._reload(careful | empty | self._odd(gathered), sizes if empty - careful else {})
        return gathered

    def _odd(self, gathered: Records) -> set[int]:
        """Values that were seen not to be finite and did not come whole."""
        odd = self._numbers_of(gathered.values[gathered.has_nan | gathered.has_infinity])
        return odd - {slot.value for slot in self._woven.slots if slot.is_whole}

    def _pairs(self) -> tuple[Ints, Ints]:
        """Positions of values that Relu makes, and of what it makes them of."""
        made, sources = [*self._woven.rectified], [*self._woven.rectified.values()]
        return self._positions[made], self._positions[sources]

    def _numbers_of(self, positions: Ints) -> set[int]:
        """The planner's ids."""
        return {self._numbers[position] for position in np.unique(positions).tolist()}

    def _reload(self, careful: set[int] | None, sizes: Mapping[str, Size]) -> None:
        """Measure with another session from the next run on; after many of them with one that needs no other."""
        if self._loads >= _MOST_LOADS:
            careful, sizes, self._lengths = None, {}, {}
        if (careful, sizes) != (self._careful, self._sizes):
            self._careful, self._sizes, self._session = careful, sizes, None

    def _load(self) -> Woven:
        self._session = None  # before the next one takes its memory
        woven = self._weaver.weave(self._careful, Known(self._sizes, self._is_small, self._columns()))
        if woven.model.graph.output:
            declared = [*self._declared, *woven.model.graph.input[-4:]]
            self._session = Session(woven.model, declared, Engine.ONNXRUNTIME, MEASURING, self._weights)
        self._loads += 1
        if self._session is None or not self._session.may_load_again:
            woven.model.Clear()  # the session holds the weights
        return woven

    def _fit(self, feeds: Mapping[str, Any]) -> None:
        """Prepare for tensors that are not as long as they seemed."""
        found = self._bind(feeds)
        if found is None:
            self._reload(self._careful, {})
        elif self._lengths and any(found[symbol] > _GROWTH * length for symbol, length in self._lengths.items()):
            self._lengths = found if self._loads < _MOST_LOADS else {}
            self._session = None

    def _bind(self, feeds: Mapping[str, Any]) -> dict[str, int] | None:
        """Lengths of the symbols in the inputs' shapes; None if one stands for two, which sizes do not allow for."""
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
        """Lengths of the rows of large tensors; none where sizes are not to be relied on."""
        large = (name for name, size in self._sizes.items() if (self._evaluate(size) or 0) >= _LARGE)
        return {name: self._rows[name] for name in large if name in self._rows}

    def _evaluate(self, size: Size) -> int | None:
        """A size in numbers, as the first batch has it."""
        if isinstance(size, int):
            return size
        if isinstance(size, str):
            return None
        known, *symbols = size
        lengths = [self._lengths.get(str(symbol), 0) for symbol in symbols]
        return math.prod([int(known), *lengths]) if all(lengths) else None

    # -- what came out --------------------------------------------------------------------------------------------

    def _read(self, results: Mapping[str, Any], places: Mapping[str, Any]) -> Records:
        pieces = []
        shares = places[self._woven.places.shares]
        if self._woven.vector is not None and self._woven.sizes is not None:
            pieces.append(self._read_vector(results[self._woven.vector], results[self._woven.sizes], shares))
        for group in self._woven.groups:
            # SequenceMap gives a list, which may be empty.
            extremes, oddness, samples = (np.asarray(results[name], np.float32) for name in group.outputs[:3])
            counts = np.asarray(results[group.outputs.counts], np.int64)
            pieces.append(self._read_group(group.values, extremes, oddness, samples, counts))
        return join(pieces)

    def _read_vector(self, vector: Floats, sizes: Ints, shares: Doubles) -> Records:
        slots = self._woven.slots
        numbers = np.array([slot.value for slot in slots], np.int64)
        is_whole = np.array([slot.is_whole for slot in slots], bool)
        counts = sizes[[slot.size for slot in slots]]
        # All values that are sampled have as many places.
        sampled = int((~is_whole).sum())
        length = (len(vector) - int(counts[is_whole].sum())) // max(sampled, 1) - _HEADER
        taken = np.where(is_whole, counts, length + _HEADER)
        if int(taken.sum()) != len(vector):
            raise ContractError("the shapes that the model declares are not those of its values")
        starts = np.cumsum(taken) - taken
        at = starts[~is_whole]
        header = vector[at[:, None] + np.arange(_HEADER)]
        lengths = np.minimum(counts[~is_whole], length)
        pieces = [
            self._gathered(numbers[~is_whole], header, counts[~is_whole], lengths, vector[runs(at + _HEADER, lengths)])
        ]
        if is_whole.any():
            values = self._positions[numbers[is_whole]]
            pieces.append(gather_whole(values, vector, starts[is_whole], counts[is_whole], shares))
        return join(pieces)

    def _read_group(
        self, values: Sequence[int], extremes: Floats, oddness: Floats, samples: Floats, counts: Ints
    ) -> Records:
        """Read the records of T runs of bodies; without that axis, of one run."""
        extremes, oddness, counts = extremes.reshape(-1, 2), oddness.reshape(-1, 2), counts.reshape(-1)
        length = samples.shape[-1] if samples.size else 0
        lengths = np.minimum(counts, length)
        starts = np.arange(len(counts)) * length
        header = np.concatenate([extremes[:, :1], -extremes[:, 1:], oddness], 1)
        numbers = np.tile(np.array(values, np.int64), len(counts) // len(values))
        return self._gathered(numbers, header, counts, lengths, samples.reshape(-1)[runs(starts, lengths)])

    def _gathered(self, numbers: Ints, header: Floats, counts: Ints, lengths: Ints, samples: Floats) -> Records:
        is_careful = np.ones(len(numbers), bool)
        if self._careful is not None:
            is_careful = np.isin(numbers, np.array(sorted(self._careful), np.int64))
        total, infinite = header[:, 2], header[:, 3]
        # Without care a sum that is not finite only says that care is needed.
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


def _spread(graph: Graph, held: dict[int, int]) -> dict[int, int]:
    """Whose numbers values hold: those with records, and those that cross the border of a function as they are."""
    for node in graph.nodes:
        if node.kind is Kind.TIE and len(node.inputs) == 1 and node.inputs[0] in held:
            source = held[node.inputs[0]]
            held |= {value: source for value in node.outputs if value is not None and value not in held}
    return held


def _draw(places: Places, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Feeds that choose one place in each of `count` equal parts of a tensor."""
    steps = np.arange(count, dtype=np.float64)
    # Below 1 by so much that a tensor's length times a share stays below the length.
    return {places.shares: (steps + rng.random(count)) / count * (1 - 1e-9), places.steps: steps}


def _symbols(model: onnx.ModelProto) -> list[tuple[str, int, str]]:
    """The symbols in the shapes of inputs: (input, axis, symbol)."""
    return [
        (port.name, axis, dim.dim_param)
        for port in model.graph.input
        for axis, dim in enumerate(port.type.tensor_type.shape.dim)
        if dim.dim_param
    ]


def _input_shapes(model: onnx.ModelProto) -> dict[str, tuple[int | str | None, ...]]:
    """Shapes of the main graph's values, from its inputs, weights and operators alone: what a model declares of others
    may be wrong, and engines do not mind.
    """
    bare = onnx.ModelProto()
    bare.ir_version = model.ir_version
    bare.opset_import.extend(model.opset_import)
    bare.graph.name = model.graph.name
    bare.graph.node.extend(model.graph.node)
    bare.graph.input.extend(model.graph.input)
    known = {port.name for port in model.graph.input}
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims) <= _SMALL:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in known:
            bare.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    if not can_infer(bare):
        return {}
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except Exception as error:  # noqa: BLE001  a convenience that fails on models that run: sizes are then measured
        _log.debug("shape inference failed: %s", error)
        return {}
    return {
        info.name: tuple(_dim(dim) for dim in info.type.tensor_type.shape.dim)
        for info in (*inferred.graph.value_info, *inferred.graph.input)
        if info.type.tensor_type.HasField("shape")
    }


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None
