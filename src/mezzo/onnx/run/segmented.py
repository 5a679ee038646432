"""Segmented execution of models larger than memory: all batches run segment by segment.

Values between segments are spilled to disk. The first batch runs in small pieces to measure sizes
of values, from which the segments are chosen.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from mezzo.common.memory import MemoryLimit, is_out_of_memory
from mezzo.common.sizes import format_size
from mezzo.contracts.segments import Misfit, Segment, crossing_bytes, cut_course
from mezzo.onnx.files.disk_cache import SpillFile, Waiting, storage_of
from mezzo.onnx.files.weights import let_go
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.feeds import Datum
from mezzo.onnx.run.pieces import Flat, ModelPiece
from mezzo.onnx.run.runtime import SessionSettings, lend, load_piece, optimized

_log = logging.getLogger(__name__)

# The largest number of cut points inside a measured piece.
_MEASURED_TOGETHER = 16
# Batches this many times larger than the measured ones are measured again.
_GROWTH = 1.1
# The number of attempts to cut into smaller segments, if kernels need more memory than estimated.
_MOST_CUTS = 4
# Batches that run together have their feeds in memory: at most this many, and 1/8 of the memory.
_MOST_WAITING, _WAITING_SHARE = 64, 8


# Outputs of at least this many bytes stay memory-mapped.
_MAPPED_FROM = 1 << 20


class Uncuttable(Exception):
    """ONNX Runtime does not load parts of its own optimized model."""


class Underway:
    """One run in progress: its feeds, and its values and outputs on disk (`waiting`)."""

    def __init__(self, feeds: Mapping[str, Datum]) -> None:
        self.feeds = feeds
        self.waiting: dict[str, Waiting] = {}
        self.fed_bytes = sum(feed.nbytes for feed in feeds.values() if isinstance(feed, np.ndarray))


class Segmented:
    """A model that runs in segments. `fed` are its weights as inputs, memory-mapped."""

    def __init__(
        self, flat: Flat, fed: Mapping[str, Array], settings: SessionSettings, memory: MemoryLimit
    ) -> None:
        self._flat, self._fed, self._settings, self._memory = flat, fed, settings, memory
        self._elements = {
            port.name: port.type.tensor_type.elem_type for port in flat.model.graph.input
        }
        self._segments: tuple[Segment, ...] | None = None
        self._sizes: dict[str, int] = {}
        self._measured_bytes = 0
        self._share = 1.0  # of the available memory; halved after each failed allocation

    @property
    def width(self) -> int:
        """How many batches to run together: 1 until a batch was measured."""
        if self._segments is None:
            return 1
        room = self._memory.room_bytes() or 0
        return min(_MOST_WAITING, max(1, room // _WAITING_SHARE // max(self._measured_bytes, 1)))

    def compute(self, many: Sequence[Mapping[str, Datum]]) -> list[Underway]:
        """Run batches together; `answers` returns their outputs.

        Raises:
            InputError: the model exceeds memory, or its values the disk.
            Uncuttable: a part does not load.
        """
        runs = [Underway(feeds) for feeds in many]
        remaining = [*runs]
        largest = max(remaining, key=lambda run: run.fed_bytes)
        if self._segments is None or largest.fed_bytes > _GROWTH * self._measured_bytes:
            remaining.remove(largest)
            self._measure(largest)
        if remaining:
            self._run_all(remaining)
        return runs

    def answers(self, run: Underway) -> dict[str, Datum]:
        """Outputs of a run by name. Large ones are read-only memory maps."""
        unmade = self._flat.unmade()
        outputs: dict[str, Datum] = {}
        for name in self._flat.results:
            if name in run.waiting:
                array = run.waiting[name].array()
                outputs[name] = array.copy() if array.nbytes < _MAPPED_FROM else array
            elif name in run.feeds:
                outputs[name] = run.feeds[name]
            elif name in self._fed:
                outputs[name] = np.array(self._fed[name])
            else:
                tensor = unmade[name]
                assert tensor is not None, "a result is made, fed or held"
                outputs[name] = onnx.numpy_helper.to_array(tensor)
        return outputs

    # -- the first batch ---------------------------------------------------------------------------

    def _measure(self, run: Underway) -> None:
        """Run a batch in small pieces, record the sizes of its values, and choose the segments."""
        while True:
            unspillable = self._run_measuring(run)
            if not unspillable:
                break
            self._flat.keep(unspillable)  # no cuts there in the next attempt
        self._measured_bytes = max(self._measured_bytes, run.fed_bytes)
        self._cut()

    def _run_measuring(self, run: Underway) -> list[str]:
        """One attempt of `_measure`; returns values at cuts that cannot be spilled, if any."""
        most_bytes = (self._memory.room_bytes() or 0) // 4
        course = self._flat.course({}, most_bytes)
        cuts = [
            position for position, size in enumerate(crossing_bytes(course)) if size is not None
        ]
        run.waiting.clear()
        index, count = 0, _MEASURED_TOGETHER
        while index < len(cuts) - 1:
            end = min(index + count, len(cuts) - 1)
            while end > index + 1 and _weights_between(course, cuts[index], cuts[end]) > most_bytes:
                end -= 1
            try:
                unspillable = self._run_piece(
                    run, cuts[index], cuts[end], SpillFile(), shows_all=True
                )
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if end == index + 1:
                    raise self._memory.refusal(self._flat.describe(cuts[index])) from error
                count = max(1, (end - index) // 2)
                continue
            if unspillable:
                return unspillable
            index = end
        return []

    def _cut(self) -> None:
        room = int((self._memory.room_bytes() or 0) * self._share)
        while True:
            course = self._flat.course(self._sizes, room // 2)
            try:
                self._segments = cut_course(course, room)
                break
            except Misfit as misfit:
                if self._memory.is_asked:
                    step_text = self._flat.describe(misfit.step)
                    raise self._memory.refusal(
                        f"{step_text}, which takes {format_size(misfit.needed_bytes)},"
                    ) from None
                room = misfit.needed_bytes  # no memory limit is set: exceed the estimate
        if len(self._segments) > 1:
            self._memory.note_cut(
                len(self._segments), max(segment.most_bytes for segment in self._segments)
            )

    # -- all batches -------------------------------------------------------------------------------

    def _run_all(self, runs: Sequence[Underway]) -> None:
        for attempt in range(_MOST_CUTS):
            assert self._segments is not None, "measured before"
            try:
                for segment in self._segments:
                    self._run_segment(runs, segment)
                return
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if attempt == _MOST_CUTS - 1:
                    raise self._memory.refusal("the model") from error
            for run in runs:
                run.waiting.clear()
            self._share /= 2
            self._cut()

    def _run_segment(self, runs: Sequence[Underway], segment: Segment) -> None:
        piece = self._flat.piece(segment.start, segment.stop)
        if piece.makes:
            runner, spill = self._load(piece), SpillFile()
            for run in runs:
                unspillable = self._run_loaded(run, piece, runner, spill, segment.stop)
                assert not unspillable, "what cannot wait is never parted"
        self._end(piece)
        for run in runs:
            self._forget(run, segment.stop)

    # -- one piece ---------------------------------------------------------------------------------

    def _run_piece(
        self, run: Underway, start: int, stop: int, spill: SpillFile, *, shows_all: bool
    ) -> list[str]:
        piece = self._flat.piece(start, stop, shows_all=shows_all)
        unspillable: list[str] = []
        if piece.makes:
            unspillable = self._run_loaded(run, piece, self._load(piece), spill, stop)
        self._end(piece)
        self._forget(run, stop)
        return unspillable

    def _load(self, piece: ModelPiece) -> Any:
        try:
            return load_piece(piece.model, self._settings)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise Uncuttable(str(error)) from error

    def _run_loaded(
        self, run: Underway, piece: ModelPiece, runner: Any, spill: SpillFile, stop: int
    ) -> list[str]:
        """Run a piece, spill values used from `stop` on; returns those that cannot be."""
        arrays = {name: self._array(run, name) for name in (*piece.reads, *piece.weights)}
        lent = {
            name: lend(array, element)
            for name, (array, element) in arrays.items()
            if array is not None
        }
        with np.errstate(all="ignore"):
            results = runner.run_with_ort_values([*piece.makes], lent)
        unspillable = []
        for name, result in zip(piece.makes, results, strict=True):
            is_plain = result.is_tensor() and storage_of(result.element_type()) is not None
            is_wanted = self._flat.is_wanted(name, stop)
            if is_plain:
                self._sizes[name] = max(self._sizes.get(name, 0), result.tensor_size_in_bytes())
                self._flat.kinds[name] = result.element_type()
            if is_wanted and is_plain:
                run.waiting[name] = spill.keep(result)
            elif is_wanted:
                unspillable.append(name)
        return unspillable

    def _array(self, run: Underway, name: str) -> tuple[Array | None, int]:
        """A value's array and element type in a run; None for an optional input."""
        if name in run.waiting:
            spilled = run.waiting[name]
            return spilled.array(), spilled.element
        array = run.feeds.get(name)
        if array is None:
            array = self._fed.get(name)
        if array is None:
            return None, 0
        return np.require(array, requirements="C"), self._elements[name]

    def _end(self, piece: ModelPiece) -> None:
        """Release the memory pages of a piece's weights, which other segments do not use."""
        for name in piece.weights:
            let_go(self._fed[name])

    def _forget(self, run: Underway, stop: int) -> None:
        for name in [name for name in run.waiting if not self._flat.is_wanted(name, stop)]:
            del run.waiting[name]


def cut_model(
    model: onnx.ModelProto, fed: Mapping[str, Array], settings: SessionSettings, memory: MemoryLimit
) -> Segmented | None:
    """Prepare a model, with its weights as inputs, to run in segments. None if it does not load, or
    has inputs or outputs that cannot be spilled to disk.
    """
    try:
        flat = Flat(optimized(model, settings), {name: array.nbytes for name, array in fed.items()})
    except Exception as error:  # noqa: BLE001  running it in one piece raises the error again
        _log.debug("the model cannot be optimized beforehand: %s", error)
        return None
    return Segmented(flat, fed, settings, memory) if flat.has_plain_ports() else None


def _weights_between(course: Any, start: int, stop: int) -> int:
    weights = {weight for step in course.steps[start:stop] for weight in step.weights}
    return sum(course.weights_bytes[weight] for weight in weights)
