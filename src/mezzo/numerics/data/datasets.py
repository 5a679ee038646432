"""Data sets for running a model: .npz files, folders of them, or Python iterables of dicts,
streamed batch by batch.
"""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.message_style import either, option
from mezzo.common.name_matching import aside, ask_for, nearest
from mezzo.numerics.data.npz import NpzFile
from mezzo.numerics.measures import DataSource

Data = (
    str
    | os.PathLike[str]
    | Mapping[str, Any]
    | Iterable[Mapping[str, Any]]
    | Callable[[], Iterable[Any]]
)

# Names that numpy.savez gives to positional arrays.
_NAMELESS = re.compile(r"arr_\d+")
_MOST_ASKED_ABOUT = 20  # limit on names to look for misspellings of


@dataclass(frozen=True, slots=True)
class Batch:
    """One set of feeds and labels. `origin` is for messages: "calib.npz", "calib.npz[32:64]",
    "batch 3".

    `samples`: the leading length that all feeds of rank 1 or more share, 1 if they share none.
    """

    feeds: Mapping[str, Any]
    labels: Mapping[str, Any]
    origin: str
    samples: int


class Dataset:
    """A stream of batches, one in memory at a time. Iterating starts over, unless the data is a
    one-shot iterator.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Iterator[Batch]],
        seed: int | None = None,
        content: tuple[str, ...] = (),
    ) -> None:
        """`start` begins a pass over the data. `seed`: set for random inputs. `content`: one digest
        per file, to tell files of equal names apart; empty for other data.
        """
        self.name = name
        self.content = content
        self.seed = seed
        self._start = start

    def source(self, batches: int, samples: int) -> DataSource:
        """A record of the data, as far as it was used."""
        return DataSource(self.name, batches, samples, self.seed)

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

    return Dataset(data.name, start, data.seed, data.content)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Names of required and optional inputs, and labels. `others`: more arrays are allowed."""

    inputs: tuple[str, ...]
    optional: frozenset[str]
    labels: tuple[str, ...]
    others: bool

    @property
    def known(self) -> frozenset[str]:
        return frozenset((*self.inputs, *self.labels))

    def check(self, where: str, names: Collection[str]) -> None:
        """Raises InputError: a required name is missing, or a name is unknown."""
        available = frozenset(names)
        needed = dict.fromkeys(
            (*(name for name in self.inputs if name not in self.optional), *self.labels)
        )
        missing = [name for name in needed if name not in available]
        allowed = self.known
        unknown = [str(name) for name in names if name not in allowed]
        asked_about = unknown[:_MOST_ASKED_ABOUT]
        meant = {name: near[0] for name in asked_about if (near := nearest(name, missing, 1))}
        if self.others:  # further arrays are at fault only if they may be a misspelled missing one
            unknown = [
                name for name in unknown if missing and (name in meant or _NAMELESS.fullmatch(name))
            ]
        if not missing and not unknown:
            return
        faults = [f"nothing for {_quote(missing)}"] if missing else []
        suggestion = aside(ask_for(dict.fromkeys(meant.values())))
        faults += (
            [f"{_quote(unknown)}, which the model does not have{suggestion}"] if unknown else []
        )
        descriptions = [
            f"{name!r} (optional)" if name in self.optional else repr(name) for name in self.inputs
        ]
        descriptions += [f"{name!r} (label)" for name in self.labels]
        raise InputError(
            f"{where}: found {' and '.join(faults)}; the model wants"
            f" {', '.join(descriptions) or 'no inputs'}{self._remedy(unknown, missing, meant)}"
        )

    def _remedy(
        self, unknown: Sequence[str], missing: Sequence[str], meant: Mapping[str, str]
    ) -> str:
        """The advice for unknown names, with its leading semicolon."""
        if not unknown:
            return ""
        if missing and all(_NAMELESS.fullmatch(name) for name in unknown):
            named = (
                ", ".join(f"{name}=..." for name in missing if name.isidentifier())
                or "**{'NAME': ...}"
            )
            return f"; numpy.savez was told no names: write numpy.savez(FILE, {named})"
        if meant:
            wrong, right = next(iter(meant.items()))
            return f"; give {wrong!r} the name {right!r}"
        label = either(f"--labels {unknown[0]}", f"labels=[{unknown[0]!r}]")
        return f"; if {unknown[0]!r} is for the metric, name it as a label: {label}"


