"""Data sets for running a model, streamed batch by batch: files (`sources.py`), or Python's dicts,
arrays, iterables and functions.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mezzo.common.errors import InputError, MezzoError
from mezzo.common.message_style import option, setting
from mezzo.contracts.options.data_files import DataFiles, Source
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.array_fitting import (
    add_batch_axis,
    as_array,
    find_flat,
    name_arrays,
    shapes_of,
)
from mezzo.numerics.data.expected_arrays import ExpectedArrays
from mezzo.numerics.data.readers.parts import Part, Run, digest_file
from mezzo.numerics.data.replay import Replay
from mezzo.numerics.data.sources import find_function, open_files
from mezzo.numerics.measures import DataSource
from mezzo.plugins.functions import find_source, load_function, say

Data = (
    Source
    | Sequence[Source]
    | DataFiles
    | Mapping[str, Any]
    | Iterable[Any]
    | Callable[[], Iterable[Any]]
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """One set of feeds and labels. `origin` is for messages: "calib.npz", "calib.npz[32:64]",
    "batch 3".

    `samples`: the leading length that all feeds of rank 1 or more share, 1 if they share none.
    `tokens`: the feed whose rows are running text, as token ids; None if none is.
    """

    feeds: Mapping[str, Any]
    labels: Mapping[str, Any]
    origin: str
    samples: int
    _: KW_ONLY
    tokens: str | None = None


class Notes(list[str]):
    """Sentences on how data was fitted to a model, each once; logged as they are found."""

    def add(self, where: str, note: str) -> None:
        """Add a sentence that is not there yet."""
        if note and note not in self:
            self.append(note)
            _log.info("%s: %s", where, note)


class Dataset:
    """A stream of batches, one in memory at a time. Iterating starts over.

    `notes`: how the data was fitted to the model; passes over the data may add to them.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Iterator[Batch]],
        seed: int | None = None,
        content: tuple[str, ...] = (),
        notes: "Notes | None" = None,
        start_cut: "Callable[[int], Iterator[Batch]] | None" = None,
    ) -> None:
        """`start` begins a pass over the data. `seed`: set for random inputs. `content`: one digest
        per file, to tell files of equal names apart; empty for other data. `start_cut` begins a
        pass in batches of a size at most; None if the data has batches of its own.
        """
        self.notes = Notes() if notes is None else notes
        self.start_cut = start_cut
        self.name = name
        self.content = content
        self.seed = seed
        self._start = start

    def source(self, batches: int, samples: int) -> DataSource:
        """A record of the data, as far as it was used."""
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return DataSource(self.name + notes, batches, samples, self.seed)

    def __iter__(self) -> Iterator[Batch]:
        """Begin a pass. Raises InputError: the data does not fit, is empty, or is spent."""
        is_empty = True
        for batch in self._start():
            is_empty = False
            yield batch
        if is_empty:
            raise InputError(f"{self.name}: found no batch; give at least one")

    def filled(self) -> Iterator[Batch]:
        """Begin a pass over the batches that hold samples."""
        return (batch for batch in self if batch.samples)


class OutOfTime(Exception):
    """A pass over data ended at the time limit."""


def in_time(data: Dataset, may_go_on: Callable[[], bool]) -> Dataset:
    """The same data, with passes that raise OutOfTime once `may_go_on` returns False."""

    def start() -> Iterator[Batch]:
        for batch in data:
            if not may_go_on():
                raise OutOfTime
            yield batch

    return Dataset(data.name, start, data.seed, data.content, data.notes)


