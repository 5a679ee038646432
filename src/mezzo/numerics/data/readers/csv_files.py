"""Tables in text: columns by the names of inputs, or all columns as the rows of the only input.

A table is read once to check it, and again for each pass, one batch of rows in memory at a time.
"""

import csv
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mezzo.common.errors import InputError
from mezzo.numerics.data.array_fitting import is_text
from mezzo.numerics.data.expected_arrays import ExpectedArrays
from mezzo.numerics.data.readers.lines import read_lines
from mezzo.numerics.data.readers.parts import Arrays, Part, Reading, Run, digest_of

SUFFIXES = (".csv", ".tsv")
_MOST_COLUMNS = 16_384
USUAL = 1024
_SEPARATORS = (",", ";", "\t")
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The layout of a table. `columns`: positions by the name of an array; `kinds`: "i", "f" or "U"
    by column; `has_header`: whether the first line has names.
    """

    path: Path
    separator: str
    has_header: bool
    columns: Mapping[str, tuple[int, ...]]
    kinds: Sequence[str]
    rows: int

    def read(self, rows: Iterator[list[str]], count: int, ranks: Mapping[str, int]) -> Arrays:
        """The arrays of the next rows. `ranks`: of inputs; a column is a vector unless its input
        has rank 2.
        """
        block = list(islice(rows, count))
        arrays: dict[str, Any] = {}
        for name, positions in self.columns.items():
            kinds = {self.kinds[position] for position in positions}
            dtype = np.int64 if kinds == {"i"} else np.str_ if "U" in kinds else np.float64
            cells = [[row[position].strip() for position in positions] for row in block]
            array = np.array(cells, np.str_).reshape(len(block), len(positions)).astype(dtype)
            arrays[name] = array[:, 0] if len(positions) == 1 and ranks.get(name) != 2 else array
        return arrays


def open_csv(path: Path, reading: Reading) -> Part:
    """The rows of a table. Raises InputError: a row is damaged, or columns fit no input."""
    expected = reading.expected
    table, digest = _look_at(path, reading)
    ranks = {name: len(slot.lengths or ()) for name, slot in expected.types.items()}

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        rows = _rows(path, table.separator)
        if table.has_header:
            next(rows)
        for start, end in runs:
            yield table.read(rows, end - start, ranks)

    return Part(
        where=str(path), origin=path.name, names=tuple(table.columns),
        lengths=dict.fromkeys(table.columns, table.rows), read=read, digest=digest, usual=USUAL,
    )  # fmt: skip


def _look_at(path: Path, reading: Reading) -> tuple[_Table, str]:
    """The layout of a table and a digest of its content: one pass over the file."""
    separator = _find_separator(path)
    rows = _rows(path, separator)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path}: holds no row; give a sample per row")
    has_header = _is_header(first, reading.expected)
    names = [cell.strip() for cell in first] if has_header else []
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) < 1000 else []
    if twice:
        raise InputError(f"{path}: column {twice[0]!r} is there more than once; keep one")
    columns = _assign(path, names, len(first), reading)
    kinds = ["i"] * len(first)
    total, count = hashlib.sha256(), 0
    if not has_header:
        rows = _rows(path, separator)
    used = sorted({position for positions in columns.values() for position in positions})
    for number, row in enumerate(rows, 1 + has_header):
        if len(row) != len(first):
            raise InputError(
                f"{path}: row {number} has {len(row)} columns, and the first has {len(first)};"
                " mend it"
            )
        for position in used:
            kind = _kind_of(row[position])
            if not kind:
                column = repr(names[position]) if names else str(position + 1)
                raise InputError(f"{path}: row {number}, column {column}: is empty; fill it in")
            kinds[position] = max(kinds[position], kind, key="ifU".index)
        total.update("\x1f".join(row).encode() + b"\n")
        count += 1
    if not count:
        raise InputError(f"{path}: holds no row below its names; give a sample per row")
    _check_kinds(path, columns, kinds, reading.expected)
    table = _Table(
        path=path, separator=separator, has_header=has_header, columns=columns, kinds=kinds,
        rows=count,
    )  # fmt: skip
    return table, digest_of(names, total.hexdigest())


def _assign(
    path: Path, names: Sequence[str], width: int, reading: Reading
) -> dict[str, tuple[int, ...]]:
    """The columns of each array: by the names of inputs and labels, or all but labels for the only
    input.
    """
    expected = reading.expected
    by_name: dict[str, tuple[int, ...]] = {name: (position,) for position, name in enumerate(names)}
    if names and reading.name is None and set(expected.required) <= by_name.keys():
        return by_name
    labels = {name: by_name[name] for name in expected.labels if name in by_name}
    if reading.name is not None:
        return {reading.name: by_name.get(reading.name, tuple(range(width)))}
    only = expected.required[0] if len(expected.required) == 1 else None
    if only is None:
        if names:
            return by_name  # the check of names says what is missing
        raise InputError(
            f"{path}: has no names of columns, and the model wants {expected.describe()}; write"
            " them in its first line"
        )
    taken = {position for positions in labels.values() for position in positions}
    return {only: tuple(each for each in range(width) if each not in taken), **labels}


def _check_kinds(
    path: Path,
    columns: Mapping[str, tuple[int, ...]],
    kinds: Sequence[str],
    expected: ExpectedArrays,
) -> None:
    """Raises InputError: a column of text is for an input of numbers."""
    for name, positions in columns.items():
        texts = [position + 1 for position in positions if kinds[position] == "U"]
        if texts and name in expected.types and not is_text(expected.types[name]):
            raise InputError(
                f"{path}: column {texts[0]} holds text, and input {name!r} takes numbers; leave the"
                " column out, or name it as a label"
            )


def _is_header(first: Sequence[str], expected: ExpectedArrays) -> bool:
    """Whether a first row has names: it holds text, and names an input or label where inputs take
    text.
    """
    if all(_kind_of(cell) != "U" for cell in first):
        return False
    names = {cell.strip() for cell in first}
    takes_text = any(is_text(expected.types.get(name)) for name in expected.required)
    return not takes_text or bool(names & expected.known)


def _kind_of(cell: str) -> str:
    """ "i" for an integer, "f" for another number, "U" for text, "" if empty."""
    text = cell.strip()
    if not text:
        return ""
    if _INTEGER.fullmatch(text):
        return "i"
    try:
        float(text)
    except ValueError:
        return "U"
    return "U" if "_" in text else "f"


def _find_separator(path: Path) -> str:
    """The separator that the first line has most of."""
    line = next(read_lines(path), "")
    return max(_SEPARATORS, key=line.count)


def _rows(path: Path, separator: str) -> Iterator[list[str]]:
    """The rows that are not blank. Raises InputError: quotes are open, or a row is too long."""
    try:
        for row in csv.reader(read_lines(path), delimiter=separator, strict=True):
            if len(row) > _MOST_COLUMNS:
                raise InputError(
                    f"{path}: a row has {len(row)} columns, and at most {_MOST_COLUMNS} are read;"
                    " store it with numpy.save"
                )
            if row:
                yield row
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read ({error}); mend it") from error
