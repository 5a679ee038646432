"""Files that a user names as data: folders, patterns, NAME=FILE and files named twice."""

import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.options.data_files import DataFiles
from mezzo.numerics.data.array_fitting import is_float
from mezzo.numerics.data.expected_arrays import ExpectedArrays
from mezzo.numerics.data.preprocess import Preprocess, read_preprocess
from mezzo.numerics.data.readers.parts import Arrays, Part, Reading, changed, joined
from mezzo.numerics.data.readers.table import FORMATS, DataFormat, format_of

_MOST_FILES = 1_000_000
_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_IMAGE_RANK = 4


def find_function(files: DataFiles) -> str | None:
    """The function that data comes from, as "module:function"; None for files.

    Raises InputError: a function and files are given together, or with preprocessing.
    """
    functions = [
        source
        for source in files.sources
        if _FUNCTION.fullmatch(source) and not os.path.lexists(source)
    ]
    if not functions:
        return None
    if files.single is None:
        raise InputError(
            f"data {functions[0]!r} is a function, which gives all batches as the model takes them;"
            " name it alone"
        )
    return functions[0]


def open_files(
    files: DataFiles, expected: ExpectedArrays, folder: Path | None
) -> tuple[Sequence[Part], Sequence[str]]:
    """The parts of the data in order, and notes on it. `folder`: that of the model.

    Raises InputError: a file does not exist, is damaged, or does not fit the model.
    """
    if not files.sources:
        raise InputError("data names no file; give at least one")
    preprocess = None if files.preprocess is None else read_preprocess(files.preprocess)
    tokenizer = None if files.tokenizer is None else Path(files.tokenizer)
    reading = Reading(expected, preprocess, folder=folder, tokenizer=tokenizer)
    named, unnamed = _split_names(files.sources)
    if named and unnamed:
        raise InputError(
            f"data {unnamed[0]!r} is for no input by name, and {named[0][0]!r} has files of its"
            f" own; write NAME={unnamed[0]}, or leave the names out"
        )
    notes: list[str] = []
    paths = [path for source in unnamed for path in _expand(source)]
    if _are_named(paths, expected):
        named = [(path.stem, os.fspath(path)) for path in paths]
    if named:
        parts = _open_named(named, reading, notes)
    else:
        parts = _open_all(_without_repeats(paths, notes), reading)
    for part in parts:
        expected.check(part.where, part.names)
    notes += dict.fromkeys(note for part in parts for note in part.notes)
    return parts, [*notes, *_find_copies(parts)]


