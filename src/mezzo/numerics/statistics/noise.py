"""FP32's own noise: what a model's answers move by when its numbers move by half a unit in the last place.

Another runtime, or another order of sums, changes FP32 answers about as much. A difference below that is no difference.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.numerics.metrics.metrics import Meter

Array = npt.NDArray[Any]

_SEED = 7


class Shaker:
    """Moves FP32 and FP64 numbers by one unit in the last place of FP32, up or down, every second one at random.

    That is half a unit on the average. Whole numbers stay, as masks, padding, exponents and thresholds are exact, and
    so does what is not finite.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(_SEED)

    def shake(self, values: Array) -> Array:
        """A moved copy, or the values themselves where they are no FP32 or FP64."""
        if values.dtype not in (np.float32, np.float64) or not values.size:
            return values
        steps = self._random.integers(0, 4, values.shape)
        with np.errstate(all="ignore"):
            gaps = np.spacing(values.astype(np.float32)).astype(values.dtype)
            moved = values + np.where(steps == 0, gaps, np.where(steps == 1, -gaps, 0)).astype(values.dtype)
            result: Array = np.where((values != np.rint(values)) & np.isfinite(moved), moved, values)
        return result

    def shake_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds with their arrays moved, and those inside of sequences."""
        return {name: self._shake_datum(feed) for name, feed in feeds.items()}

    def _shake_datum(self, feed: Any) -> Any:
        if isinstance(feed, list | tuple):
            return [self._shake_datum(element) for element in feed]
        return self.shake(feed) if isinstance(feed, np.ndarray) else feed


def measure_noise(meter: Meter) -> float:
    """The relative L2 by which shaking moved an output; infinite where it broke, as by NaN or another length.

    Integers that change when numbers are shaken are no noise: of them only equal ones are right.
    """
    if meter.is_exact:
        return 0.0
    return math.inf if meter.broken is not None else meter.result().relative_l2.estimate
