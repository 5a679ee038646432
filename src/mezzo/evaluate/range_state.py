"""Resume file of range measurement: progress, and the accumulator's arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from mezzo.evaluate.resume_file import (
    Array,
    PassProgress,
    SavedState,
    StateFormat,
    read_progress,
)
from mezzo.numerics.ranges.ranges import Accumulator

RANGES = StateFormat("state", "mezzo-ranges/2", array="about")
_PLACES, _WEIGHTS = "bin_places", "bin_weights"  # bins as a sparse array
_SIGNED = ("lowest", "highest", "largest", "largest_at")


@dataclass(kw_only=True)
class RangeProgress(PassProgress):
    """Progress of a measurement of `values` values. `elements`: measured in the first batch, which
    fed `fed` elements; `origins`: names of the batches that ranges refer to.
    """

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


def dump_accumulator(accumulator: Accumulator) -> dict[str, Array]:
    """The arrays of a resume file."""
    arrays = {name: array for name, array in accumulator.state.items() if name != "bins"}
    bins = accumulator.state["bins"].reshape(-1)
    places = np.flatnonzero(bins)
    return {_PLACES: places, _WEIGHTS: bins[places], **arrays}


def load_ranges(state: SavedState, wanted: RangeProgress) -> tuple[RangeProgress, Accumulator]:
    """Read a resume file. Raises InputError: damaged, or of another pass than `wanted`."""
    progress = read_progress(state, wanted)
    accumulator = Accumulator(progress.values)
    for name, blank in accumulator.state.items():
        if name != "bins":
            accumulator.state[name] = _read(state, name, blank.shape, blank.dtype)
    bins = accumulator.state["bins"].reshape(-1)
    places = _read(state, _PLACES, None, np.dtype(np.int64))
    weights = _read(state, _WEIGHTS, places.shape, np.dtype(np.float64))
    state.check(not len(places) or int(places.max()) < len(bins), "its bins do not fit")
    bins[places] = weights
    return progress, accumulator


def _read(
    state: SavedState, name: str, shape: tuple[int, ...] | None, dtype: np.dtype[Any]
) -> Array:
    """Read an array with this shape, or any one-dimensional one. Raises InputError: another shape
    or dtype, NaN, or negative elements where none can occur.
    """
    found_shape, found_dtype = state.describe(name)
    fits = found_dtype == dtype and (
        len(found_shape) == 1 if shape is None else found_shape == shape
    )
    state.check(fits, f"array {name!r} is {found_dtype}{list(found_shape)}")
    array = state.read(name)
    has_nan = array.dtype.kind == "f" and bool(np.isnan(array).any())
    state.check(not has_nan, f"array {name!r} holds NaN")
    is_negative = name not in _SIGNED and array.dtype.kind in "if" and bool((array < 0).any())
    state.check(not is_negative, f"array {name!r} holds negative numbers")
    return array
