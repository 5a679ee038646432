"""Outputs of few numbers, each read by itself: weighed by how much it varies between samples."""

import numpy as np
import numpy.typing as npt
import pytest

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.metrics.decisions import Changed
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.metrics.regression import Regression
from mezzo.numerics.verdicts import choose_budget

Floats = npt.NDArray[np.float32]
FORMATS_TRIED = (DType.FLOAT16, DType.BFLOAT16, DType.QUANTIZED8)
_SAMPLES = 40


def marks(seed: int, samples: int = _SAMPLES, kinds: int = 3) -> Floats:
    """Marks of some kinds, 1 to 5: each around a mean of its own."""
    random = np.random.default_rng(seed)
    return (3 + random.random(kinds) + 0.5 * random.standard_normal((samples, kinds))).astype(np.float32)


def changed(want: Floats, found: Floats, dtype: DType, parts: int = 1, noise: float = 0.0) -> Changed:
    regression = Regression(FORMATS[dtype])
    for ours, theirs in zip(np.array_split(want, parts), np.array_split(found, parts), strict=True):
        regression.add(ours, theirs, len(ours))
    return regression.changed(choose_budget(None, dtype, 0.0).error, noise)


def moved(want: Floats, numbers: int, by: float) -> Floats:
    """The first numbers off by so much of what they vary."""
    result = want.copy()
    varies = np.abs(want - want.mean(0)).mean(0)
    result.reshape(-1)[:numbers] += np.broadcast_to(by * varies, want.shape).reshape(-1)[:numbers]
    return result


@pytest.mark.parametrize("dtype", FORMATS_TRIED)
@pytest.mark.parametrize("shape", [(_SAMPLES, 3), (_SAMPLES, 1, 3), (_SAMPLES * 3,)])
def test_more_numbers_off_than_a_format_may_leave_a_doubt(dtype: DType, shape: tuple[int, ...]) -> None:
    budget = choose_budget(None, dtype, 0.0).error
    allowed = {DType.FLOAT16: 2, DType.BFLOAT16: 4, DType.QUANTIZED8: 6}[dtype]  # of 120
    want = marks(0, shape[0], 120 // shape[0])
    for numbers, by, is_open in ((allowed, 9, False), (allowed + 1, 2, True), (120, 0.5, False)):
        found = moved(want, numbers, by * budget)
        said = changed(want.reshape(shape), found.reshape(shape), dtype)
        assert said.fault is None
        assert (said.doubt is not None) is is_open, (numbers, by)
    assert said == Changed()


@pytest.mark.parametrize("parts", [1, 5, _SAMPLES])
def test_batches_add_up(parts: int) -> None:
    want = marks(1)
    found = moved(want, 20, 0.2)
    whole = changed(want, found, DType.QUANTIZED8)
    assert (
        whole.doubt == "20 of 120 numbers are off by more than 0.0625 of what they vary, and 95 % have to stay within"
    )
    assert changed(want, found, DType.QUANTIZED8, parts) == whole


def test_fp32s_own_noise_few_samples_and_features_say_nothing() -> None:
    want = marks(2)
    found = moved(want, 120, 0.2)
    assert changed(want, found, DType.QUANTIZED8).doubt is not None
    assert changed(want, found, DType.QUANTIZED8, noise=0.01) == Changed()
    assert changed(want[:7], found[:7], DType.QUANTIZED8) == Changed()
    features = marks(3, kinds=17)
    assert changed(features, moved(features, 600, 0.2), DType.QUANTIZED8) == Changed()


def test_numbers_that_never_vary_and_broken_ones_are_no_matter_of_this() -> None:
    want = marks(4)
    want[:, 1] = 1.0
    found = want.copy()
    found[:, 1] += 0.1
    found[0, 0] = np.nan
    assert changed(want, found, DType.QUANTIZED8) == Changed()


def test_a_meter_asks_where_no_scores_decide_and_at_a_formats_own_budget_at_least() -> None:
    want = marks(5)
    for strictest in (0.0625, 1e-4):
        for by, is_open in ((0.2, True), (0.02, False)):
            meter = Meter("marks", DType.QUANTIZED8)
            meter.add(want, moved(want, 120, by), _SAMPLES)
            assert (meter.changed(strictest, 0.0).doubt is not None) is is_open
    scores = np.eye(3, dtype=np.float32)[np.arange(_SAMPLES) % 3]
    meter = Meter("scores", DType.QUANTIZED8)
    meter.add(scores, (scores * 0.95 + 0.05 / 3).astype(np.float32), _SAMPLES)
    assert meter.changed(0.0625, 0.0) == Changed()
