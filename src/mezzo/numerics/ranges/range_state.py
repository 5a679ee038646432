"""Checkpoint file of range measurement: arrays and JSON, so that loading runs no code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from mezzo.numerics.data.npz import NpzFile
from mezzo.numerics.ranges.journals import RangeJournal, damaged, dump_journal, read_journal
from mezzo.numerics.ranges.ranges import Accumulator

_PLACES, _WEIGHTS = "bin_places", "bin_weights"  # bins as a sparse array


@dataclass(kw_only=True)
class Progress(RangeJournal):
    """Progress of a measurement. `elements`: measured in the first batch, which fed `fed` elements;
    `origins`: names of the batches that ranges refer to.
    """

    version: ClassVar[str] = "mezzo-ranges/2"
    name: ClassVar[str] = "about"
    keeps: ClassVar[str] = "state"

    values: int
    elements: int = 0
    fed: int = 0
    origins: dict[int, str] = field(default_factory=dict)

    def origin(self, number: int) -> str | None:
        return super().origin(number) or self.origins.get(number)

    def spell(self) -> dict[str, object]:
        return {**super().spell(), "origins": sorted(self.origins.items())}

    @classmethod
    def revive(cls, document: Mapping[str, Any]) -> Self:
        origins = {int(number): str(name) for number, name in document["origins"]}
        return super().revive({**document, "origins": origins})

    def difference(self, wanted: Self) -> str | None:
        return super().difference(wanted) or (
            "another model" if self.values != wanted.values else None
        )


def dump_state(progress: Progress, accumulator: Accumulator) -> bytes:
    """The content of an .npz checkpoint."""
    arrays = {name: array for name, array in accumulator.state.items() if name != "bins"}
    bins = accumulator.state["bins"].reshape(-1)
    places = np.flatnonzero(bins)
    return dump_journal(progress, {_PLACES: places, _WEIGHTS: bins[places], **arrays})


def load_state(path: Path, wanted: Progress) -> tuple[Progress, Accumulator]:
    """Read a checkpoint. Raises InputError: damaged, or of another pass than `wanted`."""
    with NpzFile(path) as opened:
        progress = read_journal(opened, wanted)
        accumulator = Accumulator(progress.values)
        for name, blank in accumulator.state.items():
            if name != "bins":
                accumulator.state[name] = _read_like(opened, wanted, name, blank)
        places = _read_like(opened, wanted, _PLACES, None, "i")
        weights = _read_like(opened, wanted, _WEIGHTS, None, "f")
        _fill_bins(opened, wanted, accumulator, places, weights)
    return progress, accumulator


def _read_like(
    opened: NpzFile, requested: Progress, name: str, blank: npt.NDArray[Any] | None, kind: str = ""
) -> npt.NDArray[Any]:
    """Read an array with the shape and dtype of `blank`, or a one-dimensional one of dtype kind
    `kind`. Raises InputError: NaN, or negative elements where none can occur.
    """
    if name not in opened.names:
        raise damaged(opened, requested, f"array {name!r} is missing")
    header = opened.header(name)
    fits = (header.shape, header.dtype) == (blank.shape, blank.dtype) if blank is not None else (
        len(header.shape) == 1 and header.dtype.kind == kind
    )  # fmt: skip
    if not fits:
        raise damaged(opened, requested, f"array {name!r} is {header.dtype}{list(header.shape)}")
    array = opened.read(name)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise damaged(opened, requested, f"array {name!r} holds NaN")
    if (
        name not in ("lowest", "highest", "largest", "largest_at")
        and array.dtype.kind in "if"
        and (array < 0).any()
    ):
        raise damaged(opened, requested, f"array {name!r} holds negative numbers")
    return array


def _fill_bins(
    opened: NpzFile,
    requested: Progress,
    accumulator: Accumulator,
    places: npt.NDArray[Any],
    weights: npt.NDArray[Any],
) -> None:
    bins = accumulator.state["bins"].reshape(-1)
    if len(places) != len(weights) or (len(places) and int(places.max()) >= len(bins)):
        raise damaged(opened, requested, "its bins do not fit")
    bins[places] = weights
