"""Outputs of a model that a device has computed elsewhere, from an .npz file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.contracts.lab import Answers
from mezzo.numerics.data.npz import NpzFile


def read_answers(path: str | os.PathLike[str], expected: Sequence[Answers]) -> list[Answers]:
    """The outputs of each call, by name. `expected`: the emulation's for the same calls, whose rows
    are behind one another in the file. Arrays of other names, such as inputs, are ignored.

    Raises InputError: the file cannot be read, lacks an output or has another number of rows.
    """
    with NpzFile(Path(path)) as file:
        missing = [name for name in expected[0] if name not in file.names]
        if missing:
            raise InputError(
                f"{path}: has no array {missing[0]!r}; it has {', '.join(file.names) or 'none'};"
                " store every output of the model by its name"
            )
        arrays = {name: file.read(name) for name in expected[0]}
    if len(expected) == 1:
        return [arrays]
    return _split(path, arrays, expected)


def _split(
    path: str | os.PathLike[str],
    arrays: Mapping[str, npt.NDArray[Any]],
    expected: Sequence[Answers],
) -> list[Answers]:
    """The rows of each call."""
    parts: list[dict[str, Any]] = [{} for _ in expected]
    for name, array in arrays.items():
        lengths = [np.asarray(answers[name]).shape[:1] for answers in expected]
        rows = sum(length[0] for length in lengths if length)
        if array.shape[:1] != (rows,) or not all(lengths):
            raise InputError(
                f"{path}: array {name!r} has the shape {array.shape}, and the data makes"
                f" {len(expected)} calls with {rows} rows in all; store the answers to all of the"
                " data, one behind the other"
            )
        ends = np.cumsum([length[0] for length in lengths])[:-1]
        for part, piece in zip(parts, np.split(array, ends), strict=True):
            part[name] = piece
    return list(parts)
