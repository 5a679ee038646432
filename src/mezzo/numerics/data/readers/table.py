"""Table of data file formats, by the endings of file names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mezzo.numerics.data.readers import (
    array_files,
    csv_files,
    image_files,
    text_files,
    token_rows,
)
from mezzo.numerics.data.readers.parts import Part, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFormat:
    """One format. `is_in_folders`: whether a folder of such files is data; other formats are also
    notes about data. `has_arrays`: their numbers may be preprocessed; `has_images`: the reader
    preprocesses them, and classes may have subfolders; `has_text`: a tokenizer may read them.
    """

    what: str
    suffixes: tuple[str, ...]
    open: Callable[[Sequence[Path], Reading], Sequence[Part]]
    is_in_folders: bool = False
    has_arrays: bool = False
    has_images: bool = False
    has_text: bool = False


def _each(
    open_file: Callable[[Path, Reading], Part],
) -> Callable[[Sequence[Path], Reading], Sequence[Part]]:
    """A reader of one file, for several: a part for each."""
    return lambda files, reading: [open_file(file, reading) for file in files]


def _open_text(path: Path, reading: Reading) -> Part:
    """Rows of tokens where a tokenizer is named, else lines."""
    open_part = text_files.open_text if reading.tokenizer is None else token_rows.open_rows
    return open_part(path, reading)


# The first reads files of no known ending too, and says what they are.
FORMATS: tuple[DataFormat, ...] = (
    DataFormat(
        what=".npz files",
        suffixes=(".npz",),
        open=_each(array_files.open_npz),
        is_in_folders=True,
        has_arrays=True,
    ),
    DataFormat(
        what=".npy files",
        suffixes=(".npy",),
        open=_each(array_files.open_npy),
        is_in_folders=True,
        has_arrays=True,
    ),
    DataFormat(
        what="images",
        suffixes=image_files.SUFFIXES,
        open=lambda files, reading: [image_files.open_images(files, reading)],
        is_in_folders=True,
        has_images=True,
    ),
    DataFormat(what="tables", suffixes=csv_files.SUFFIXES, open=_each(csv_files.open_csv)),
    DataFormat(
        what="text files", suffixes=text_files.SUFFIXES, open=_each(_open_text), has_text=True
    ),
)


def format_of(path: Path) -> DataFormat:
    """The format of a file, by its name."""
    ending = path.suffix.lower()
    return next((row for row in FORMATS if ending in row.suffixes), FORMATS[0])
