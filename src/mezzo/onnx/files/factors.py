"""One number per slice of a tensor, laid over its elements as they follow each other in memory."""

from dataclasses import dataclass

import numpy as np

from mezzo.onnx.protos.rounding import Array


@dataclass(frozen=True, eq=False)
class Factors:
    """What the elements of an FP32 tensor are multiplied by. `run` elements that follow each other share a number;
    behind the last the first comes again.
    """

    numbers: Array
    run: int

    def scale(self, values: Array, start: int = 0) -> Array:
        """Multiply flat numbers in FP64, element `start` of their tensor the first of them, and store them in FP32."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            products: Array = values * spread(self.numbers.astype(np.float64), self.run, start, values.size)
            return products.astype(np.float32)


def spread(numbers: Array, run: int, start: int, count: int) -> Array:
    """The number of each of `count` elements from `start` on, where `run` that follow each other share one."""
    if run == 1:
        return np.resize(np.roll(numbers, -start), count)
    runs = np.arange(start // run, (start + count - 1) // run + 1)
    edges = np.clip(runs * run, start, start + count)
    return np.repeat(numbers[runs % len(numbers)], np.diff(edges, append=start + count))
