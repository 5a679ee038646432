"""Chooses how many samples run at a time where nobody says so: what a few of them show bounds the memory of a batch."""

from typing import Any

import numpy as np

from mezzo.common.errors import MezzoError
from mezzo.common.memory import memory_at_hand
from mezzo.contracts.frontend import Model
from mezzo.conversion.results import lab_of
from mezzo.numerics.data.datasets import Batch
from mezzo.numerics.data.splits import cut

# More samples than this are worth a run that shows how large values are.
MANY = 33
_TRIED = 4
# What all values of a batch may take in FP32. Comparing holds a model twice, with the rounded forms of its values.
_MOST_BYTES = 256 << 20
_FLOAT_BYTES = 4
# Of the largest number of an output: sums of other lengths may be taken in another order.
_ALIKE = 1e-4


def choose_batch_size(model: Model, batch: Batch) -> int | None:
    """How many samples run at a time, by the first `MANY` of the data. None: all of a file, as there are few, or the
    model does not answer each sample for itself.

    The same model and data give the same size on every machine, unless a bound on memory is asked for.
    """
    if batch.samples < MANY or lab_of(model).inputs.has_fixed_length:
        return None
    tried = cut(batch, 0, _TRIED)
    try:
        if not _answers_each_alone(model, tried):
            return None
        values = lab_of(model).instruments(tried.feeds).run(tried.feeds, 0, 1)
    except MezzoError:  # whoever runs all of it says what is wrong
        return None
    sample_bytes = int(values.counts.sum()) * _FLOAT_BYTES // _TRIED
    return max(MANY - 1, memory_at_hand().share_bytes(_MOST_BYTES) // max(sample_bytes, 1))


def _answers_each_alone(model: Model, batch: Batch) -> bool:
    """Whether answers to two halves are those to the whole. Halves that are alike show nothing."""
    half = batch.samples // 2
    parts = cut(batch, 0, half), cut(batch, half, batch.samples)
    if all(np.array_equal(feed, parts[1].feeds[name]) for name, feed in parts[0].feeds.items()):
        return False
    run = lab_of(model).native()
    whole, first, second = run(batch.feeds), run(parts[0].feeds), run(parts[1].feeds)
    return all(_is_joined(answer, first[name], second[name]) for name, answer in whole.items())


def _is_joined(whole: Any, first: Any, second: Any) -> bool:
    arrays = (whole, first, second)
    if not all(isinstance(array, np.ndarray) and array.ndim for array in arrays):
        return False
    if first.shape[1:] != second.shape[1:] or whole.shape != (len(first) + len(second), *first.shape[1:]):
        return False
    joined = np.concatenate([first, second])
    if joined.dtype.kind not in "fV":
        return bool(np.array_equal(joined, whole))
    joined, whole = joined.astype(np.float64), whole.astype(np.float64)
    bound = _ALIKE * np.abs(whole[np.isfinite(whole)]).max(initial=0.0)
    return bool(np.allclose(joined, whole, rtol=0.0, atol=bound, equal_nan=True))
