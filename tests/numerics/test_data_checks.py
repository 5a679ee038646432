"""What data and answers cannot tell, in words: table in, sentence out."""

from typing import Any

import numpy as np
import pytest

from mezzo.numerics.data.data_checks import AnswerWatch, DataWatch, Unknown, judge_noise

_NONE = ("the data holds no sample",)
_NAN, _INF = float("nan"), float("inf")
_MOVING = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
_SAMPLES = len(_MOVING)
Batches = list[tuple[Any, int]]


def _rows(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def faults(*batches: tuple[Any, int]) -> tuple[str, ...]:
    data = DataWatch()
    for number, (feed, samples) in enumerate(batches):
        data.add({"x": feed}, samples, f"batch {number}")
    return data.faults()


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        ([(_MOVING, 3)], ()),
        ([], _NONE),
        ([(_MOVING[:0], 0)], _NONE),
        ([(_MOVING[:, :0], 3)], ("every input is empty",)),
        ([(None, 3)], ("every input is empty",)),
        ([(np.array(["a", "b"]), 2)], ()),
        ([(np.array([1, 2]), 2)], ()),
        ([(_rows([1, _NAN], [3, 4]), 2)], ("input 'x' holds NaN in sample 0 of batch 0 (1 of 4 numbers)",)),
        ([(_rows([1, 2], [3, _INF]), 2)], ("input 'x' holds infinities in sample 1 of batch 0 (1 of 4 numbers)",)),
        ([(_rows([1, 2, 3, _NAN]), 1)], ("input 'x' holds NaN in batch 0 (1 of 4 numbers)",)),
        (
            [(_rows([_INF, _NAN], [-_INF, 4], [5, 6]), 3)],
            ("input 'x' holds NaN and infinities in sample 0 of batch 0, and in 1 more (3 of 6 numbers)",),
        ),
        (
            [(_MOVING, 3), (_rows([_NAN, _NAN], [1, 2]), 2)],
            ("input 'x' holds NaN in sample 0 of batch 1 (2 of 10 numbers)",),
        ),
        (
            [(_rows([1, _NAN]), 1), (_rows([1, 2]), 1), (_rows([_NAN, 2]), 1)],
            ("input 'x' holds NaN in batch 0, and in 1 more (2 of 6 numbers)",),
        ),
        ([(_rows([-_INF, 1], [-_INF, 2]), 2)],
         ("input 'x' holds infinities in sample 0 of batch 0, and in 1 more (2 of 4 numbers)",)),
        ([(_rows([-_INF, 0], [0, -_INF]), 2)], ()),  # a mask that is added
        ([(_rows([_INF, 0]), 1)], ("input 'x' holds infinities in batch 0 (1 of 2 numbers)",)),
        ([(_rows([-_INF, -_INF]), 1)], ("input 'x' holds infinities in batch 0 (2 of 2 numbers)",)),
        ([(np.array([[1, 1j * _NAN]], np.complex64), 1)], ("input 'x' holds NaN in batch 0 (1 of 2 numbers)",)),
        ([([_rows([1, 2]), _rows([_NAN, 2, 3])], 1)], ("input 'x' holds NaN in batch 0 (1 of 5 numbers)",)),
        ([([_rows([1, 2]), [_rows([_NAN])]], 1)], ("input 'x' holds NaN in batch 0 (1 of 3 numbers)",)),
    ],
)  # fmt: skip
def test_faults_of_data_name_the_place_and_the_number(batches: Batches, wanted: tuple[str, ...]) -> None:
    assert faults(*batches) == wanted


@pytest.mark.parametrize(
    ("batches", "is_repeated"),
    [
        ([(_MOVING, 3)], False),
        ([(_rows([1, 2], [1, 2]), 2)], True),
        ([(_rows([1, 2]), 1), (_rows([1, 2]), 1)], True),
        ([(_rows([1, 2]), 1)], False),  # one sample is no repetition
        ([(_rows([1, 2]), 1), (_rows([1, 3]), 1)], False),
        ([(_rows([1, 2]), 1), (_rows([1, 2], [1, 3]), 2)], False),
        ([(_rows([1, 2], [1, 2]), 2), (_rows([3, 4], [3, 4]), 2)], False),
        ([(_rows([1, 2]), 1), (_rows([1]), 1)], False),
        ([([_rows([1]), _rows([2])], 1), ([_rows([1]), _rows([2])], 1)], True),
        ([([_rows([1]), _rows([2])], 1), ([_rows([1])], 1)], False),
    ],
)
def test_data_is_repeated_where_all_samples_are_one(batches: Batches, is_repeated: bool) -> None:
    data = DataWatch()
    for feed, samples in batches:
        data.add({"x": feed}, samples, "here")
    assert data.is_repeated is is_repeated


def test_one_input_that_changes_is_enough() -> None:
    data = DataWatch()
    data.add({"x": _rows([1, 1], [1, 1]), "z": _rows([1, 2], [3, 4])}, 2, "here")
    assert not data.is_repeated and data.spell_constant() is None
    assert not DataWatch().is_repeated


