"""Errors per slice of an output (channel, class, position), relative to the slice's own size and
variation.

The relative L2 error of a whole output hides a channel that is a hundred times smaller than the
others, and an output whose samples differ by a hundredth of their size. So each slice along each
axis is measured twice: as it is, and as it varies, over samples if these are aligned, else within
the slice. Sums are FP64, per slice; one sample of each model is stored, from which variation over
samples is measured.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import QUANTIZED, Format
from mezzo.numerics.metrics.decisions import NOISES, Changed

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Box = tuple[slice, ...]

# Slices of one axis that are measured separately: more than current vocabularies have classes, 20
# MB of sums.
_MOST_SLICES = 1 << 18
# Elements per block, so that intermediate arrays fit into a processor's cache.
_PIECE = 1 << 16
# At this relative error of a slice, zeros or a constant (error 1) would be about as good.
LOST = 0.9
# A slice with less than this fraction of its size left counts as zero or constant.
_VANISHED = 0.1
# The error of a slice with flipped sign is 2; of noise as large as the slice, sqrt(2).
_FLIPPED = 1.7
# Elements below this fraction of the largest are negligible: 0.02 where boxes reach 2,000 pixels.
_UNREAD = 1e-5
# A variance below this fraction of the mean square is cancellation of FP64 sums.
_CANCELLED = 1e-12
# Slices that vanish together and are this many times smaller than all others are an output in
# another unit.
_OTHER_UNIT = 10.0
# Gap between the sizes of slices in different units, such as boxes in pixels and their scores.
_UNITS_APART = 100.0
# A relative error above 25 % fails a slice, however few bits the format has.
_MOST_ERROR = 0.25
# Fewer samples do not show how much an output varies.
FEWEST_SAMPLES = 8


class Lost(NamedTuple):
    """Lost parts of an output, as text: a `fault` fails the output, a `worry` is reported."""

    fault: str | None = None
    worry: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Thresholds in the unit of the output: the reference's largest magnitude, the error that the
    budget allows for the whole, the format's rounding step, and FP32's own noise.
    """

    peak: float
    allowed: float
    step: float
    noise: float


