"""Decisions that scores lead to: the largest number of each row, or what a sequence of rows spells."""

import numpy as np
import numpy.typing as npt
import pytest

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.metrics.decisions import Changed, DecisionChanges
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.verdicts import choose_budget

Floats = npt.NDArray[np.float32]
FORMATS_TRIED = (DType.FLOAT16, DType.BFLOAT16, DType.QUANTIZED8)


def changed(want: Floats, found: Floats, dtype: DType, parts: int = 1, noise: float = 0.0) -> Changed:
    decisions = DecisionChanges(FORMATS[dtype])
    for ours, theirs in zip(np.array_split(want, parts), np.array_split(found, parts), strict=True):
        decisions.add(ours, theirs, len(ours))
    return decisions.changed(choose_budget(None, dtype, 0.0).error, noise)


def logits(rng: np.random.Generator, *shape: int) -> Floats:
    """Scores with one class far ahead in each row."""
    scores = rng.standard_normal(shape).astype(np.float32)
    ahead = rng.integers(0, shape[-1], shape[:-1])
    np.put_along_axis(scores, ahead[..., None], 12.0, axis=-1)
    return scores


def swap_best(scores: Floats, rows: int, by: float) -> Floats:
    """The same with another class ahead in the first rows: its score passes that of the best by so little, of which the
    best leads it by `by` in the reference.
    """
    result = scores.copy()
    for row in range(rows):
        best, other = scores[row].argmax(), scores[row].argmin()
        scores[row, other] = scores[row, best] - by
        result[row] = scores[row]
        result[row, other] = scores[row, best] + 1e-3
    return result