@pytest.mark.parametrize(
    ("feeds", "wanted"),
    [
        ({"x": _rows([1.5, 1.5], [1.5, 1.5])}, "'x' is 1.5"),
        ({"x": _rows([1.5, 1.5]), "z": np.array([[7]])}, "'x' is 1.5, 'z' is 7"),
        ({"x": np.array([[True, True]])}, "'x' is True"),
        ({"x": np.array([["a", "a"]])}, "'x' is 'a'"),
        ({"x": np.array([[1 + 2j, 1 + 2j]])}, "'x' is 1+2j"),
        ({"x": np.array([[3 + 0j, 3 + 0j]])}, "'x' is 3"),
        ({"x": _rows([1.5])}, None),  # one number has nothing to change beside
        ({"x": _rows([1.5, 2])}, None),
        ({"x": _rows([1.5, 1.5]), "z": _rows([])}, "'x' is 1.5"),
        ({"x": _rows([1.5, 1.5]), "z": _rows([1, 2])}, None),
    ],
)
def test_constant_data_is_told_as_what_it_is(feeds: dict[str, Any], wanted: str | None) -> None:
    data = DataWatch()
    data.add(feeds, 1, "here")
    assert data.spell_constant() == wanted


def judged(answer: Any, feed: Any = _MOVING, samples: int = _SAMPLES, *, is_steady: bool = False) -> Unknown | None:
    data, answers = DataWatch(), AnswerWatch()
    data.add({"x": feed}, samples, "here")
    answers.add({"y": answer}, samples, "here")
    return answers.unknown(data, frozenset({"y"} if is_steady else ())).get("y")


@pytest.mark.parametrize(
    ("answer", "because", "is_blind"),
    [
        (_MOVING[:, :0], "is empty in every sample", True),
        (_rows([_NAN], [_INF], [_NAN]), "is nothing but NaN and infinities in the reference", True),
        (_rows([-_INF], [-_INF], [-_INF]), "is nothing but NaN and infinities in the reference", True),
        (_rows([1], [_NAN], [2]), "holds NaN in sample 1 of here (1 of 3 numbers) in the reference", False),
        (_rows([1, 2], [_INF, 2], [2, 3]),
         "holds infinities in sample 1 of here (1 of 6 numbers) in the reference", False),
        (_rows([0], [0], [0]), "is zero everywhere in the reference", True),
        (_rows([-0.0], [0], [0]), "is zero everywhere in the reference", True),
        (_rows([2], [2], [2]), "is 2 everywhere in the reference", False),
        (_rows([1, 2], [1, 2], [1, 2]), "never changes in the reference, over 3 samples that differ", False),
        # -inf in the same places of all samples says which of them do not count, in others it is a number gone wrong.
        (_rows([1, -_INF], [-_INF, 2], [3, 4]),
         "holds infinities in sample 0 of here, and in 1 more (2 of 6 numbers) in the reference", False),
    ],
)  # fmt: skip
def test_an_answer_that_tells_nothing_says_why(answer: Any, because: str, is_blind: bool) -> None:
    assert judged(answer) == Unknown(because, is_blind)


@pytest.mark.parametrize(
    "answer",
    [
        _MOVING,
        _rows([1], [1], [2]),
        np.array([["a"], ["b"], ["c"]]),
        _rows([1, -_INF], [2, -_INF], [3, -_INF]),  # masked alike
        _rows([0, -_INF], [-_INF, 0], [0, 0]),  # a mask
        np.array(5.0, np.float32),  # one number for all samples
    ],
)
def test_an_answer_that_tells_something_is_judged(answer: Any) -> None:
    assert judged(answer) is None


@pytest.mark.parametrize("answer", [_MOVING[:, :0], _rows([0], [0], [0]), _rows([2], [2], [2])])
def test_what_no_data_reaches_is_judged_as_it_is(answer: Any) -> None:
    assert judged(answer, is_steady=True) is None


def test_what_no_data_reaches_is_not_judged_where_it_is_no_number() -> None:
    found = judged(_rows([_NAN], [1], [2]), is_steady=True)
    assert found == Unknown("holds NaN in sample 0 of here (1 of 3 numbers) in the reference", False)


def test_an_answer_to_data_that_never_changes_says_so() -> None:
    found = judged(_rows([1, 2]), _rows([7, 7]), 1)
    assert found == Unknown("never changes in the reference, as no input does: 'x' is 7 everywhere", False)
    assert judged(_rows([1, 2]), _rows([7, 8]), 1) is None
    assert judged(_rows([1, 2], [1, 2]), _rows([7, 8], [7, 8]), 2) is None  # repeated data is another matter


@pytest.mark.parametrize(
    ("noise", "floor", "budget", "error", "is_blind"),
    [
        (0.01, 0.2, 0.1, 0.0, None),  # equal to the last bit
        (0.9, 0.2, 0.1, 0.0, None),
        (0.01, 0.2, 0.1, 0.05, None),
        (0.01, 0.2, 0.1, 0.1, None),
        (0.01, 0.2, 0.1, 0.15, False),
        (0.01, 0.2, 0.1, 0.2, False),
        (0.01, 0.2, 0.1, 0.3, None),
        (0.49, 0.2, 0.1, 0.3, None),
        (0.5, 0.2, 0.1, 0.3, True),
        (0.5, 0.2, 0.1, 1e-9, True),
    ],
)
def test_noise_leaves_open_what_lies_between_the_budget_and_its_floor(
    noise: float, floor: float, budget: float, error: float, is_blind: bool | None
) -> None:
    found = judge_noise(noise, floor, budget, error)
    assert (None if found is None else found.is_blind) is is_blind
    assert found is None or found.because == (
        f"moves by {noise:.2g} of itself when the reference's numbers move by half a unit in the last place: "
        "it is noise"
    )


def test_an_answer_that_breaks_when_it_is_shaken_says_so() -> None:
    found = judge_noise(_INF, 1.0, 0.1, 0.5)
    assert found is not None and found.because.startswith("breaks, or is not zero any more, when the reference's")
