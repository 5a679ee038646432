"""Automatic batch size, from the memory that a few samples' values take."""

from typing import Any

import numpy as np

from mezzo.common.errors import MezzoError
from mezzo.common.memory import current_memory_limit
from mezzo.contracts.frontend import Model, lab_of
from mezzo.numerics.data.datasets import Batch
from mezzo.numerics.data.splits import cut

# With fewer samples than this, a trial run to measure the size of values does not pay.
MANY = 33
_TRIED = 4
# Bound on the FP32 size of all values of a batch. A comparison holds two models and the rounded
# forms of their values.
_MOST_BYTES = 256 << 20
_FLOAT_BYTES = 4
# Relative to an output's largest number: another batch size may change the order of summation.
_ALIKE = 1e-4


def choose_batch_size(model: Model, batch: Batch) -> int | None:
    """The number of samples per run, from the first `MANY` samples of the data. None: run the data
    as it comes, since it is short or the model mixes samples.

    The same model and data give the same size on every machine, unless a memory limit is set.
    """
    if batch.samples < MANY or lab_of(model).inputs.has_fixed_length:
        return None
    tried = cut(batch, 0, _TRIED)
    try:
        if not _answers_each_alone(model, tried):
            return None
        values = lab_of(model).instruments(tried.feeds).run(tried.feeds, 0, 1)
    except MezzoError:  # the error is reported by the run on the whole data
        return None
    sample_bytes = int(values.counts.sum()) * _FLOAT_BYTES // _TRIED
    return max(MANY - 1, current_memory_limit().share_bytes(_MOST_BYTES) // max(sample_bytes, 1))


def _answers_each_alone(model: Model, batch: Batch) -> bool:
    """Whether the outputs for two halves of a batch, joined, equal those for the whole. Identical
    halves prove nothing: False.
    """
    half = batch.samples // 2
    parts = cut(batch, 0, half), cut(batch, half, batch.samples)
    if all(np.array_equal(feed, parts[1].feeds[name]) for name, feed in parts[0].feeds.items()):
        return False
    run = lab_of(model).native()
    whole, first, second = run(batch.feeds), run(parts[0].feeds), run(parts[1].feeds)
    return all(_is_joined(answer, first[name], second[name]) for name, answer in whole.items())


def _is_joined(whole: Any, first: Any, second: Any) -> bool:
    """Whether `whole` is `first` followed by `second` along axis 0, within `_ALIKE` for floats."""
    arrays = (whole, first, second)
    if not all(isinstance(array, np.ndarray) and array.ndim for array in arrays):
        return False
    if first.shape[1:] != second.shape[1:] or whole.shape != (
        len(first) + len(second),
        *first.shape[1:],
    ):
        return False
    joined = np.concatenate([first, second])
    if joined.dtype.kind not in "fV":
        return bool(np.array_equal(joined, whole))
    joined, whole = joined.astype(np.float64), whole.astype(np.float64)
    bound = _ALIKE * np.abs(whole[np.isfinite(whole)]).max(initial=0.0)
    return bool(np.allclose(joined, whole, rtol=0.0, atol=bound, equal_nan=True))
