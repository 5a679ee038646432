"""Top-1 and top-5 accuracy by labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.message_style import option
from mezzo.numerics.metrics.metrics import is_float
from mezzo.numerics.metrics.user_metric import Metric

Array = npt.NDArray[Any]
_FIRST = 5


@dataclass(frozen=True, slots=True)
class Classes:
    """A score output and the labels of its classes."""

    output: str
    label: str
    count: int

    def metrics(self) -> dict[str, Metric]:
        """The metrics by name; with five classes or fewer, top-5 is left out."""
        metrics = {"top-1": self._metric(1)}
        return metrics | {f"top-{_FIRST}": self._metric(_FIRST)} if self.count > _FIRST else metrics

    def _metric(self, first: int) -> Metric:
        def share(outputs: dict[str, Any], labels: dict[str, Any]) -> npt.NDArray[np.float64]:
            return are_among(outputs[self.output], labels[self.label], first).astype(np.float64)

        return share


def are_among(scores: Array, labels: Array, first: int) -> npt.NDArray[np.bool_]:
    """Samples whose label is among the `first` best classes. Of equal scores the lower class ranks
    first, as in argmax; NaN scores or an invalid label count as wrong.
    """
    rows = scores.reshape(len(scores), -1)
    right = labels.reshape(-1).astype(np.int64)
    is_class = (right >= 0) & (right < rows.shape[1])
    column = np.where(is_class, right, 0)[:, None]
    own = np.take_along_axis(rows, column, axis=1)
    before = (rows > own) | ((rows == own) & (np.arange(rows.shape[1]) < column))
    is_among: npt.NDArray[np.bool_] = (
        is_class & ~np.isnan(rows).any(axis=1) & (before.sum(axis=1) < first)
    )
    return is_among


def find_classes(
    answers: Mapping[str, Any], labels: Mapping[str, Any], samples: int
) -> Classes | str:
    """Find the score output, [N, classes], that the labels, one integer per sample, refer to. If
    there is none or more than one, the reason as text.
    """
    scores = {name: array for name, array in answers.items() if _is_scores(array, samples)}
    named = [name for name, array in labels.items() if _is_label(array, samples)]
    if len(named) != 1:
        return (
            f"top-1 is unknown: of the labels {_spell(labels)} {len(named) or 'none'} hold an"
            f" integer for each of {samples} samples, and one has to; name that one alone, or give"
            f" {option('metric')}"
        )
    if len(scores) != 1:
        return (
            f"top-1 is unknown: of the outputs {_spell(answers)} {len(scores) or 'none'} have a"
            f" score for each class of {samples} samples, and one has to; give {option('metric')},"
            " a function of (outputs, labels)"
        )
    ((output, array),), (label,) = scores.items(), named
    return Classes(output, label, array.size // samples)


def _is_scores(value: object, samples: int) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim < 2 or not is_float(value):
        return False
    return len(value) == samples and value.shape[1] > 1 and value.size == samples * value.shape[1]


def _is_label(value: object, samples: int) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return False
    return value.dtype.kind in "iu" and value.size == samples == len(value)


def _spell(arrays: Mapping[str, Any]) -> str:
    return ", ".join(f"{name!r} {_spell_one(array)}" for name, array in arrays.items())


def _spell_one(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return f"(a {type(value).__name__})"
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"