def open_data(
    data: Data,
    inputs: Collection[str],
    *,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    at_most: int | None = None,
    optional: Collection[str] = (),
    others: bool = False,
) -> Dataset:
    """Open an .npz file, a folder of them in name order, one dict, an iterable of dicts, or a
    callable that returns an iterable. `batch_size` splits along the first axis; `at_most` does so
    only where arrays have equal lengths. `optional`: inputs that may be absent. `others`: further
    arrays are ignored.

    Raises:
        InputError: the data does not exist, or a file's names are wrong.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"{option('batch_size')} is {batch_size}; give 1 or more")
    expected = _Wanted(tuple(inputs), frozenset(optional), tuple(labels), others)
    cutting = _Cutting(
        at_most if batch_size is None else batch_size, is_asked=batch_size is not None
    )
    if isinstance(data, str | os.PathLike):
        return _open_path(Path(data), expected, cutting)
    if isinstance(data, Mapping):
        return Dataset("one batch", lambda: _from_dicts([data], expected, cutting))
    if callable(data):
        return Dataset("batches", lambda: _from_dicts(data(), expected, cutting))
    if not isinstance(data, Iterable):
        raise InputError(
            f"data is a {type(data).__name__}; give an .npz file, a folder of them, or dicts of"
            " arrays"
        )
    if isinstance(data, Iterator):
        return Dataset("batches", _once(data, expected, cutting))
    return Dataset("batches", lambda: _from_dicts(data, expected, cutting))


class _Cutting(NamedTuple):
    """The length of parts to split arrays into along their first axis. `is_asked`: arrays that
    cannot be split are an error.
    """

    size: int | None
    is_asked: bool


def _open_path(path: Path, expected: _Wanted, cutting: _Cutting) -> Dataset:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == ".npz")
        if not files:
            raise InputError(
                f"{path}: found no .npz file in this folder; give a folder of them, or one file"
            )
    else:
        files = [path]
    content = []
    for file in files:  # a wrong name in the last file is reported now, not after an hour
        with NpzFile(file) as opened:
            expected.check(str(file), opened.names)
            content.append(hashlib.sha256(repr(opened.checksums).encode()).hexdigest()[:16])

    def start() -> Iterator[Batch]:
        for file in files:
            yield from _from_file(file, expected, cutting)

    return Dataset(str(path), start, content=tuple(content))


def _from_file(path: Path, expected: _Wanted, cutting: _Cutting) -> Iterator[Batch]:
    with NpzFile(path) as opened:
        expected.check(str(path), opened.names)
        names = [name for name in opened.names if name in expected.known]
        shapes = {name: opened.header(name).shape for name in names}
        lengths = {name: shape[0] for name, shape in shapes.items() if shape}
        runs = _runs(str(path), lengths, cutting)
        if len(runs) == 1:
            yield _make_batch({name: opened.read(name) for name in names}, expected, path.name)
            return
        fixed = {name: opened.read(name) for name in names if name not in lengths}
        rows = {
            name: opened.read_rows(name, [end - start for start, end in runs]) for name in lengths
        }
        for start, end in runs:
            part = {name: fixed[name] if name in fixed else next(rows[name]) for name in names}
            yield _make_batch(part, expected, f"{path.name}[{start}:{end}]")


def _once(
    data: Iterator[Mapping[str, Any]], expected: _Wanted, cutting: _Cutting
) -> Callable[[], Iterator[Batch]]:
    is_spent = False

    def start() -> Iterator[Batch]:
        nonlocal is_spent
        if is_spent:
            raise InputError(
                "data is a one-shot iterator and was read once; pass a list, or a callable that"
                " makes it"
            )
        is_spent = True
        yield from _from_dicts(data, expected, cutting)

    return start


def _from_dicts(data: Iterable[Any], expected: _Wanted, cutting: _Cutting) -> Iterator[Batch]:
    if not isinstance(data, Iterable):
        raise InputError(
            f"the data's callable gave a {type(data).__name__}; let it return an iterable of dicts"
        )
    for position, arrays in enumerate(data):
        origin = f"batch {position}"
        if not isinstance(arrays, Mapping):
            raise InputError(
                f"data, {origin}: found a {type(arrays).__name__}; give a dict of arrays by input"
                " name"
            )
        expected.check(f"data, {origin}", arrays)
        values = {name: _as_array(value) for name, value in arrays.items()}
        lengths = {
            name: length
            for name, value in values.items()
            if (length := _leading(value)) is not None
        }
        runs = _runs(f"data, {origin}", lengths, cutting)
        if len(runs) < 2:
            yield _make_batch(values, expected, origin)
        for start, end in runs if len(runs) > 1 else ():
            part = {
                name: value[start:end] if name in lengths else value
                for name, value in values.items()
            }
            yield _make_batch(part, expected, f"{origin}[{start}:{end}]")


def _runs(where: str, lengths: Mapping[str, int], cutting: _Cutting) -> list[tuple[int, int]]:
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
    return [(start, min(start + size, longest)) for start in range(0, longest, size)]


def _make_batch(arrays: Mapping[str, Any], expected: _Wanted, origin: str) -> Batch:
    feeds = {name: arrays[name] for name in expected.inputs if name in arrays}
    lengths = {length for value in feeds.values() if (length := _leading(value)) is not None}
    samples = lengths.pop() if len(lengths) == 1 else 1
    return Batch(feeds, {name: arrays[name] for name in expected.labels}, origin, samples)


def _as_array(value: Any) -> Any:
    """A NumPy array of a value with a shape, such as a tensor; lists and None stay."""
    return np.asarray(value) if hasattr(value, "shape") else value


def _leading(value: Any) -> int | None:
    """Length of the first axis; None for scalars, absent values and sequences of arrays."""
    if isinstance(value, np.ndarray):
        return value.shape[0] if value.ndim else None
    if isinstance(value, list | tuple) and not any(
        isinstance(element, np.ndarray) for element in value
    ):
        return len(value)
    return None


def _quote(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
