"""FP32 rounding noise: the change of outputs when weights and inputs move by half a unit in the
last place.

Another runtime, or another order of summation, changes FP32 outputs about as much, so smaller
differences mean nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.sequences.step_feeds import StepFeeds
from mezzo.numerics.metrics.metrics import Meter

Array = npt.NDArray[Any]

_SEED = 7


class Shaker:
    """Perturbs FP32 and FP64 arrays: every second element, at random, by one FP32 unit in the last
    place, up or down.

    That is half a unit on average. Integral and non-finite elements are unchanged, as masks,
    padding, exponents and thresholds are exact.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(_SEED)

    def shake(self, values: Array) -> Array:
        """A perturbed copy; the array itself if it is neither FP32 nor FP64."""
        if values.dtype not in (np.float32, np.float64) or not values.size:
            return values
        steps = self._random.integers(0, 4, values.shape)
        with np.errstate(all="ignore"):
            gaps = np.spacing(values.astype(np.float32)).astype(values.dtype)
            moved = values + np.where(steps == 0, gaps, np.where(steps == 1, -gaps, 0)).astype(
                values.dtype
            )
            result: Array = np.where(
                (values != np.rint(values)) & np.isfinite(moved), moved, values
            )
        return result

    def shake_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """Feeds with perturbed arrays, those inside sequences included."""
        if isinstance(feeds, StepFeeds):
            return feeds.map(self.shake_feeds)
        return {name: self._shake_datum(feed) for name, feed in feeds.items()}

    def _shake_datum(self, feed: Any) -> Any:
        if isinstance(feed, list | tuple):
            return [self._shake_datum(element) for element in feed]
        return self.shake(feed) if isinstance(feed, np.ndarray) else feed


def measure_noise(meter: Meter) -> float:
    """The relative L2 change of a perturbed output; infinite if it broke, e.g. by NaN or another
    length.

    Integers that a perturbation changes are not noise: they have to be equal.
    """
    if meter.is_exact:
        return 0.0
    return math.inf if meter.broken is not None else meter.result().relative_l2.estimate
