"""Statistics of one run of an instrumented model, as arrays."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from mezzo.contracts.lab import Records

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def runs(starts: Ints, lengths: Ints) -> Ints:
    """Concatenated index ranges: start, start + 1, ... for each pair of `starts` and `lengths`."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Ints = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return places


def join(pieces: Sequence[Records]) -> Records:
    if not pieces:
        none = np.zeros(0, np.int64)
        empty = none.astype(np.float32)
        return Records(
            values=none,
            lowest=empty,
            highest=empty,
            has_nan=none.astype(bool),
            has_infinity=none.astype(bool),
            counts=none,
            lengths=none,
            samples=empty,
        )
    return Records(
        **{f.name: np.concatenate([getattr(p, f.name) for p in pieces]) for f in fields(Records)}
    )


def gather_whole(
    values: Ints, vector: Floats, starts: Ints, counts: Ints, shares: Doubles
) -> Records:
    """Statistics of tensors that lie whole in a vector. Samples are taken at `shares` of a tensor's
    length; a tensor no longer than `shares` is its own sample.
    """
    lowest, highest = (
        _reduce(np.minimum, vector, starts, counts, np.inf),
        _reduce(np.maximum, vector, starts, counts, -np.inf),
    )
    has_nan, has_infinity = np.isnan(lowest), np.zeros(len(values), bool)
    for place in np.flatnonzero(
        (counts > 0) & ~(np.isfinite(lowest) & np.isfinite(highest))
    ).tolist():
        numbers = vector[starts[place] : starts[place] + counts[place]]
        finite = numbers[np.isfinite(numbers)]
        has_infinity[place] = np.isinf(numbers).any()
        lowest[place] = finite.min(initial=np.inf)
        highest[place] = finite.max(initial=-np.inf)
    lengths = np.minimum(counts, len(shares))
    is_drawn = counts > lengths
    samples = np.empty(int(lengths.sum()), np.float32)
    ends = np.cumsum(lengths)
    if is_drawn.any():
        drawn = starts[is_drawn, None] + (counts[is_drawn, None] * shares).astype(np.int64)
        samples[runs((ends - lengths)[is_drawn], lengths[is_drawn])] = vector[drawn.reshape(-1)]
    is_complete = ~is_drawn
    samples[runs((ends - lengths)[is_complete], lengths[is_complete])] = vector[
        runs(starts[is_complete], lengths[is_complete])
    ]
    return Records(
        values=values,
        lowest=lowest,
        highest=highest,
        has_nan=has_nan,
        has_infinity=has_infinity,
        counts=counts,
        lengths=lengths,
        samples=samples,
    )


def _reduce(reduce: np.ufunc, vector: Floats, starts: Ints, counts: Ints, empty: float) -> Floats:
    """Min or max of each tensor; NaN if it holds a NaN, `empty` if it has no elements."""
    reduced = np.full(len(starts), empty, np.float32)
    filled = np.flatnonzero(counts)
    if len(filled):
        # Every second segment of reduceat lies between two tensors; the last may start past the
        # end.
        bounds = np.stack([starts[filled], starts[filled] + counts[filled]], 1).reshape(-1)
        padded = bounds[:-1] if bounds[-1] >= len(vector) else bounds
        reduced[filled] = reduce.reduceat(vector, padded)[::2]
    return reduced


def rectify(gathered: Records, pairs: tuple[Ints, Ints]) -> Records:
    """Derive the statistics of Relu outputs; `pairs` are positions of Relu outputs and inputs."""
    outputs, sources = pairs
    if not len(outputs):
        return gathered
    order = np.argsort(gathered.values, kind="stable")
    begins = np.searchsorted(gathered.values[order], sources, "left")
    numbers = np.searchsorted(gathered.values[order], sources, "right") - begins
    records = order[runs(begins, numbers)]
    lengths = gathered.lengths[records]
    starts = (np.cumsum(gathered.lengths) - gathered.lengths)[records]
    zero = np.float32(0)
    added = Records(
        values=np.repeat(outputs, numbers),
        lowest=np.maximum(gathered.lowest[records], zero),
        highest=np.maximum(gathered.highest[records], zero),
        has_nan=gathered.has_nan[records],
        has_infinity=gathered.has_infinity[records],
        counts=gathered.counts[records],
        lengths=lengths,
        samples=np.maximum(gathered.samples[runs(starts, lengths)], zero),
    )
    return join([gathered, added])
