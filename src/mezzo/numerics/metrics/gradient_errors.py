"""Records of gradient errors of a compiled program against FP64 and FP32, per weight."""

import math
from dataclasses import dataclass

from mezzo.ir.display import Tabled
from mezzo.numerics.ranges.gradient_ranges import GradientRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientError:
    """Error of one weight's gradient over all batches: ||g - ref|| / ||ref|| with an FP64
    reference. `eager`: FP32's own error; `beside_fp32`: the error with FP32's gradient as the
    reference.
    """

    name: str
    error: float
    eager: float
    beside_fp32: float


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientErrors(Tabled):
    """Gradient errors of every weight, in model order. `error` and `eager` are of all together;
    `ranges`: what FP16 would lose of them, and of activation gradients.
    """

    weights: tuple[GradientError, ...]
    error: float
    eager: float
    ranges: GradientRanges
    notes: tuple[str, ...] = ()

    @property
    def batches(self) -> int:
        """The number of batches."""
        return self.ranges.batches

    @property
    def worst(self) -> GradientError:
        """The weight with the largest gradient error."""
        return max(
            self.weights, key=lambda weight: math.inf if math.isnan(weight.error) else weight.error
        )
