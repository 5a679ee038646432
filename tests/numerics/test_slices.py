"""Slices of an output: whatever the error as a whole, a part that is lost is told, and rounding loses none."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import swept

from mezzo.api.compare import compare
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.measures import Ruling
from mezzo.numerics.metrics.decisions import Changed
from mezzo.numerics.metrics.metrics import Array, Meter
from mezzo.numerics.metrics.slices import Lost

F16, BF16, INT8 = DType.FLOAT16, DType.BFLOAT16, DType.QUANTIZED8
FORMATS_OF_RESULTS = (F16, BF16, INT8)
SHAPES = ((40, 24), (24, 6, 5, 5), (12, 7, 16), (1, 8, 12, 12), (30, 1))
# Default budgets are 8 eps, and FP32's own noise is about its eps.
_BUDGET_EPS, _NOISE = 8, 1e-7


def lost(want: Array, found: Array, fmt: DType, splits: Sequence[int] = ()) -> Lost:
    meter = Meter("y", fmt)
    for part, other in zip(np.split(want, splits), np.split(found, splits), strict=True):
        meter.add(part, other, len(part))
    return meter.lost(_BUDGET_EPS * FORMATS[fmt].eps, _NOISE)


def rounded(values: Array, fmt: DType) -> Array:
    """A right result in a format: INT8 has one scale for all."""
    if fmt is INT8:
        step = float(np.abs(values).max()) / 127 or 1.0
        return (np.rint(values / step) * step).astype(np.float32)
    return values.astype(np.float16 if fmt is F16 else ml_dtypes.bfloat16).astype(np.float32)


def drawn(seed: int, shape: tuple[int, ...], *, offset: float = 0.0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) + offset).astype(np.float32)


@pytest.mark.parametrize("fmt", FORMATS_OF_RESULTS)
@settings(deadline=None, max_examples=swept(60))
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from(SHAPES),
    offset=st.sampled_from([0.0, 1.0, -5.0]),
    is_rectified=st.booleans(),
    spread=st.sampled_from([0.0, 1.0, 3.0]),
)
def test_what_rounding_leaves_is_no_loss(fmt, seed, shape, offset, is_rectified, spread):
    """Channels from 1 to 10 ** -spread, dead and nearly dead ones behind a Relu too. The error is eps times the size of
    the whole, as of sums before a Relu, and a rounding. INT8's one scale truly loses channels a thousand times smaller.
    """
    random = np.random.default_rng(seed)
    spread = min(spread, 1.0) if fmt is INT8 else spread
    scales = 10.0 ** -(spread * random.random((shape[1], *(1 for _ in shape[2:]))))
    sums = scales * drawn(seed, shape, offset=offset)
    noisy = sums + FORMATS[fmt].eps * np.sqrt((sums**2).mean()) * random.normal(size=shape)
    want, found = (np.maximum(side, 0.0) if is_rectified else side for side in (sums, noisy))
    assert lost(want.astype(np.float32), rounded(found, fmt), fmt).fault is None


def zeroed(part: Array) -> Array:
    return np.zeros_like(part)


def frozen(part: Array) -> Array:
    return np.broadcast_to(part.mean(axis=0), part.shape)


def negated(part: Array) -> Array:
    return -part


def of_others(part: Array) -> Array:
    return np.roll(part, 1, axis=0)


@pytest.mark.parametrize("fmt", FORMATS_OF_RESULTS)
@pytest.mark.parametrize("spoil", [zeroed, frozen, negated, of_others])
@settings(deadline=None, max_examples=swept(20))
@given(seed=st.integers(0, 10_000), shape=st.sampled_from([(40, 24), (24, 6, 5, 5), (12, 7, 16)]))
def test_a_channel_that_is_lost_is_wrong_whatever_the_others_are(spoil, fmt, seed, shape):
    """The others are four times larger: an error of 1 in one channel of six or more is a tenth of the whole or less."""
    want = drawn(seed, shape)
    want[:, 1:] *= 4.0
    found = rounded(want, fmt)
    found[:, :1] = spoil(found[:, :1])
    assert "1 of " in (lost(want, found, fmt).fault or "")


WORDS = {
    zeroed: "are zero where the reference's are not",
    frozen: "are constant where the reference's vary",
    negated: "have the other sign",
    of_others: "are off by as much as they hold",
}


@pytest.mark.parametrize("spoil", WORDS)
def test_words_say_which_slices_are_lost_and_how(spoil):
    want = drawn(3, (20, 8, 9))
    found = want.copy()
    found[:, 2:5] = spoil(found[:, 2:5])
    assert lost(want, found, F16) == Lost(fault=f"3 of 8 channels {WORDS[spoil]}")
    by_last = lost(np.moveaxis(want, 1, 2), np.moveaxis(found, 1, 2), F16)
    assert by_last == Lost(fault=f"3 of 8 slices along axis 2 {WORDS[spoil]}")


@settings(deadline=None, max_examples=swept(30))
@given(seed=st.integers(0, 1000), splits=st.sets(st.integers(1, 11), max_size=6).map(sorted))
def test_any_split_into_batches_finds_the_same(seed, splits):
    want = drawn(seed, (12, 5, 7), offset=3.0)
    found = want.copy()
    found[:, seed % 5] = [3.0, 0.0, -want[:, seed % 5]][seed % 3]
    assert lost(want, found, F16, splits) == lost(want, found, F16)
    assert lost(want, found, F16).fault


def test_lengths_may_change_from_batch_to_batch():
    """What keeps its length is still an axis, and slices vary about their mean where no sample lies on another."""
    meter = Meter("y", F16)
    for length in (4, 9, 6):
        want = drawn(length, (1, length, 5), offset=8.0)
        found = want.copy()
        found[..., 3] = 8.0
        meter.add(want, found, 1)
    assert meter.lost(0.0078, _NOISE).fault == "1 of 5 slices along axis 2 are constant where the reference's vary"


def test_a_single_number_per_sample_is_a_slice():
    want = drawn(0, (50, 1), offset=100.0)
    assert lost(want, np.full_like(want, 100.0), F16).fault == "all numbers are constant where the reference's vary"


def test_scores_that_vanish_beside_boxes_are_wrong_and_a_small_channel_is_told():
    boxes, scores = 300 * np.abs(drawn(0, (9, 4, 50))), np.random.default_rng(1).random((9, 20, 50)).astype(np.float32)
    want = np.concatenate([boxes, scores], axis=1)
    found = want.copy()
    found[:, 4:] = 0.0
    assert lost(want, found, INT8).fault == "20 of 24 channels are zero where the reference's are not"
    found = want.copy()
    found[:, 7] = 0.0
    assert lost(want, found, INT8) == Lost(worry="1 of 24 channels are zero where the reference's are not")


def beside_boxes(error: float) -> tuple[Array, Array]:
    """Boxes up to a thousand beside scores up to 1, of which the scores alone are off by so much of what they hold."""
    boxes, scores = 300 * np.abs(drawn(0, (9, 4, 50))), np.random.default_rng(1).random((9, 20, 50)).astype(np.float32)
    noise = error * np.sqrt((scores**2).mean()) * drawn(2, scores.shape)
    return np.concatenate([boxes, scores], axis=1), np.concatenate([boxes, scores + noise], axis=1)


@pytest.mark.parametrize("fmt", FORMATS_OF_RESULTS)
@pytest.mark.parametrize("axis", [1, 2])
def test_scores_beside_boxes_are_held_to_the_budget_by_their_own_size(fmt, axis):
    """Noise of a fifth of the budget is right, of twice the budget open, of more than a quarter of itself wrong."""
    budget = _BUDGET_EPS * FORMATS[fmt].eps
    for error, expected in ((budget / 5, Changed()), (2 * budget, "doubt"), (0.4, "fault")):
        meter = Meter("y", fmt)
        want, found = (np.moveaxis(side, 1, axis) for side in beside_boxes(error))
        meter.add(want, found, 9)
        changed = meter.changed(budget, _NOISE)
        if isinstance(expected, Changed):
            assert changed == expected
        else:
            where = "20 of 24 channels" if axis == 1 else "20 of 24 slices along axis 2"
            assert (getattr(changed, expected) or "").startswith(f"{where} are off by {error:.1f}"[:-2])
            assert (changed.fault is None) is (expected == "doubt")


@pytest.mark.parametrize("fmt", FORMATS_OF_RESULTS)
@pytest.mark.parametrize("parts", [1, 16])
def test_what_varies_little_around_a_large_mean_is_held_to_the_budget_too(fmt, parts):
    """A fiftieth of the size varies; the error is an eighth of the budget of the whole, and so six budgets of that."""
    budget = _BUDGET_EPS * FORMATS[fmt].eps
    varying = drawn(0, (16, 40)) / 50
    want = (1.0 + drawn(1, (1, 40)) + varying).astype(np.float32)
    for error, is_open in ((budget / 100, False), (budget / 8, True)):
        found = (want + error * drawn(2, want.shape)).astype(np.float32)
        meter = Meter("y", fmt)
        for ours, theirs in zip(np.split(want, parts), np.split(found, parts), strict=True):
            meter.add(ours, theirs, len(ours))
        changed = meter.changed(budget, _NOISE)
        assert changed.fault is None
        assert ("what varies between samples is off by" in (changed.doubt or "")) is is_open
    few = Meter("y", fmt)
    few.add(want[:7], want[:7] + np.float32(budget / 2), 7)
    assert few.changed(budget, _NOISE) == Changed()


def test_a_reference_that_does_not_vary_and_dead_channels_lose_nothing():
    want = np.broadcast_to(drawn(0, (1, 6, 5)), (10, 6, 5)).copy()
    want[:, 2] = 0.0
    found = want + 1e-3 * drawn(1, want.shape)
    assert lost(want, found, F16) == Lost()


def test_a_budget_of_all_there_is_allows_zeros():
    meter = Meter("y", F16)
    want = drawn(0, (8, 4))
    meter.add(want, np.zeros_like(want), 8)
    assert meter.lost(1.0, _NOISE) == Lost()


def test_the_sample_that_differs_most_is_told_beside_the_mean():
    want = drawn(0, (500, 6))
    found = want.copy()
    found[17] *= 1.9
    meter = Meter("y", BF16)
    meter.add(want, found, 500)
    result = meter.result()
    assert result.worst_at == 17 and result.worst == pytest.approx(0.9, rel=1e-5)  # FP32 numbers, some 100 eps
    worry = meter.lost(8 * FORMATS[BF16].eps, _NOISE).worry
    assert worry == "1 of 500 samples are off by as much as they hold, sample 17 by 0.9 of it"


OFFSET = """<ir_version: 10, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y)
    <float[4] s = {0.2,0.3,0.2,0.3}, float[4] b = {8,9,9,8}> { h = Mul(x, s)  y = Add(h, b) }"""


def test_a_model_that_answers_all_samples_alike_is_wrong_though_its_error_is_small():
    reference, constant = (
        onnx.parser.parse_model(text) for text in (OFFSET, OFFSET.replace("0.2,0.3,0.2,0.3", "0,0,0,0"))
    )
    found = compare(reference, constant, {"x": drawn(0, (64, 4))}, max_error=0.0625)
    assert found.verdict.ruling is Ruling.DIFFERENT and found.outputs[0].relative_l2.high < 0.0625
    assert found.verdict.because == "output 'y': 4 of 4 channels are constant where the reference's vary"


def test_a_metric_of_the_users_decides_and_the_loss_is_told():
    reference, constant = (
        onnx.parser.parse_model(text) for text in (OFFSET, OFFSET.replace("0.2,0.3,0.2,0.3", "0,0,0,0"))
    )
    data = {"x": drawn(0, (64, 4))}
    found = compare(reference, constant, data, metric=lambda outputs, labels: 1.0, max_drop=0.1)
    assert found.verdict.is_same and found.outputs[0].worry


def test_place_of_a_token_in_its_row_is_no_slice() -> None:
    """The first token of each row may be answered nearly alike in all of them: then what varies there is small."""
    rng = np.random.default_rng(0)
    want = rng.normal(size=(6, 16, 40)).astype(np.float32)
    want[:, 0] = want[0, 0] + 0.2 * want[:, 0]
    found = want.copy()
    found[:, 0] += 0.3 * rng.normal(size=want[:, 0].shape)
    faults = []
    for tokens in (1, 16):
        meter = Meter("logits", INT8)
        meter.add(want, found, len(want), tokens)
        faults.append(meter.lost(0.1, _NOISE).fault)
    assert faults == ["1 of 16 channels are off by as much as they vary", None]
