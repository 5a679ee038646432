"""Range statistics of many values over many batches, in constant memory.

Extremes are of all elements. Everything else is from samples, weighted by a tensor's elements per
sample: magnitudes are counted in bins of 1/8 octave, and the effect of a format is measured by
rounding, for a subset in all formats. Relative rounding errors are of elements within the format's
range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.lab import Records
from mezzo.formats.dtypes import DType
from mezzo.formats.rounding import (
    RANGED,
    beyond_from,
    round_through,
    smallest_normal,
    vanishing_up_to,
)
from mezzo.numerics.measures import FormatRange, ValueRange

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)
# An FP32 number shifted right by this has its exponent and three fraction bits: 8 bins per octave,
# 2048 in all.
_SHIFT = 20
_BINS = 1 << (31 - _SHIFT)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
# Elements per tensor on which rounding errors are measured.
_ROUNDED = 32


@dataclass(frozen=True, slots=True)
class ValueName:
    """A value as plans name it; `record` is its index in records."""

    record: int
    value: str
    node: str
    op: str


class Accumulator:
    """Accumulates range statistics of a fixed list of values over batches."""

    def __init__(self, size: int) -> None:
        """`size` is the number of values."""
        self.size = size
        self.state: dict[str, Array] = {
            "lowest": np.full(size, np.inf),
            "highest": np.full(size, -np.inf),
            "largest": np.full(size, -1.0),
            "largest_at": np.full(size, -1, np.int64),  # index of the batch
            "has_nan": np.zeros(size, bool),
            "has_infinity": np.zeros(size, bool),
            "count": np.zeros(size, np.int64),
            "sampled": np.zeros(size, np.int64),
            "zero": np.zeros(size),  # weights, as in all that follow
            "magnitude": np.zeros(size),
            "beyond": np.zeros((len(RANGED), size)),
            "vanishing": np.zeros((len(RANGED), size)),
            "error": np.zeros((len(RANGED), size)),  # weighted squares of rounding errors
            "square": np.zeros((len(RANGED), size)),
            "bins": np.zeros((size, _BINS)),
        }

    def add(self, records: Records, batch: int) -> None:
        """Add a batch's records. Their order does not matter, as long as those of one value are in
        order: sessions that measure some values with more care return these at other positions.
        """
        self._add_extremes(records, batch)
        if len(records.samples):
            self._add_samples(records)

    def _add_extremes(self, records: Records, batch: int) -> None:
        state, values = self.state, records.values
        # Adding +0 turns -0 into +0: the sign of zero may differ between runtimes and must not
        # matter.
        np.minimum.at(state["lowest"], values, records.lowest.astype(np.float64) + 0.0)
        np.maximum.at(state["highest"], values, records.highest.astype(np.float64) + 0.0)
        np.logical_or.at(state["has_nan"], values, records.has_nan)
        np.logical_or.at(state["has_infinity"], values, records.has_infinity)
        np.add.at(state["count"], values, records.counts)
        with np.errstate(invalid="ignore"):
            largest = np.maximum(np.abs(state["lowest"]), np.abs(state["highest"]))
        largest[state["lowest"] > state["highest"]] = -1.0
        grown = largest > state["largest"]
        state["largest"][grown] = largest[grown]
        state["largest_at"][grown] = batch

    def _add_samples(self, records: Records) -> None:
        state = self.state
        lengths = records.lengths
        # Each sample has the weight of its share of the tensor's elements; infinities and NaN have
        # none.
        weight = records.counts / np.maximum(lengths, 1)
        owners, weights = np.repeat(records.values, lengths), np.repeat(weight, lengths)
        numbers = records.samples
        bits = numbers.view(np.uint32) & _MAGNITUDE
        is_finite = bool(bits.max() < _INFINITY)
        if not is_finite:
            is_finite_sample = bits < _INFINITY
            owners, weights, numbers, bits = (
                owners[is_finite_sample],
                weights[is_finite_sample],
                numbers[is_finite_sample],
                bits[is_finite_sample],
            )
        sums = _sums(np.abs(records.samples), lengths, is_finite)
        state["magnitude"] += np.bincount(records.values, weight * sums, minlength=self.size)
        state["sampled"] += np.bincount(owners, minlength=self.size)
        np.add.at(state["bins"].reshape(-1), owners * _BINS + (bits >> _SHIFT), weights)
        self._add_where(state["zero"], bits == 0, owners, weights)
        for row, dtype in enumerate(RANGED):
            self._add_where(
                state["beyond"][row], bits >= _bits_of(beyond_from(dtype)), owners, weights
            )
            is_lost = (bits <= _bits_of(vanishing_up_to(dtype))) & (bits > 0)
            self._add_where(state["vanishing"][row], is_lost, owners, weights)
        self._add_rounding(records, weight)

    def _add_where(self, total: Array, holds: Array, owners: Array, weights: Array) -> None:
        hits = np.flatnonzero(holds)
        if len(hits):
            total += np.bincount(owners[hits], weights[hits], minlength=self.size)

    def _add_rounding(self, records: Records, weight: Array) -> None:
        """Round evenly spaced samples, about `_ROUNDED` per tensor."""
        lengths = records.lengths
        steps = -(-lengths // _ROUNDED)
        picked = -(-lengths // np.maximum(steps, 1))
        ends = np.cumsum(picked)
        order = np.arange(int(ends[-1])) - np.repeat(ends - picked, picked)
        places = np.repeat(np.cumsum(lengths) - lengths, picked) + order * np.repeat(steps, picked)
        numbers = records.samples[places]
        owners, weights = (
            np.repeat(records.values, picked),
            np.repeat(weight * lengths / np.maximum(picked, 1), picked),
        )
        is_finite = np.isfinite(numbers)
        if not is_finite.all():
            owners, weights, numbers = owners[is_finite], weights[is_finite], numbers[is_finite]
        wide = numbers.astype(np.float64)
        squares = weights * wide * wide
        for row, dtype in enumerate(RANGED):
            rounded = round_through(numbers, dtype).astype(np.float64)
            fits = np.isfinite(rounded)
            errors = np.where(fits, rounded - wide, 0.0)
            self.state["error"][row] += np.bincount(
                owners, weights * errors * errors, minlength=self.size
            )
            self.state["square"][row] += np.bincount(
                owners, np.where(fits, squares, 0.0), minlength=self.size
            )

    def ranges(
        self, names: Sequence[ValueName], origins: Mapping[int, str]
    ) -> tuple[ValueRange, ...]:
        """The ranges so far; `origins`: names of at least the batches in `largest_batches`."""
        return tuple(self._range(name, origins) for name in names)

    def largest_batches(self) -> set[int]:
        """Indices of the batches that hold some value's largest magnitude."""
        return set(self.state["largest_at"].tolist()) - {-1}

    def _range(self, name: ValueName, origins: Mapping[int, str]) -> ValueRange:
        state = {key: array[..., name.record] for key, array in self.state.items() if key != "bins"}
        is_empty = bool(state["lowest"] > state["highest"])
        minimum, maximum = (
            (0.0, 0.0) if is_empty else (float(state["lowest"]), float(state["highest"]))
        )
        at = int(state["largest_at"])
        bins = self.state["bins"][name.record]
        return ValueRange(
            value=name.value,
            node=name.node,
            op=name.op,
            count=int(state["count"]),
            sampled=int(state["sampled"]),
            minimum=minimum,
            maximum=maximum,
            mean_absolute=_ratio(state["magnitude"], bins.sum()),
            has_nan=bool(state["has_nan"]),
            has_infinity=bool(state["has_infinity"]),
            quantiles=_quantiles(bins, float(state["zero"]), max(abs(minimum), abs(maximum))),
            formats={dtype: _format(state, bins, row, dtype) for row, dtype in enumerate(RANGED)},
            largest_at=origins.get(at, ""),
        )