def open_data(
    data: Data,
    inputs: Collection[str],
    *,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    fixed_length: int | None = None,
    optional: Collection[str] = (),
    others: bool = False,
    types: Mapping[str, Slot] | None = None,
    folder: Path | None = None,
) -> Dataset:
    """Open files, one dict or array, an iterable of them, or a callable that returns an iterable.
    `batch_size` splits along the first axis, and so does `fixed_length`, which leaves out samples
    that are left over. `optional`: inputs that may be absent. `others`: further arrays are ignored.
    `types`: of inputs; `folder`: that of the model.

    Raises:
        InputError: the data does not exist, or a file's names are wrong.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"{option('batch_size')} is {batch_size}; give 1 or more")
    expected = ExpectedArrays(
        inputs=tuple(inputs), optional=frozenset(optional), labels=tuple(labels), others=others,
        types=types or {},
    )  # fmt: skip
    cutting = _Cutting(batch_size or fixed_length, bool(batch_size or fixed_length), fixed_length)
    data = as_files(data)
    if isinstance(data, DataFiles):
        function = find_function(data)
        if function is None:
            return _open_parts(data, expected, cutting, folder)
        loaded = load_function(function, "data", "no arguments")
        source = find_source(loaded)
        content = () if source is None else (digest_file(source),)
        return _from_python(function, _guarded(function, loaded), expected, cutting, content)
    if isinstance(data, Mapping) or hasattr(data, "shape"):
        return _from_python("one batch", [data], expected, cutting, is_one=True)
    if callable(data) and not isinstance(data, Iterable):
        start, notes = data, Notes()
        return Dataset(
            "batches",
            lambda: _cut_all(_name_all(_called(start), expected, notes), expected, cutting, notes),
            notes=notes,
        )
    if not isinstance(data, Iterable):
        raise InputError(
            f"data is a {type(data).__name__}; give an .npz file, a folder of them, or dicts of"
            " arrays"
        )
    return _from_python("batches", data, expected, cutting)


class _Cutting(NamedTuple):
    """The length of parts to split arrays into along their first axis. `is_asked`: arrays that
    cannot be split are an error. `fixed_length`: the model's, if it is why.
    """

    size: int | None
    is_asked: bool
    fixed_length: int | None = None


def as_files(data: Data) -> Data:
    """Data that is a path, or several of them, as a record of files; other data as it is."""
    given: Sequence[Any] = data if isinstance(data, list | tuple) else [data]
    paths = [os.fspath(path) for path in given if isinstance(path, str | os.PathLike)]
    return DataFiles(paths) if paths and len(paths) == len(given) else data


def _open_parts(
    files: DataFiles, expected: ExpectedArrays, cutting: _Cutting, folder: Path | None
) -> Dataset:
    name, notes = str(files), Notes()
    parts, found = open_files(files, expected, folder)
    for note in found:
        notes.add(name, note)

    def start(at_most: int | None = None) -> Iterator[Batch]:
        chosen = cutting if at_most is None else cutting._replace(size=at_most)
        for part in parts:
            runs = _runs_of(part, chosen, notes)
            batches = zip(runs, part.read(runs), strict=True)
            for (begin, end), arrays in batches:
                origin = part.origin if len(runs) == 1 else f"{part.origin}[{begin}:{end}]"
                yield _make_batch(arrays, expected, origin, part.tokens)

    content = tuple(part.digest for part in parts)
    has_rows = any(part.tokens for part in parts)  # whose logits have set the usual size
    return Dataset(name, start, content=content, notes=notes, start_cut=None if has_rows else start)


def _runs_of(part: Part, cutting: _Cutting, notes: Notes) -> list[Run]:
    """The runs of a part: samples that differ in shape run one by one."""
    size = part.usual if cutting.size is None else cutting.size
    if not part.is_even:
        if (size != 1 and cutting.is_asked) or (cutting.fixed_length or 1) > 1:
            raise InputError(
                f"{part.where}: images differ in size and cannot be in one batch of {size}; give"
                f" {setting('preprocess', 'resize=HxW')}"
            )
        size = 1
    return _runs(part.where, part.lengths, cutting._replace(size=size), notes)


def _guarded(name: str, function: Callable[[], Any]) -> Iterator[Any]:
    """The batches of a function that the command line names. Raises InputError: it fails."""
    try:
        yield from _called(function)
    except MezzoError:
        raise
    except Exception as error:
        raise InputError(f"data {name!r} failed: {say(error)}; mend it") from error


def _called(function: Callable[[], Any]) -> Iterable[Any]:
    batches = function()
    if isinstance(batches, Mapping) or hasattr(batches, "shape"):
        return [batches]
    if not isinstance(batches, Iterable):
        raise InputError(
            f"the data's callable gave a {type(batches).__name__}; let it return an iterable of"
            " dicts"
        )
    return batches


def _from_python(
    name: str,
    data: Iterable[Any],
    expected: ExpectedArrays,
    cutting: _Cutting,
    content: tuple[str, ...] = (),
    *,
    is_one: bool = False,
) -> Dataset:
    """The batches of an iterable. What is no list is read once and kept: a generator cannot be read
    again, and a shuffling loader would give other batches. `is_one`: one batch, to cut as needed.
    """
    notes = Notes()
    kept = data if isinstance(data, list | tuple) else None
    replay = None if kept is not None else Replay(_name_all(data, expected, notes))

    def start(at_most: int | None = None) -> Iterator[Batch]:
        chosen = cutting if at_most is None else cutting._replace(size=at_most)
        named = replay or _name_all(kept or (), expected, notes)
        return _cut_all(named, expected, chosen, notes)

    start_cut = start if is_one else None
    return Dataset(name, start, content=content, notes=notes, start_cut=start_cut)


def _name_all(
    data: Iterable[Any], expected: ExpectedArrays, notes: Notes
) -> Iterator[Mapping[str, Any]]:
    """The arrays of each batch by name. Raises InputError: a batch has wrong names."""
    for position, item in enumerate(data):
        where = f"data, batch {position}"
        arrays, note = name_arrays(where, item, expected)
        notes.add("data", note)
        expected.check(where, arrays)
        yield {name: as_array(value) for name, value in arrays.items()}


def _cut_all(
    batches: Iterable[Mapping[str, Any]], expected: ExpectedArrays, cutting: _Cutting, notes: Notes
) -> Iterator[Batch]:
    for position, arrays in enumerate(batches):
        origin = f"batch {position}"
        flat, found = find_flat(shapes_of(arrays), expected.types)
        for note in found:
            notes.add("data", note)
        values = add_batch_axis(arrays, flat)
        lengths = {
            name: length
            for name, value in values.items()
            if (length := _leading(value)) is not None
        }
        runs = _runs(f"data, {origin}", lengths, cutting, notes)
        if runs == [(0, max(lengths.values(), default=0))]:
            yield _make_batch(values, expected, origin)
            continue
        for start, end in runs:
            part = {
                name: value[start:end] if name in lengths else value
                for name, value in values.items()
            }
            yield _make_batch(part, expected, f"{origin}[{start}:{end}]")


def _runs(
    where: str, lengths: Mapping[str, int], cutting: _Cutting, notes: Notes
) -> list[tuple[int, int]]:
    """The slices of the first axis. Raises InputError: a split is needed, but lengths differ."""
    longest = max(lengths.values(), default=0)
    size = longest if cutting.size is None else cutting.size
    are_alike = len(set(lengths.values())) == 1
    if longest <= size or not (are_alike or cutting.is_asked):
        return [(0, longest)]
    if not are_alike:
        described = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise InputError(
            f"{where}: cannot be split into batches of {size}, the first axes differ in length:"
            f" {described}; give arrays of one length, or do not split"
        )
    runs = [(start, min(start + size, longest)) for start in range(0, longest, size)]
    if cutting.fixed_length != size:
        return runs
    notes.add(where, f"samples run in batches of {size}, the length that the model fixes")
    if longest % size:
        notes.add(where, f"samples left over after batches of {size} are left out")
        del runs[-1]
    return runs


def _make_batch(
    arrays: Mapping[str, Any], expected: ExpectedArrays, origin: str, tokens: str | None = None
) -> Batch:
    feeds = {name: arrays[name] for name in expected.inputs if name in arrays}
    lengths = {length for value in feeds.values() if (length := _leading(value)) is not None}
    samples = lengths.pop() if len(lengths) == 1 else 1
    labels = {name: arrays[name] for name in expected.labels}
    return Batch(feeds, labels, origin, samples, tokens=tokens)


def _leading(value: Any) -> int | None:
    """Length of the first axis; None for scalars, absent values and sequences of arrays."""
    if isinstance(value, np.ndarray):
        return value.shape[0] if value.ndim else None
    if isinstance(value, list | tuple) and not any(
        isinstance(element, np.ndarray) for element in value
    ):
        return len(value)
    return None
