"""Runs a model in segments: all batches through one before the next is loaded, values between them on the disk.

The first batch goes through the model in small pieces, which shows how large its values are; by that the model is cut.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from mezzo.common.memory import Memory, is_out_of_memory
from mezzo.common.sizes import format_size
from mezzo.contracts.segments import Misfit, Segment, crossing_bytes, cut_course
from mezzo.onnx.files.disk_cache import SpillFile, Waiting, storage_of
from mezzo.onnx.files.weights import let_go
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.feeds import Datum
from mezzo.onnx.run.pieces import Flat, Piece
from mezzo.onnx.run.runtime import Settings, lend, load_piece, optimized

_log = logging.getLogger(__name__)

# Nodes that are measured at once, at most.
_MEASURED_TOGETHER = 16
# Batches so much longer than those that were measured are measured themselves.
_GROWTH = 1.1
# How often a model is cut anew where kernels take more for themselves than was thought.
_MOST_CUTS = 4
# Feeds of batches that wait for each other are in memory: so many of them, and so much of what there is.
_MOST_WAITING, _WAITING_SHARE = 64, 8


# Answers of so many bytes are not taken into memory.
_MAPPED_FROM = 1 << 20


class Uncuttable(Exception):
    """ONNX Runtime does not load pieces of what it made of the model."""


class Underway:
    """One run: what it was fed, and what waits of it. Its answers wait, too."""

    def __init__(self, feeds: Mapping[str, Datum]) -> None:
        self.feeds = feeds
        self.waiting: dict[str, Waiting] = {}
        self.fed_bytes = sum(feed.nbytes for feed in feeds.values() if isinstance(feed, np.ndarray))


class Segmented:
    """A model ready to be run in segments. `fed` are weights that it is fed, where they lie."""

    def __init__(self, flat: Flat, fed: Mapping[str, Array], settings: Settings, memory: Memory) -> None:
        self._flat, self._fed, self._settings, self._memory = flat, fed, settings, memory
        self._elements = {port.name: port.type.tensor_type.elem_type for port in flat.model.graph.input}
        self._segments: tuple[Segment, ...] | None = None
        self._sizes: dict[str, int] = {}
        self._measured_bytes = 0
        self._share = 1.0  # of the room that there seems to be

    @property
    def width(self) -> int:
        """How many batches are worth running together: 1 until a batch was measured."""
        if self._segments is None:
            return 1
        room = self._memory.room_bytes() or 0
        return min(_MOST_WAITING, max(1, room // _WAITING_SHARE // max(self._measured_bytes, 1)))

    def compute(self, many: Sequence[Mapping[str, Datum]]) -> list[Underway]:
        """Run batches together; their answers wait.

        Raises:
            InputError: it does not fit in memory, or on the disk.
            Uncuttable: pieces of it do not load.
        """
        runs = [Underway(feeds) for feeds in many]
        rest = [*runs]
        largest = max(rest, key=lambda run: run.fed_bytes)
        if self._segments is None or largest.fed_bytes > _GROWTH * self._measured_bytes:
            rest.remove(largest)
            self._measure(largest)
        if rest:
            self._run_all(rest)
        return runs

    def answers(self, run: Underway) -> dict[str, Datum]:
        """What a run came to, by the results' names. Large ones lie in maps, and cannot be written to."""
        unmade = self._flat.unmade()
        found: dict[str, Datum] = {}
        for name in self._flat.results:
            if name in run.waiting:
                array = run.waiting[name].array()
                found[name] = array.copy() if array.nbytes < _MAPPED_FROM else array
            elif name in run.feeds:
                found[name] = run.feeds[name]
            elif name in self._fed:
                found[name] = np.array(self._fed[name])
            else:
                tensor = unmade[name]
                assert tensor is not None, "a result is made, fed or held"
                found[name] = onnx.numpy_helper.to_array(tensor)
        return found

    # -- the first batch ------------------------------------------------------------------------------------------

    def _measure(self, run: Underway) -> None:
        """Run a batch in small pieces, note how large its values are, and cut by that."""
        while True:
            odd = self._run_measuring(run)
            if not odd:
                break
            self._flat.keep(odd)  # known by now, as it is to the pieces of the next attempt
        self._measured_bytes = max(self._measured_bytes, run.fed_bytes)
        self._cut()

    def _run_measuring(self, run: Underway) -> list[str]:
        """The same once; returns values that would have to cross but cannot, where there are some."""
        most_bytes = (self._memory.room_bytes() or 0) // 4
        course = self._flat.course({}, most_bytes)
        places = [place for place, size in enumerate(crossing_bytes(course)) if size is not None]
        run.waiting.clear()
        at, together = 0, _MEASURED_TOGETHER
        while at < len(places) - 1:
            last = min(at + together, len(places) - 1)
            while last > at + 1 and _weights_between(course, places[at], places[last]) > most_bytes:
                last -= 1
            try:
                odd = self._run_piece(run, places[at], places[last], SpillFile(), shows_all=True)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if last == at + 1:
                    raise self._memory.refusal(self._flat.describe(places[at])) from error
                together = max(1, (last - at) // 2)
                continue
            if odd:
                return odd
            at = last
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
                    what = self._flat.describe(misfit.step)
                    raise self._memory.refusal(f"{what}, which takes {format_size(misfit.needed_bytes)},") from None
                room = misfit.needed_bytes  # nobody holds us to it
        if len(self._segments) > 1:
            self._memory.note_cut(len(self._segments), max(segment.most_bytes for segment in self._segments))

    # -- all batches ----------------------------------------------------------------------------------------------

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
                odd = self._run_loaded(run, piece, runner, spill, segment.stop)
                assert not odd, "what cannot wait is never parted"
        self._end(piece)
        for run in runs:
            self._forget(run, segment.stop)

    # -- one piece ------------------------------------------------------------------------------------------------

    def _run_piece(self, run: Underway, start: int, stop: int, spill: SpillFile, *, shows_all: bool) -> list[str]:
        piece = self._flat.piece(start, stop, shows_all=shows_all)
        odd: list[str] = []
        if piece.makes:
            odd = self._run_loaded(run, piece, self._load(piece), spill, stop)
        self._end(piece)
        self._forget(run, stop)
        return odd

    def _load(self, piece: Piece) -> Any:
        try:
            return load_piece(piece.model, self._settings)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise Uncuttable(str(error)) from error

    def _run_loaded(self, run: Underway, piece: Piece, runner: Any, spill: SpillFile, stop: int) -> list[str]:
        """Run a piece, and let wait what is wanted from `stop` on; returns what cannot."""
        arrays = {name: self._array(run, name) for name in (*piece.reads, *piece.weights)}
        lent = {name: lend(array, element) for name, (array, element) in arrays.items() if array is not None}
        with np.errstate(all="ignore"):
            results = runner.run_with_ort_values([*piece.makes], lent)
        odd = []
        for name, result in zip(piece.makes, results, strict=True):
            is_plain = result.is_tensor() and storage_of(result.element_type()) is not None
            is_wanted = self._flat.is_wanted(name, stop)
            if is_plain:
                self._sizes[name] = max(self._sizes.get(name, 0), result.tensor_size_in_bytes())
                self._flat.kinds[name] = result.element_type()
            if is_wanted and is_plain:
                run.waiting[name] = spill.keep(result)
            elif is_wanted:
                odd.append(name)
        return odd

    def _array(self, run: Underway, name: str) -> tuple[Array | None, int]:
        """What a name stands for in a run, and its element type; None for an input that need not be fed."""
        if name in run.waiting:
            waiting = run.waiting[name]
            return waiting.array(), waiting.element
        found = run.feeds.get(name)
        if found is None:
            found = self._fed.get(name)
        if found is None:
            return None, 0
        return np.require(found, requirements="C"), self._elements[name]

    def _end(self, piece: Piece) -> None:
        """Give the pages of its weights back: other segments read other weights."""
        for name in piece.weights:
            let_go(self._fed[name])

    def _forget(self, run: Underway, stop: int) -> None:
        for name in [name for name in run.waiting if not self._flat.is_wanted(name, stop)]:
            del run.waiting[name]


def cut_model(model: onnx.ModelProto, fed: Mapping[str, Array], settings: Settings, memory: Memory) -> Segmented | None:
    """A model, with the weights that it is fed, ready to be run in segments; None where it cannot be cut: it does not
    load, or takes or gives what cannot wait on the disk.
    """
    try:
        flat = Flat(optimized(model, settings), {name: array.nbytes for name, array in fed.items()})
    except Exception as error:  # noqa: BLE001  whoever runs it in one piece says why it does not load
        _log.debug("the model cannot be optimized beforehand: %s", error)
        return None
    return Segmented(flat, fed, settings, memory) if flat.has_plain_ports() else None


def _weights_between(course: Any, start: int, stop: int) -> int:
    weights = {weight for step in course.steps[start:stop] for weight in step.weights}
    return sum(course.weights_bytes[weight] for weight in weights)
