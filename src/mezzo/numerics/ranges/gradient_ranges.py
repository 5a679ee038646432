"""Gradient ranges against the range of a low-precision format, and the loss scale at which they
fit, as records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.formats.dtypes import DType
from mezzo.formats.rounding import limits_of
from mezzo.ir.display import Tabled

# A loss scale keeps a gradient if at most this fraction of its nonzero elements are below the
# format's smallest number. For noise-like elements the typical one then loses as many digits to
# subnormals as to rounding.
LOSS_ALLOWED = 1e-3
# Safety factor: other batches may have larger gradients.
_ROOM = 2.0
# The scale and its reciprocal are both FP32 numbers.
_LEAST_POWER, _MOST_POWER = -126, 126


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRange:
    """The gradient range of a module's output, of a function inside it, or of a weight, over all
    batches, in FP64.

    `name`: the module's path, "" for the model itself, or the weight's name. `op`: the function, ""
    for the module's own output. `count`: finite nonzero elements; the fractions of them, after loss
    scaling: `below_normal`, under the smallest normal number; `below_smallest`, under the smallest
    subnormal; `beyond`, rounding to infinity. `largest`: the largest finite magnitude, scaled too.
    `octaves` counts magnitudes **before** scaling: (e, n) is n in [2**e, 2**(e + 1)). `is_finite`:
    no infinity or NaN in FP64 itself.
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
        """A sort key: gradients that lose more at the current loss scale are larger."""
        return self.beyond, self.below_smallest, self.below_normal

    def keeps_from(self, dtype: DType) -> int | None:
        """The smallest power-of-two scale that loses at most `LOSS_ALLOWED`. None: all zero."""
        smallest, lost = math.frexp(limits_of(dtype).smallest)[1] - 1, 0
        for octave, number in self.octaves:
            lost += number
            if lost > LOSS_ALLOWED * self.count:
                return smallest - octave
        return None


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientRanges(Tabled):
    """Gradient ranges of activations, in backward order, and of weights, in model order, in a
    format of `dtype` with the loss scaled by `scale`.

    Activations are outputs of modules and of the functions that they call.
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
        """The gradient with the largest loss at the current scale."""
        return max(self.every, key=GradientRange.badness)

    @property
    def most_power(self) -> int:
        """The largest power of two to scale the loss by without overflow, with a safety factor of 2
        for other batches.
        """
        largest = max((gradient.largest for gradient in self.every), default=0.0) / self.scale
        if not largest:
            return _MOST_POWER
        mantissa, exponent = math.frexp(limits_of(self.dtype).largest / _ROOM / largest)
        return _within(exponent - 1 if mantissa else _LEAST_POWER)

    @property
    def least_power(self) -> int:
        """The smallest power of two that keeps all but `LOSS_ALLOWED` of each gradient."""
        powers = [
            power
            for gradient in self.every
            if (power := gradient.keeps_from(self.dtype)) is not None
        ]
        return _within(max(powers, default=_LEAST_POWER))

    @property
    def is_kept(self) -> bool:
        """Whether the current scale keeps all gradients without overflow."""
        is_enough = all(gradient.below_smallest <= LOSS_ALLOWED for gradient in self.every)
        return is_enough and not any(gradient.beyond for gradient in self.every)

    @property
    def proposed(self) -> float:
        """The recommended loss scale: the current one if it keeps all gradients, else the power of
        two midway between underflow and overflow. If none avoids both, the largest without
        overflow.
        """
        if self.is_kept:
            return self.scale
        least, most = self.least_power, self.most_power
        return 2.0 ** (most if least > most else (least + most) // 2)


def _within(power: int) -> int:
    return min(max(power, _LEAST_POWER), _MOST_POWER)