def _format(state: dict[str, Array], bins: Doubles, row: int, dtype: DType) -> FormatRange:
    """The effect of one format on a value, from its accumulated sums."""
    total = bins.sum()
    nonzero = total - state["zero"]
    # Smallest normal numbers are powers of two, which are bin edges.
    below = bins[: _bits_of(smallest_normal(dtype)) >> _SHIFT].sum() - state["zero"]
    beyond = 0.0
    if state["largest"] >= beyond_from(dtype):
        # The samples may have missed elements that the extremes include.
        beyond = max(_ratio(state["beyond"][row], total), 1 / max(int(state["count"]), 1))
    return FormatRange(
        min(beyond, 1.0),
        min(_ratio(max(below, 0.0), nonzero), 1.0),
        min(_ratio(state["vanishing"][row], nonzero), 1.0),
        float(np.sqrt(_ratio(state["error"][row], state["square"][row]))),
    )


def _quantiles(bins: Doubles, zero: float, largest: float) -> tuple[tuple[float, float], ...]:
    """Quantiles of magnitudes, interpolated within bins; the last is the largest."""
    filled = np.flatnonzero(bins)
    if not len(filled):
        return ()
    sums = np.cumsum(bins[filled])
    total = float(sums[-1])
    quantiles = []
    for share in SHARES:
        # Rounding of summed weights must not lead into the next bin.
        weight = share * total * (1 - 1e-12)
        place = int(np.searchsorted(sums, weight))
        if share == 1:
            quantiles.append((share, largest))
        elif weight <= zero:
            quantiles.append((share, 0.0))
        else:
            part = 1 - (sums[place] - weight) / bins[filled[place]]
            low, high = _edge(filled[place]), _edge(filled[place] + 1)
            quantiles.append((share, float(min(low + (high - low) * part, largest))))
    return tuple(quantiles)


def _edge(place: int) -> float:
    """The lower edge of a bin."""
    return float(np.array([place << _SHIFT], np.uint32).view(np.float32)[0])


def _sums(magnitudes: Array, lengths: Array, is_finite: bool) -> Doubles:
    """Sums of runs of elements, non-finite ones as 0. Overwrites `magnitudes`."""
    if not is_finite:
        magnitudes[~np.isfinite(magnitudes)] = 0
    sums = np.zeros(len(lengths))
    filled = np.flatnonzero(lengths)
    starts = np.cumsum(lengths) - lengths
    sums[filled] = np.add.reduceat(magnitudes, starts[filled], dtype=np.float64)
    return sums


def _bits_of(magnitude: float) -> int:
    return int(np.array([magnitude], np.float32).view(np.uint32)[0])


def _ratio(part: Any, whole: Any) -> float:
    return float(part / whole) if whole > 0 else 0.0
