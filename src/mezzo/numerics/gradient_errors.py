"""Errors of the gradients of a compiled program beside those of FP64 and FP32, weight by weight, as data."""

import math
from dataclasses import dataclass

from mezzo.core.shown import Tabled

FP16_LEAST = 2.0**-25  # what is smaller rounds to zero in FP16
FP16_NORMAL = 2.0**-14  # what is smaller has fewer digits
FP16_LARGEST = 65504.0
_ROOM = 8.0  # gradients of activations may be so many times larger than those of weights


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientError:
    """The gradient of one weight over all batches: ||g - ref|| / ||ref||, the reference in FP64. `eager` is what FP32
    itself errs, `beside_fp32` is the error where FP32's gradient is the reference.

    `largest` is the largest magnitude in FP64; `lost` is the share of the numbers, zeros apart, that FP16 has none for,
    `faint` that of those it has with fewer digits.
    """

    name: str
    error: float
    eager: float
    beside_fp32: float
    largest: float
    lost: float
    faint: float


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientErrors(Tabled):
    """Errors of the gradients of every weight, in the order of the model. `error` and `eager` are of all together."""

    weights: tuple[GradientError, ...]
    error: float
    eager: float
    batches: int
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> GradientError:
        """The weight whose gradient errs most."""
        return max(self.weights, key=lambda one: math.inf if math.isnan(one.error) else one.error)

    @property
    def lost(self) -> float:
        """The share of numbers that FP16 has none for, of the weight that loses most."""
        return max(one.lost for one in self.weights)

    @property
    def scale(self) -> float:
        """By what power of two the loss may be multiplied before FP16 overflows, with room for activations."""
        largest = max(one.largest for one in self.weights)
        return 2.0 ** math.floor(math.log2(FP16_LARGEST / _ROOM / largest)) if 0 < largest < math.inf else 1.0