def _split_names(sources: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Sources as NAME=SOURCE, and others."""
    named, unnamed = [], []
    for source in sources:
        name, equals, place = source.partition("=")
        if equals and name and place and not os.path.lexists(source):
            named.append((name, place))
        else:
            unnamed.append(source)
    return named, unnamed


def _are_named(paths: Sequence[Path], expected: ExpectedArrays) -> bool:
    """Whether files are .npy files, each called as one of several inputs, or a label."""
    stems = [path.stem for path in paths if path.suffix.lower() == ".npy"]
    is_one_each = len(stems) == len(paths) == len(set(stems)) and set(stems) <= expected.known
    return is_one_each and len(paths) > 1 and len(expected.known) > 1


def _open_named(
    named: Sequence[tuple[str, str]], reading: Reading, notes: list[str]
) -> Sequence[Part]:
    """Parts with an array for each name, from as many files for each."""
    paths: dict[str, list[Path]] = {}
    for name, place in named:
        paths.setdefault(name, []).extend(_expand(place))
    reading.expected.check("data", tuple(paths))
    parts = {
        name: _open_all(_without_repeats(places, notes), reading._replace(name=name))
        for name, places in paths.items()
    }
    counts = {name: len(some) for name, some in parts.items()}
    if len(set(counts.values())) > 1:
        described = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise InputError(f"data: inputs have different numbers of files: {described}; give as many")
    return [joined(some) for some in zip(*parts.values(), strict=True)]


def _expand(source: str) -> Sequence[Path]:
    """The files of a source: a file, the files of a folder, or those that a pattern matches.

    Raises InputError: there is none, or a folder holds several kinds.
    """
    path = Path(source)
    if path.is_dir():
        return _list_folder(path)
    if os.path.lexists(source) or not glob.has_magic(source):
        return [path]
    matches = sorted(itertools.islice(glob.iglob(source, recursive=True), _MOST_FILES))
    files = [Path(match) for match in matches if not os.path.isdir(match)]
    if not files:
        raise InputError(f"data {source!r}: the pattern matches no file; check it with ls")
    return files


def _list_folder(folder: Path) -> Sequence[Path]:
    """The data files of a folder in name order; images of its subfolders too.

    Raises InputError: it has none, or files of several formats.
    """
    by_format: dict[str, list[Path]] = {}
    for file in sorted(itertools.islice(folder.iterdir(), _MOST_FILES)):
        row = format_of(file)
        if row.is_in_folders and file.suffix.lower() in row.suffixes:
            by_format.setdefault(row.what, []).append(file)
    if FORMATS[0].what in by_format:
        return by_format[FORMATS[0].what]
    if len(by_format) > 1:
        found = " and ".join(f"{len(files)} {what}" for what, files in by_format.items())
        pattern = os.path.join(os.fspath(folder), f"*{next(iter(by_format.values()))[0].suffix}")
        raise InputError(f"{folder}: holds {found}; name one kind: {pattern!r}")
    if by_format:
        return next(iter(by_format.values()))
    return _list_images(folder)


def _list_images(folder: Path) -> Sequence[Path]:
    """The images of the subfolders of a folder, as ImageNet's classes have them."""
    subfolders = sorted(
        each for each in itertools.islice(folder.iterdir(), _MOST_FILES) if each.is_dir()
    )
    images = [
        file
        for subfolder in subfolders
        for file in sorted(itertools.islice(subfolder.iterdir(), _MOST_FILES))
        if format_of(file).has_images
    ]
    if not images:
        raise InputError(
            f"{folder}: found no .npz file in this folder; give a folder of them, or one file"
        )
    return images


def _without_repeats(paths: Sequence[Path], notes: list[str]) -> Sequence[Path]:
    """The files, each once."""
    seen: set[object] = set()
    unique = []
    for path in paths:
        try:
            status = os.stat(path)
            identity: object = (status.st_dev, status.st_ino)
        except (OSError, ValueError):  # the reader reports it
            identity = path
        if identity in seen:
            notes.append(f"{os.fspath(path)!r} is named twice and read once")
            continue
        seen.add(identity)
        unique.append(path)
    return unique


def _find_copies(parts: Sequence[Part]) -> Sequence[str]:
    """A note on files of equal content, which count more than once."""
    by_digest: dict[str, Part] = {}
    copies = []
    for part in parts:
        first = by_digest.setdefault(part.digest, part)
        if first is not part:
            copies.append((first, part))
    if not copies:
        return ()
    (first, second), more = copies[0], len(copies) - 1
    others = f", and {more} more are copies" if more else ""
    return (f"{first.origin!r} and {second.origin!r} hold the same{others}",)


def _open_all(paths: Sequence[Path], reading: Reading) -> list[Part]:
    """The parts of files: consecutive files of one format are opened together."""
    parts: list[Part] = []
    for row, files in itertools.groupby(paths, format_of):
        parts += _open_format(row, list(files), reading)
    return parts


def _open_format(row: DataFormat, files: Sequence[Path], reading: Reading) -> Sequence[Part]:
    if reading.tokenizer is not None and not row.has_text:
        raise InputError(f"{files[0]}: {option('tokenizer')} is for text (.txt); leave it out")
    if reading.preprocess is None:
        return row.open(files, reading)
    if not (row.has_images or row.has_arrays):
        raise InputError(
            f"{files[0]}: {option('preprocess')} is for images and arrays; leave it out"
        )
    parts = row.open(files, reading)
    if row.has_images:
        return parts
    return [_preprocessed(part, reading.preprocess, reading.expected) for part in parts]


def _preprocessed(part: Part, preprocess: Preprocess, expected: ExpectedArrays) -> Part:
    """A part with its images, the arrays of rank 4 or the only input, scaled and shifted.

    Raises InputError: the preprocessing has steps for image files.
    """
    if preprocess.needs_images:
        raise InputError(
            f"{part.where}: holds arrays, and {option('preprocess')} resizes, crops or reorders"
            " images; give scale, mean and std alone, or name image files"
        )

    def convert(arrays: Arrays) -> Arrays:
        converted = dict(arrays)
        for name, array in arrays.items():
            is_image = array.ndim == _IMAGE_RANK or len(expected.required) == 1
            if name in expected.inputs and is_image and is_float(expected.types.get(name)):
                axis = _find_channels(array.shape, preprocess)
                preprocess.check_channels(part.where, array.shape[axis] if array.ndim else 1)
                converted[name] = preprocess.convert(array, axis)
        return converted

    return changed(part, convert)


def _find_channels(shape: Sequence[int], preprocess: Preprocess) -> int:
    """The axis of channels: that of the layout, else the one as long as mean or std."""
    if preprocess.layout == "nhwc" or len(shape) < 2:
        return -1
    count = max(len(preprocess.mean), len(preprocess.std))
    is_last = preprocess.layout is None and shape[1] != count and shape[-1] == count
    return -1 if is_last else 1
