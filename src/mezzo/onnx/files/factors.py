"""Scale factors per slice of a tensor, applied to its flat elements."""

from dataclasses import dataclass

import numpy as np

from mezzo.onnx.protos.rounding import Array


@dataclass(frozen=True, eq=False)
class Factors:
    """Factors of an FP32 tensor. `run` consecutive elements share one; they repeat cyclically."""

    numbers: Array
    run: int

    def scale(self, values: Array, start: int = 0) -> Array:
        """Multiply a flat chunk that begins at element `start` in FP64; return FP32."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            products: Array = values * spread(
                self.numbers.astype(np.float64), self.run, start, values.size
            )
            return products.astype(np.float32)

    def then(self, other: "Factors", elements: int) -> "Factors":
        """The element-wise product of two sets of factors."""
        sets = [spread(factors.numbers, factors.run, 0, elements) for factors in (self, other)]
        return Factors(sets[0] * sets[1], 1)


def spread(numbers: Array, run: int, start: int, count: int) -> Array:
    """Expand `numbers`, one per `run` consecutive elements, to `count` elements from `start`."""
    if run == 1:
        return np.resize(np.roll(numbers, -start), count)
    runs = np.arange(start // run, (start + count - 1) // run + 1)
    edges = np.clip(runs * run, start, start + count)
    return np.repeat(numbers[runs % len(numbers)], np.diff(edges, append=start + count))
