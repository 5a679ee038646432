"""Collects what calibrators need of any number of tensors, from any number of batches, in bounded memory.

One pass serves all methods. What was collected in parts and merged is, bit for bit, what one pass over all of it would
have collected, in any order.
"""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Summary
from mezzo.quantize.observers.state import dump_state, load_state
from mezzo.quantize.observers.tally import Tally, by_slice

Array = npt.NDArray[Any]

# Bins on each side of zero: of the tensor's largest magnitude, between half of them and all are used.
TENSOR_BINS = 4096
SLICE_BINS = 512
# Numbers of one batch's tensor that the histogram takes.
MOST_SAMPLED = 1 << 16


class Collector:
    """What was seen of each value so far, by name."""

    def __init__(self, most_sampled: int | None = MOST_SAMPLED) -> None:
        """`most_sampled`: of about how many numbers of a batch's tensor the histogram is, beside those far out; None
        takes all. Extremes, and the counts of what is no number, are of all.
        """
        assert most_sampled is None or most_sampled > 0, "a sample has numbers"
        self._most_sampled = most_sampled
        self._tallies: dict[str, Tally] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The values that something was seen of, in the order in which they came."""
        return tuple(self._tallies)

    def add(self, name: str, array: Array, axis: int | None = None) -> None:
        """Add a batch of a value's numbers: floats of any format, taken as FP32. With an axis, each slice along it is
        seen on its own.

        Raises InputError: it holds no floats, or has another axis or number of slices than before.
        """
        if array.dtype.kind not in "fV":  # V: what ml_dtypes adds
            raise InputError(f"value {name!r} holds {array.dtype}, wanted floats; leave it out of the calibration")
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise InputError(f"value {name!r} has {array.ndim} dimensions and no axis {axis}; name one that it has")
        axis = axis if axis is None else axis % array.ndim
        slices = 1 if axis is None else array.shape[axis]
        tally = self._tallies.get(name)
        if tally is None:
            half = TENSOR_BINS if axis is None else SLICE_BINS
            tally = self._tallies[name] = Tally.empty(axis, slices, half)
        self._check_alike(name, tally, axis, slices)
        tally.add(by_slice(array, axis), self._most_sampled)

    def merge(self, other: "Collector") -> None:
        """Add what another has collected, which stays as it is.

        Raises InputError: they sample otherwise, or slice a value otherwise.
        """
        if self._most_sampled != other._most_sampled:
            raise InputError(
                f"collections sample {self._most_sampled} and {other._most_sampled} numbers of a tensor; merge those "
                "that were collected alike"
            )
        for name, tally in other._tallies.items():
            if name in self._tallies:
                self._check_alike(name, self._tallies[name], tally.axis, tally.slices)
        for name, tally in other._tallies.items():
            if name not in self._tallies:
                self._tallies[name] = Tally.empty(tally.axis, tally.slices, tally.histogram.half)
            self._tallies[name].merge(tally)

    def summary(self, name: str) -> Summary:
        """What was seen of a value as a whole."""
        (whole,) = self.summaries(name)
        return whole

    def summaries(self, name: str) -> tuple[Summary, ...]:
        """What was seen of a value, slice by slice."""
        return self._tallies[name].summaries()

    def state(self) -> dict[str, Array]:
        """All of it as plain arrays, which numpy.savez keeps without pickle."""
        return dump_state(self._tallies, self._most_sampled)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as its state, as the bins are mostly empty."""
        return Collector.from_state, (self.state(), "what was sent")

    @staticmethod
    def from_state(state: Mapping[str, Array], where: str) -> "Collector":
        """What was kept. Raises InputError: it is no such state, or a damaged one; `where` it was read."""
        tallies, most_sampled = load_state(state, where)
        collector = Collector(most_sampled)
        collector._tallies.update(tallies)
        return collector

    @staticmethod
    def _check_alike(name: str, tally: Tally, axis: int | None, slices: int) -> None:
        if (tally.axis, tally.slices) != (axis, slices):
            raise InputError(
                f"value {name!r} had {_spell(tally.axis, tally.slices)} and now has {_spell(axis, slices)}; "
                "calibrate with data of one shape"
            )


def _spell(axis: int | None, slices: int) -> str:
    return "no axis" if axis is None else f"{slices} slices along axis {axis}"
