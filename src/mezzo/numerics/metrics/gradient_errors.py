"""Errors of the gradients of a compiled program beside those of FP64 and FP32, weight by weight, as data."""

import math
from dataclasses import dataclass

from mezzo.ir.display import Tabled
from mezzo.numerics.ranges.gradient_ranges import GradientRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientError:
    """The gradient of one weight over all batches: ||g - ref|| / ||ref||, the reference in FP64. `eager` is what FP32
    itself errs, `beside_fp32` is the error where FP32's gradient is the reference.
    """

    name: str
    error: float
    eager: float
    beside_fp32: float


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientErrors(Tabled):
    """Errors of the gradients of every weight, in the order of the model. `error` and `eager` are of all together;
    `ranges` says what FP16 would lose of them, and of gradients of activations.
    """

    weights: tuple[GradientError, ...]
    error: float
    eager: float
    ranges: GradientRanges
    notes: tuple[str, ...] = ()

    @property
    def batches(self) -> int:
        """Over how many batches."""
        return self.ranges.batches

    @property
    def worst(self) -> GradientError:
        """The weight whose gradient errs most."""
        return max(self.weights, key=lambda one: math.inf if math.isnan(one.error) else one.error)
