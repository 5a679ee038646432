"""Saved state of a calibration observer: arrays and JSON, so that loading runs no code."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.quantize.observers.histogram import Histogram, Ints
from mezzo.quantize.observers.tally import StatisticsTally

Array = npt.NDArray[Any]

_VERSION = "mezzo-calibration/1"
_ABOUT = "about"
# An entry per slice, value by value.
_COUNTS = (
    "count",
    "nans",
    "infinities",
    "zeros",
    "samples",
    "exponents",
)
_EXTREMES = ("lowest", "highest")
_PLACES, _WEIGHTS = "bin_places", "bin_counts"  # bins as a sparse array
_MOST_BINS = 1 << 28
_EXPONENTS = (-126, 127)


def dump_state(
    tallies: Mapping[str, StatisticsTally], most_sampled: int | None
) -> dict[str, Array]:
    """The arrays of a collector's state."""
    values = [
        [name, tally.axis, tally.slices, tally.histogram.half] for name, tally in tallies.items()
    ]
    about = {"version": _VERSION, "most_sampled": most_sampled, "values": values}
    state: dict[str, Array] = {_ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}
    columns = [_columns(tally) for tally in tallies.values()]
    for name in _COUNTS:
        state[name] = _concatenated([column[name].astype(np.int64) for column in columns], np.int64)
    for name in _EXTREMES:
        state[name] = _concatenated([column[name] for column in columns], np.float64)
    bins = _concatenated(
        [tally.histogram.counts.reshape(-1) for tally in tallies.values()], np.int64
    )
    state[_PLACES] = np.flatnonzero(bins)
    state[_WEIGHTS] = bins[state[_PLACES]]
    return state


def load_state(
    state: Mapping[str, Array], where: str
) -> tuple[dict[str, StatisticsTally], int | None]:
    """Restore a state. `where`: its origin, for messages. Raises InputError: damaged."""
    try:
        about = parse_json(state[_ABOUT].astype(np.uint8).tobytes())
        _require(about["version"] == _VERSION)
        values = [
            (str(name), axis, int(slices), int(half))
            for name, axis, slices, half in about["values"]
        ]
        most_sampled = None if about["most_sampled"] is None else int(about["most_sampled"])
        _require(most_sampled is None or most_sampled > 0)
        return _restore(values, state), most_sampled
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        remedy = "delete it, or name another file, to start anew"
        raise InputError(
            f"{where}: holds no calibration of this version, or a damaged one; {remedy}"
        ) from error


def _restore(
    values: list[tuple[str, int | None, int, int]], state: Mapping[str, Array]
) -> dict[str, StatisticsTally]:
    """Raises ValueError and the errors of indexing if arrays do not match."""
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
    tallies, slice_at, bin_at = dict[str, StatisticsTally](), 0, 0
    for (name, axis, slices, half), size in zip(values, sizes, strict=True):
        fields = {
            column: array[slice_at : slice_at + slices].copy() for column, array in columns.items()
        }
        # Not copied: a copy would allocate memory for empty bins.
        counts = bins[bin_at : bin_at + size].reshape(slices, -1)
        histogram = Histogram(
            half=half, exponents=fields["exponents"].astype(np.int32), counts=counts,
            zeros=fields["zeros"], samples=fields["samples"],
        )  # fmt: skip
        _require(bool((counts[:, half] >= fields["zeros"]).all()))
        tallies[name] = StatisticsTally(
            axis=axis, count=fields["count"], nans=fields["nans"], infinities=fields["infinities"],
            lowest=fields["lowest"], highest=fields["highest"], histogram=histogram,
        )  # fmt: skip
        slice_at, bin_at = slice_at + slices, bin_at + size
    return tallies


def _columns(tally: StatisticsTally) -> Mapping[str, Array]:
    return {
        "count": tally.count, "nans": tally.nans, "infinities": tally.infinities,
        "lowest": tally.lowest, "highest": tally.highest, "zeros": tally.histogram.zeros,
        "samples": tally.histogram.samples, "exponents": tally.histogram.exponents,
    }  # fmt: skip


def _concatenated(arrays: list[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate([np.zeros(0, dtype), *arrays])


def _column(array: Array, length: int, kind: str) -> Array:
    """An array of this length and dtype kind, without NaN. Raises ValueError: any other."""
    _require(array.shape == (length,) and array.dtype.kind == kind)
    _require(kind == "i" or not bool(np.isnan(array).any()))
    return array.astype(np.int64 if kind == "i" else np.float64)


def _bins(state: Mapping[str, Array], size: int) -> Ints:
    places, weights = state[_PLACES], state[_WEIGHTS]
    _require(places.shape == weights.shape and places.dtype.kind == weights.dtype.kind == "i")
    _require(
        not len(places)
        or (int(places.min()) >= 0 and int(places.max()) < size and int(weights.min()) > 0)
    )
    bins = np.zeros(size, np.int64)
    bins[places] = weights
    return bins


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("the arrays do not fit each other")