class Slices:
    """Sums of errors by slice along each axis of an output. Stores one sample and the sums."""

    def __init__(self, fmt: Format) -> None:
        self._format = fmt
        self._axes: dict[int, SliceSums] | None = None  # None until the first batch
        self._first: tuple[Array, Array] | None = None
        self._aligned = 0  # number of samples with the first one's shape

    def add(self, want: Array, found: Array, units: int) -> None:
        """Add a batch of `units` samples: two float arrays [N, ...], N a multiple of `units`."""
        shape = (units, want.shape[0] // units, *want.shape[1:])
        want, found = want.reshape(shape), found.reshape(shape)
        self._fit_axes(shape[1:])
        if not self._axes:
            return
        if self._first is None:
            self._first = want[0].copy(), found[0].copy()
        is_aligned = self._first[0].shape == shape[1:]
        self._aligned += units * is_aligned
        for box in _boxes(shape):
            self._add_box(want[box], found[box], box, is_aligned=is_aligned)
        for axis in self._axes.values():
            axis.count(units, math.prod(shape[1:]), is_aligned=is_aligned)

    def _fit_axes(self, inner: tuple[int, ...]) -> None:
        """Drop axes that vary in length between batches; one number per sample is a slice."""
        if self._axes is None:
            axes = [axis for axis, length in enumerate(inner) if 1 < length <= _MOST_SLICES]
            self._axes = {axis: SliceSums(inner[axis]) for axis in axes or [0]}
        self._axes = {
            number: axis
            for number, axis in self._axes.items()
            if number < len(inner) and axis.length == inner[number]
        }

    def _add_box(self, want: Array, actual: Array, box: Box, *, is_aligned: bool) -> None:
        """Add one block to the sums of all axes."""
        assert self._axes is not None and self._first is not None, "a batch has come"
        ours, theirs = want.astype(np.float64), actual.astype(np.float64)
        with np.errstate(all="ignore"):
            is_finite = np.isfinite(ours) & np.isfinite(theirs)
            if not is_finite.all():
                ours, theirs = np.where(is_finite, ours, 0.0), np.where(is_finite, theirs, 0.0)
            error = theirs - ours
            terms = [ours, theirs, error, ours**2, theirs**2, error**2]
            if is_aligned:
                firsts = (
                    np.nan_to_num(side[box[1:]].astype(np.float64), posinf=0.0, neginf=0.0)
                    for side in self._first
                )
                changes = [
                    np.where(is_finite, now - first, 0.0)
                    for now, first in zip((ours, theirs), firsts, strict=True)
                ]
                terms += [changes[0] ** 2, changes[1] ** 2, (changes[1] - changes[0]) ** 2]
            sizes = np.abs(ours)
            for number, axis in self._axes.items():
                others = tuple(place for place in range(ours.ndim) if place != number + 1)
                axis.add(
                    box[number + 1],
                    (term.sum(axis=others) for term in terms),
                    sizes.max(axis=others),
                )

    def lost(self, budget: float, noise: float) -> Lost:
        """Lost parts of the output. `budget` and `noise` are relative to the whole output."""
        scale = self._scale(budget, noise)
        losses = [
            loss
            for number, axis in (self._axes or {}).items()
            for loss in axis.losses(number, scale)
        ]
        gravest = max(losses, key=lambda loss: loss[:3], default=None)
        if gravest is None:
            return Lost()
        return Lost(fault=gravest.words) if gravest.is_fault else Lost(worry=gravest.words)

    def changed(self, budget: float, noise: float, *, is_one_unit: bool) -> Changed:
        """Parts with an error above the budget: groups of slices in another unit than the others,
        unless `is_one_unit`, and differences between samples.
        """
        scale, axes = self._scale(budget, noise), self._axes or {}
        parts = (
            []
            if is_one_unit
            else [part for number, axis in axes.items() for part in axis.units(number, scale)]
        )
        parts += (
            [axis.variation for axis in axes.values()] if self._aligned >= FEWEST_SAMPLES else []
        )
        worst = max(parts, key=lambda part: part.share, default=None)
        if worst is None or worst.share <= budget or worst.error <= scale.noise:
            return Changed()
        summary = f"{worst.words.format(worst.share)}, more than {budget:.3g}"
        return (
            Changed(fault=summary)
            if worst.share > max(budget, worst.most)
            else Changed(doubt=summary)
        )

    def _scale(self, budget: float, noise: float) -> Scale:
        axes = self._axes or {}
        peak = max((axis.peak for axis in axes.values()), default=0.0)
        rms = max((axis.rms for axis in axes.values()), default=0.0)
        # Integers have one step for the whole tensor; the step of floats follows the elements'
        # size.
        step = self._format.eps * (peak if self._format.dtype in QUANTIZED else rms)
        return Scale(peak=peak, allowed=budget * rms, step=step, noise=NOISES * noise * rms)


class _Part(NamedTuple):
    """A part of an output that is judged alone: root mean squares of the reference and of the
    error, a text with a placeholder for the relative error, and the relative error that fails the
    output.
    """

    signal: float
    error: float
    words: str
    most: float

    @property
    def share(self) -> float:
        return self.error / self.signal if self.signal else 0.0


class _Loss(NamedTuple):
    """Slices of one axis that are lost in the same way; `share`: as a fraction of all slices."""

    is_fault: bool
    is_systematic: bool  # zero, constant or flipped; other losses may be noise
    share: float
    words: str


# Kinds of loss: of slices as they are, and of their variation.
_AS_THEY_ARE = (
    "are zero where the reference's are not",
    "have the other sign",
    "are off by as much as they hold",
)
_AS_THEY_VARY = (
    "are constant where the reference's vary",
    "change the other way",
    "are off by as much as they vary",
)


class _View(NamedTuple):
    """Root mean squares per slice, [slices]: of the reference, of the candidate, of the error."""

    signal: Floats
    left: Floats
    error: Floats

    def find_lost(self, scale: Scale, is_read: Flags) -> tuple[Flags, Flags, Flags]:
        """Slices that vanished, that have the opposite sign, and that are lost otherwise."""
        is_lost = is_read & (self.signal > scale.noise) & (self.error >= LOST * self.signal)
        gone = is_lost & (self.left <= _VANISHED * self.signal)
        flipped = (
            is_lost & (self.error >= _FLIPPED * self.signal) & (self.left <= _FLIPPED * self.signal)
        )
        return gone, flipped, is_lost & ~gone & ~flipped


class SliceSums:
    """Sums per slice along one axis of an output."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._sums = np.zeros((9, length))
        self._peaks = np.zeros(length)
        self._numbers = self._changes = 0.0  # elements per slice

    def add(self, where: slice, sums: Iterable[Floats], peaks: Floats) -> None:
        """Add sums [slices] per term, and the reference's largest magnitudes, of some slices."""
        for total, added in zip(self._sums, sums, strict=False):
            total[where] += added
        self._peaks[where] = np.maximum(self._peaks[where], peaks)

    def count(self, samples: int, numbers: int, *, is_aligned: bool) -> None:
        """Count the elements of a batch's samples, all slices together."""
        is_first = self._numbers == 0.0
        self._numbers += samples * numbers / self.length
        self._changes += (samples - is_first) * numbers / self.length if is_aligned else 0.0

    @property
    def peak(self) -> float:
        return float(self._peaks.max())

    @property
    def rms(self) -> float:
        """The root mean square of the whole reference."""
        return math.sqrt(float(self._sums[3].mean()) / max(self._numbers, 1.0))

    def losses(self, number: int, scale: Scale) -> Iterator[_Loss]:
        """The ways in which slices along this axis are lost. `number`: the axis, for messages."""
        is_read = self._peaks > _UNREAD * scale.peak
        whole, variation = self._views()
        zero, *others = whole.find_lost(scale, is_read)
        constant, *changes = variation.find_lost(scale, is_read)
        # Variation is judged only for slices that are not lost as they are.
        changes = [change & ~np.logical_or.reduce((zero, *others)) for change in changes]
        for view, words, several in (
            (whole, _AS_THEY_ARE, (zero, *others)),
            (variation, _AS_THEY_VARY, (constant & ~zero, *changes)),
        ):
            for way, is_lost in enumerate(several):
                count, most = int(np.count_nonzero(is_lost)), view.signal[is_lost].max(initial=0.0)
                are_most = 2 * count >= self.length
                # Rounding turns small slices into noise, but does not flip the sign of most slices.
                is_systematic = way < 2
                is_fault = most >= max(scale.allowed, scale.step) or (
                    is_systematic and are_most and most >= scale.step
                )
                is_fault |= is_lost is zero and are_most and self._are_apart(zero, is_read)
                if count and (is_fault or is_lost is zero or (is_systematic and are_most)):
                    summary = f"{_spell_share(count, self.length, number)} {words[way]}"
                    yield _Loss(is_fault, is_systematic, count / self.length, summary)

    def units(self, number: int, scale: Scale) -> Iterator[_Part]:
        """Groups of non-negligible slices in different units, a factor `_UNITS_APART` apart."""
        read = np.flatnonzero(self._peaks > _UNREAD * scale.peak)
        order = read[np.argsort(self._peaks[read])]
        peaks = self._peaks[order]
        groups = np.split(order, np.flatnonzero(peaks[1:] >= _UNITS_APART * peaks[:-1]) + 1)
        for group in groups if len(groups) > 1 else ():
            signal, error = np.sqrt(self._sums[[3, 5]][:, group].mean(axis=1) / self._numbers)
            words = (
                f"{_spell_share(len(group), self.length, number)} are off by {{:.3g}} of what they"
                " hold"
            )
            yield _Part(float(signal), float(error), words, _MOST_ERROR)

    @property
    def variation(self) -> _Part:
        """Differences between aligned samples, all slices together."""
        signal, error = np.sqrt(self._sums[[6, 8]].mean(axis=1) / max(self._changes, 1.0))
        return _Part(
            float(signal),
            float(error),
            "what varies between samples is off by {:.3g} of itself",
            LOST,
        )

    def _views(self) -> tuple[_View, _View]:
        """Slices as they are, and their variation: over aligned samples, else around the mean."""
        sums, numbers = self._sums, max(self._numbers, 1.0)
        with np.errstate(all="ignore"):
            whole = _View(*np.sqrt(sums[3:6] / numbers))
            if self._changes:
                return whole, _View(*np.sqrt(sums[6:9] / self._changes))
            # For constant elements the difference of sums is FP64 rounding, not variance.
            spread = np.maximum(sums[3:6] / numbers - (sums[:3] / numbers) ** 2, 0.0)
            return whole, _View(
                *np.sqrt(np.where(spread > _CANCELLED * sums[3:6] / numbers, spread, 0.0))
            )

    def _are_apart(self, lost: Flags, is_read: Flags) -> bool:
        """Whether the lost slices are far smaller than all other non-negligible ones."""
        remaining = is_read & ~lost
        return (
            bool(remaining.any())
            and self._peaks[lost].max() * _OTHER_UNIT <= self._peaks[remaining].min()
        )


def _spell_share(count: int, length: int, number: int) -> str:
    kind = "channels" if number == 1 else f"slices along axis {number}"
    return f"{count} of {length} {kind}" if length > 1 else "all numbers"


def _boxes(shape: tuple[int, ...]) -> Iterator[Box]:
    """Cut an array into bounded blocks: a range of one axis, single indices before it."""
    rest = math.prod(shape[1:])
    step = max(1, _PIECE // rest)
    inner = list(_boxes(shape[1:])) if rest > _PIECE else [(slice(None),) * (len(shape) - 1)]
    for start in range(0, shape[0], step):
        for box in inner:
            yield (slice(start, start + step), *box)
