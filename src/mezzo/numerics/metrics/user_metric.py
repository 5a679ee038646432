"""User-defined metrics: loaded by name, called per batch, averaged over samples."""

from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.numerics.measures import Interval, MetricResult
from mezzo.numerics.statistics.intervals import weighted_mean
from mezzo.plugins.entries import entries
from mezzo.plugins.functions import load_function, say

Floats = npt.NDArray[np.float64]
# Takes outputs and labels by name; returns one score per sample, or one for the batch. Larger is
# better.
Metric = Callable[[dict[str, Any], dict[str, Any]], Any]


class MetricTally:
    """Averages a metric over batches, of the reference and of the candidate."""

    def __init__(self, metric: str | Metric) -> None:
        """Raises InputError: the function does not exist."""
        self._function = load_metric(metric)
        self.name = name_metric(metric)
        self._reference = array("d")
        self._candidate = array("d")
        self._weights = array("d")

    def add(
        self,
        reference: Mapping[str, Any],
        candidate: Mapping[str, Any],
        labels: Mapping[str, Any],
        samples: int,
    ) -> None:
        """Score one batch of both models' outputs. Raises InputError: the metric fails."""
        scores = [
            score(self._function, self.name, outputs, labels) for outputs in (reference, candidate)
        ]
        if scores[0].shape != scores[1].shape:
            raise InputError(
                f"metric {self.name}: gave {scores[0].size} scores for the reference and"
                f" {scores[1].size} for the model; return one per sample"
            )
        self._reference.extend(scores[0].ravel().tolist())
        self._candidate.extend(scores[1].ravel().tolist())
        self._weights.extend([1.0] * scores[0].size if scores[0].ndim else [float(samples)])

    def result(self) -> MetricResult:
        """The means over all samples."""
        means = [
            weighted_mean(scores, self._weights).estimate
            for scores in (self._reference, self._candidate)
        ]
        return MetricResult(self.name, means[0], means[1])

    def drop(self) -> Interval:
        """The candidate's loss, with a paired confidence interval over samples."""
        return weighted_mean(np.array(self._reference) - np.array(self._candidate), self._weights)


def score(
    metric: Metric, name: str, outputs: Mapping[str, Any], labels: Mapping[str, Any]
) -> Floats:
    """One score per sample or batch. Raises InputError: the metric fails, or is not finite."""
    widened = {output: _widen(value) for output, value in outputs.items()}
    try:
        scores = np.asarray(metric(widened, dict(labels)), np.float64)
    except Exception as error:
        raise InputError(f"metric {name} failed: {say(error)}; mend it") from error
    if not np.isfinite(scores).all():
        raise InputError(
            f"metric {name} gave a score that is no finite number; return finite scores"
        )
    return scores


def name_metric(metric: str | Metric) -> str:
    """The display name of a metric: the requested text, or the function's name."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", type(metric).__name__)


def load_metric(text: str | Metric) -> Metric:
    """Load 'module:function', from the current folder too, or a metric that a package registers, by
    name.

    Raises InputError: it does not exist, or fails to load.
    """
    if not isinstance(text, str):
        return text
    module, _, path = text.partition(":")
    if ":" not in text:
        return _find_added(text)
    if not module or not path:
        raise InputError(
            f"{option('metric')} is {text!r}; write module:function, such as scores:accuracy for"
            " scores.py"
        )
    metric: Metric = load_function(text, "metric", "(outputs, labels)")
    return metric


def _find_added(name: str) -> Metric:
    """The metric that an installed package registers under "mezzo.metrics" with this name."""
    added = [entry for entry in entries("metric") if entry.name == name]
    if not added:
        names = sorted({entry.name for entry in entries("metric")})
        choices = f", or choose one of {', '.join(names)}" if names else ""
        raise InputError(
            f"{option('metric')} is {name!r}{aside(did_you_mean(name, names, 1))}; write"
            f" module:function, such as scores:accuracy for scores.py{choices}"
        )
    if len(added) > 1:
        raise InputError(
            f"metric {name!r} is taken twice, by {added[0].origin} and by {added[1].origin}; write"
            " module:function"
        )
    loaded: Any = added[0].load()
    if not callable(loaded):
        raise added[0].fault(
            f"it is a {type(loaded).__name__}, wanted a function of (outputs, labels)"
        )
    metric: Metric = loaded
    return metric


def _widen(value: Any) -> Any:
    """Arrays of BF16 and FP8, which NumPy does not support natively, as FP32."""
    if isinstance(value, list):
        return [_widen(element) for element in value]
    return (
        value.astype(np.float32)
        if isinstance(value, np.ndarray) and value.dtype.kind == "V"
        else value
    )