@pytest.mark.parametrize("dtype", FORMATS_TRIED)
@pytest.mark.parametrize("seed", range(5))
def test_errors_within_the_budget_change_no_clear_decision(dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    budget = choose_budget(None, dtype, 0.0).error
    for want in (logits(rng, 64, 100), rng.standard_normal((64, 100)).astype(np.float32)):
        error = rng.standard_normal(want.shape) * np.sqrt(np.square(want).mean()) * budget
        assert changed(want, (want + error).astype(np.float32), dtype).fault is None, f"seed {seed}"


@pytest.mark.parametrize("dtype", FORMATS_TRIED)
def test_clear_decisions_that_change_are_a_fault_and_close_ones_a_doubt(dtype: DType) -> None:
    want = logits(np.random.default_rng(0), 40, 100)
    clear = changed(want, swap_best(want, 3, 8.0), dtype)
    assert clear.fault is not None and clear.fault.startswith("3 of 40 decisions are others")
    close = changed(want, swap_best(want, 3, 1e-4), dtype)
    assert close.fault is None and close.doubt is not None and "were close" in close.doubt
    assert changed(want, swap_best(want, 3, 1e-4), dtype, noise=1e-4) == Changed()  # FP32 itself moves as much


@pytest.mark.parametrize("dtype", FORMATS_TRIED)
def test_share_that_a_format_promises_may_change(dtype: DType) -> None:
    want = logits(np.random.default_rng(1), 200, 100)
    allowed = {DType.FLOAT16: 2, DType.BFLOAT16: 6, DType.QUANTIZED8: 10}[dtype]
    assert changed(want, swap_best(want, allowed, 8.0), dtype) == Changed()
    assert changed(want, swap_best(want, allowed + 1, 8.0), dtype).fault is not None


@pytest.mark.parametrize("parts", [1, 4, 40])
def test_batches_add_up(parts: int) -> None:
    want = logits(np.random.default_rng(2), 40, 100)
    found = swap_best(want, 3, 8.0)
    assert changed(want, found, DType.QUANTIZED8, parts) == changed(want, found, DType.QUANTIZED8)


def test_numbers_of_which_none_stands_out_decide_nothing() -> None:
    want = np.random.default_rng(3).standard_normal((64, 300)).astype(np.float32)
    assert changed(want, -want, DType.FLOAT16) == Changed()


def test_two_numbers_are_scores_where_they_add_up_to_one() -> None:
    want = np.random.default_rng(4).random((64, 2)).astype(np.float32)
    found = want[:, ::-1].copy()
    assert changed(want, found, DType.FLOAT16) == Changed()
    total = want.sum(1, keepdims=True)
    assert changed(want / total, found / total, DType.FLOAT16).fault is not None


def spelled(steps: list[int], classes: int = 50) -> Floats:
    scores = np.zeros((1, len(steps), classes), np.float32)
    scores[0, np.arange(len(steps)), steps] = 10.0
    return scores


@pytest.mark.parametrize(
    ("found", "is_same"),
    [
        ([0, 5, 5, 0, 0, 7, 0, 0, 9, 0], True),
        ([5, 0, 0, 7, 7, 7, 0, 9, 0, 0], True),  # sooner or later
        ([0, 5, 0, 5, 0, 7, 0, 0, 9, 0], False),  # twice
        ([0, 5, 5, 0, 0, 0, 0, 0, 9, 0], False),  # one less
    ],
)
def test_sequences_are_read_without_repeats_and_blanks(found: list[int], is_same: bool) -> None:
    want = spelled([0, 5, 0, 0, 0, 7, 7, 0, 9, 0])
    result = changed(want, spelled(found), DType.QUANTIZED8)
    assert (result.fault is None) is is_same
    assert is_same or result.fault == "1 of 1 sequences are others, and 95 % have to stay"


def test_a_meter_of_an_output_sees_decisions() -> None:
    want = logits(np.random.default_rng(5), 40, 1000)
    found = swap_best(want, 3, 8.0)
    meter = Meter("scores", DType.BFLOAT16)
    meter.add(want, found, 40)
    assert meter.changed(0.0625, 0.0).fault is not None
    assert meter.changed(0.95, 0.0) == Changed()  # zeros would do


def tokens(rng: np.random.Generator, rows: int, classes: int) -> Floats:
    """Logits of a language model: few tokens fit, and in a third of the rows one alone."""
    scores = rng.standard_normal((1, rows, classes)) * 2.0
    for row in scores[0]:
        fitting = rng.integers(0, classes, 3)
        row[fitting] = row.max() + rng.exponential(1.5, 3)
    return scores.astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_a_number_per_row_of_a_table_is_a_score_of_a_token(seed: int) -> None:
    rng = np.random.default_rng(seed)
    want = tokens(rng, 400, 2000)
    found = want.copy()
    rows = rng.permutation(400)[:40]
    chosen = want[0, rows].argmax(1)
    found[0, rows, chosen] = -1.0  # a tenth of the tokens
    fmt = FORMATS[DType.BFLOAT16]

    def judged(*tables: int) -> Changed:
        decisions = DecisionChanges(fmt, tables)
        decisions.add(want, found, 1)
        return decisions.changed(choose_budget(None, DType.BFLOAT16, 0.0).error, 0.0)

    assert judged() == judged(512, 1999) == Changed(), "no table has as many rows"
    tabled = judged(512, 2000)
    assert "40 of 400 decisions are others" in (tabled.fault or tabled.doubt or ""), f"seed {seed}"


def test_an_embedding_as_wide_as_a_table_has_rows_is_no_score() -> None:
    want = np.random.default_rng(0).standard_normal((64, 2000)).astype(np.float32)
    decisions = DecisionChanges(FORMATS[DType.FLOAT16], (2000,))
    decisions.add(want, -want, 64)
    assert decisions.changed(0.008, 0.0) == Changed()


def sequences(rng: np.random.Generator, count: int, leads: float, classes: int = 200) -> Floats:
    """Samples of 40 steps, every other of the class 0, each with a lead of about so much."""
    scores = rng.standard_normal((count, 40, classes)).astype(np.float32)
    chosen = rng.integers(1, classes, (count, 40))
    chosen[:, ::2] = 0
    ahead = 4.0 + leads * rng.exponential(1.0, (count, 40))
    np.put_along_axis(scores, chosen[..., None], ahead[..., None].astype(np.float32), axis=-1)
    return scores


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("error", [1e-4, 0.03, 0.3, 1.0, 2.0])
def test_few_sequences_are_open_where_more_of_others_change_than_may(seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    want = sequences(rng, 16, 20.0)
    found = want + error * rng.standard_normal(want.shape).astype(np.float32)
    others = sequences(rng, 100, 20.0)
    theirs = others + error * rng.standard_normal(others.shape).astype(np.float32)
    share = float((others.argmax(-1) != theirs.argmax(-1)).any(-1).mean())
    result = changed(want, found, DType.QUANTIZED8)
    told = f"seed {seed}: {share:.2f} of others change, {result}"
    assert share <= 0.1 or result != Changed(), told  # twice what may
    assert share > 0.0 or result == Changed(), told


def test_segments_are_no_sequences_that_are_spelled() -> None:
    scores = np.zeros((4, 100, 5), np.float32)
    scores[:, :70, 2] = scores[:, 70:, 4] = 9.0
    found = scores.copy()
    found[0, 69] = scores[0, 70]  # one step of 400 is of the other class
    assert changed(scores, found, DType.QUANTIZED8) == Changed()
