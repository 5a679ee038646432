"""Calibration observer: statistics of any number of tensors over any number of batches, in bounded
memory.

One pass serves all calibrators. Merging statistics of parts, in any order, gives bit for bit those
of one pass.
"""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Summary
from mezzo.quantize.observers.state import dump_state, load_state
from mezzo.quantize.observers.tally import StatisticsTally, by_slice

Array = npt.NDArray[Any]

# Bins on each side of zero. At least half of them cover the tensor's largest magnitude.
TENSOR_BINS = 4096
SLICE_BINS = 512
# Elements of one batch's tensor that enter the histogram.
MOST_SAMPLED = 1 << 16


class Collector:
    """Statistics of each value so far, by name."""

    def __init__(self, most_sampled: int | None = MOST_SAMPLED) -> None:
        """`most_sampled`: approximate number of elements per batch and tensor in the histogram,
        outliers not counted; None takes all. Extremes and counts of NaN and infinities are of all
        elements.
        """
        assert most_sampled is None or most_sampled > 0, "a sample has numbers"
        self._most_sampled = most_sampled
        self._tallies: dict[str, StatisticsTally] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The observed values, in order of arrival."""
        return tuple(self._tallies)

    def add(self, name: str, array: Array, axis: int | None = None) -> None:
        """Add a batch of a value: floats of any format, converted to FP32. With an axis, each slice
        has its own statistics.

        Raises InputError: not floats, or another axis or number of slices than before.
        """
        if array.dtype.kind not in "fV":  # V: types of ml_dtypes
            raise InputError(
                f"value {name!r} holds {array.dtype}, wanted floats; leave it out of the"
                " calibration"
            )
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise InputError(
                f"value {name!r} has {array.ndim} dimensions and no axis {axis}; name one that"
                " it has"
            )
        axis = axis if axis is None else axis % array.ndim
        slices = 1 if axis is None else array.shape[axis]
        tally = self._tallies.get(name)
        if tally is None:
            half = TENSOR_BINS if axis is None else SLICE_BINS
            tally = self._tallies[name] = StatisticsTally.empty(axis, slices, half)
        self._check_alike(name, tally, axis, slices)
        tally.add(by_slice(array, axis), self._most_sampled)

    def merge(self, other: "Collector") -> None:
        """Add another collector's statistics; that one is unchanged.

        Raises InputError: different sampling or slicing.
        """
        if self._most_sampled != other._most_sampled:
            raise InputError(
                f"collections sample {self._most_sampled} and {other._most_sampled} numbers of a"
                " tensor; merge those that were collected alike"
            )
        for name, tally in other._tallies.items():
            if name in self._tallies:
                self._check_alike(name, self._tallies[name], tally.axis, tally.slices)
        for name, tally in other._tallies.items():
            if name not in self._tallies:
                self._tallies[name] = StatisticsTally.empty(
                    tally.axis, tally.slices, tally.histogram.half
                )
            self._tallies[name].merge(tally)

    def summary(self, name: str) -> Summary:
        """The statistics of a value as a whole."""
        (whole,) = self.summaries(name)
        return whole

    def summaries(self, name: str) -> tuple[Summary, ...]:
        """The statistics of a value per slice."""
        return self._tallies[name].summaries()

    def state(self) -> dict[str, Array]:
        """All statistics as plain arrays, for numpy.savez without pickle."""
        return dump_state(self._tallies, self._most_sampled)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its state, which stores the mostly empty bins sparsely."""
        return Collector.from_state, (self.state(), "what was sent")

    @staticmethod
    def from_state(state: Mapping[str, Array], where: str) -> "Collector":
        """Restore a state. `where`: its origin, for messages. Raises InputError: damaged."""
        tallies, most_sampled = load_state(state, where)
        collector = Collector(most_sampled)
        collector._tallies.update(tallies)
        return collector

    @staticmethod
    def _check_alike(name: str, tally: StatisticsTally, axis: int | None, slices: int) -> None:
        if (tally.axis, tally.slices) != (axis, slices):
            raise InputError(
                f"value {name!r} had {_spell(tally.axis, tally.slices)} and now has"
                f" {_spell(axis, slices)}; calibrate with data of one shape"
            )


def _spell(axis: int | None, slices: int) -> str:
    return "no axis" if axis is None else f"{slices} slices along axis {axis}"
