"""What gradients hold beside what a low format can, and the scale of the loss with which it holds them, as data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.formats.dtypes import DType
from mezzo.formats.rounding import limits_of
from mezzo.ir.display import Tabled

# A gradient is kept where no more of its nonzero numbers are smaller than any that the format has. Of numbers that are
# spread like noise the typical one then has as many digits below the normal ones as rounding leaves above.
LOSS_ALLOWED = 1e-3
# Other batches may have larger gradients than those that were seen.
_ROOM = 2.0
# A scale is an FP32 number, and so is its reciprocal.
_LEAST_POWER, _MOST_POWER = -126, 126


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRange:
    """The gradient of what a module hands on, or a function makes in it, or of a weight, over all batches, in FP64.

    `name`: the module's path, "" for the model itself, or the weight's name. `op`: the function, "" of what the module
    hands on itself. `count` are its numbers that are finite
    and not zero; shares are of those, with the loss scaled: `below_normal`, under the smallest that has all digits,
    `below_smallest`, under the smallest that there is, `beyond`, rounding to infinity. `largest` is the largest finite
    magnitude, scaled too. `octaves` counts magnitudes as they are **without** the scale: (e, n) are n from 2**e up to
    2**(e + 1). `is_finite`: there is no infinity and no NaN in FP64 itself.
    """

    name: str
    is_weight: bool
    count: int
    largest: float
    below_normal: float
    below_smallest: float
    beyond: float
    octaves: tuple[tuple[int, int], ...]
    is_finite: bool = True
    op: str = ""

    def badness(self) -> tuple[float, float, float]:
        """What puts gradients in order by what they lose with the loss scaled."""
        return self.beyond, self.below_smallest, self.below_normal

    def keeps_from(self, dtype: DType) -> int | None:
        """The smallest power of two that, as the scale, keeps all but `LOSS_ALLOWED` of it. None: it is zero."""
        smallest, lost = math.frexp(limits_of(dtype).smallest)[1] - 1, 0
        for octave, number in self.octaves:
            lost += number
            if lost > LOSS_ALLOWED * self.count:
                return smallest - octave
        return None


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientRanges(Tabled):
    """Gradients of activations, in the order in which the backward makes them, and of weights, in the order of the
    model, beside the numbers of a format, with the loss scaled by `scale`.

    Activations are what modules hand on, and what functions that they call make.
    """

    activations: tuple[GradientRange, ...]
    weights: tuple[GradientRange, ...]
    dtype: DType
    scale: float
    batches: int
    notes: tuple[str, ...] = ()

    @property
    def every(self) -> Sequence[GradientRange]:
        """Activations, then weights."""
        return (*self.activations, *self.weights)

    @property
    def worst(self) -> GradientRange:
        """The gradient that loses most at the scale that the loss has."""
        return max(self.every, key=GradientRange.badness)

    @property
    def most_power(self) -> int:
        """The largest power of two by which the loss may be scaled before the format overflows, with room for other
        batches: 2.
        """
        largest = max((one.largest for one in self.every), default=0.0) / self.scale
        if not largest:
            return _MOST_POWER
        mantissa, exponent = math.frexp(limits_of(self.dtype).largest / _ROOM / largest)
        return _within(exponent - 1 if mantissa else _LEAST_POWER)

    @property
    def least_power(self) -> int:
        """The smallest power of two that keeps all but `LOSS_ALLOWED` of each gradient."""
        wanted = [power for one in self.every if (power := one.keeps_from(self.dtype)) is not None]
        return _within(max(wanted, default=_LEAST_POWER))

    @property
    def is_kept(self) -> bool:
        """Whether the scale that the loss has keeps all gradients, and none overflows."""
        is_enough = all(one.below_smallest <= LOSS_ALLOWED for one in self.every)
        return is_enough and not any(one.beyond for one in self.every)

    @property
    def proposed(self) -> float:
        """The scale that the loss should have: its own where that keeps them, else a power of two, as far from losing
        as from overflowing. Where none does both, the largest that does not overflow.
        """
        if self.is_kept:
            return self.scale
        least, most = self.least_power, self.most_power
        return 2.0 ** (most if least > most else (least + most) // 2)


def _within(power: int) -> int:
    return min(max(power, _LEAST_POWER), _MOST_POWER)
