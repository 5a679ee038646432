"""What was collected as plain arrays and one JSON text, so that reading them can run nothing."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.io.documents import parse_json
from mezzo.quantize.observers.histogram import Histogram, Ints
from mezzo.quantize.observers.tally import Tally

Array = npt.NDArray[Any]

_VERSION = "mezzo-calibration/1"
_ABOUT = "about"
_COUNTS = ("count", "nans", "infinities", "zeros", "samples", "exponents")  # an entry per slice, value by value
_EXTREMES = ("lowest", "highest")
_PLACES, _WEIGHTS = "bin_places", "bin_counts"  # the bins are mostly empty
_MOST_BINS = 1 << 28
_EXPONENTS = (-126, 127)


def dump_state(tallies: Mapping[str, Tally], most_sampled: int | None) -> dict[str, Array]:
    """The arrays of a collection."""
    values = [[name, tally.axis, tally.slices, tally.histogram.half] for name, tally in tallies.items()]
    about = {"version": _VERSION, "most_sampled": most_sampled, "values": values}
    state: dict[str, Array] = {_ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}
    columns = [_columns(tally) for tally in tallies.values()]
    for name in _COUNTS:
        state[name] = _concatenated([held[name].astype(np.int64) for held in columns], np.int64)
    for name in _EXTREMES:
        state[name] = _concatenated([held[name] for held in columns], np.float64)
    bins = _concatenated([tally.histogram.counts.reshape(-1) for tally in tallies.values()], np.int64)
    state[_PLACES] = np.flatnonzero(bins)
    state[_WEIGHTS] = bins[state[_PLACES]]
    return state


def load_state(state: Mapping[str, Array], where: str) -> tuple[dict[str, Tally], int | None]:
    """The collection that was kept. Raises InputError: it is no such state, or a damaged one; `where` it was read."""
    try:
        about = parse_json(state[_ABOUT].astype(np.uint8).tobytes())
        _require(about["version"] == _VERSION)
        values = [(str(name), axis, int(slices), int(half)) for name, axis, slices, half in about["values"]]
        most_sampled = None if about["most_sampled"] is None else int(about["most_sampled"])
        _require(most_sampled is None or most_sampled > 0)
        return _restore(values, state), most_sampled
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        remedy = "delete it, or name another file, to start anew"
        raise InputError(f"{where}: holds no calibration of this version, or a damaged one; {remedy}") from error


def _restore(values: list[tuple[str, int | None, int, int]], state: Mapping[str, Array]) -> dict[str, Tally]:
    """Raises what indices and numbers raise where they do not fit."""
    for _, axis, slices, half in values:
        _require(axis is None or axis >= 0)
        _require(slices > 0 and half > 0 and half & (half - 1) == 0)
    sizes = [slices * (2 * half + 1) for _, _, slices, half in values]
    _require(sum(sizes) <= _MOST_BINS and len({name for name, *_ in values}) == len(values))
    total = sum(slices for _, _, slices, _ in values)
    columns = {name: _column(state[name], total, "i") for name in _COUNTS}
    columns |= {name: _column(state[name], total, "f") for name in _EXTREMES}
    _require(all(bool((columns[name] >= 0).all()) for name in _COUNTS if name != "exponents"))
    exponents = columns["exponents"]
    _require(bool(((exponents >= _EXPONENTS[0]) & (exponents <= _EXPONENTS[1])).all()))
    bins = _bins(state, sum(sizes))
    tallies, slice_at, bin_at = dict[str, Tally](), 0, 0
    for (name, axis, slices, half), size in zip(values, sizes, strict=True):
        held = {column: array[slice_at : slice_at + slices].copy() for column, array in columns.items()}
        # A copy would take memory for bins that nobody filled.
        counts = bins[bin_at : bin_at + size].reshape(slices, -1)
        histogram = Histogram(
            half=half, exponents=held["exponents"].astype(np.int32), counts=counts,
            zeros=held["zeros"], samples=held["samples"],
        )  # fmt: skip
        _require(bool((counts[:, half] >= held["zeros"]).all()))
        tallies[name] = Tally(
            axis=axis, count=held["count"], nans=held["nans"], infinities=held["infinities"],
            lowest=held["lowest"], highest=held["highest"], histogram=histogram,
        )  # fmt: skip
        slice_at, bin_at = slice_at + slices, bin_at + size
    return tallies


def _columns(tally: Tally) -> Mapping[str, Array]:
    return {
        "count": tally.count, "nans": tally.nans, "infinities": tally.infinities, "lowest": tally.lowest,
        "highest": tally.highest, "zeros": tally.histogram.zeros, "samples": tally.histogram.samples,
        "exponents": tally.histogram.exponents,
    }  # fmt: skip


def _concatenated(arrays: list[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate([np.zeros(0, dtype), *arrays])


def _column(array: Array, length: int, kind: str) -> Array:
    """An array of such numbers. One that is NaN is none."""
    _require(array.shape == (length,) and array.dtype.kind == kind)
    _require(kind == "i" or not bool(np.isnan(array).any()))
    return array.astype(np.int64 if kind == "i" else np.float64)


def _bins(state: Mapping[str, Array], size: int) -> Ints:
    places, weights = state[_PLACES], state[_WEIGHTS]
    _require(places.shape == weights.shape and places.dtype.kind == weights.dtype.kind == "i")
    _require(not len(places) or (int(places.min()) >= 0 and int(places.max()) < size and int(weights.min()) > 0))
    bins = np.zeros(size, np.int64)
    bins[places] = weights
    return bins


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("the arrays do not fit each other")
