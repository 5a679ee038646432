"""Top-1 and top-5 by labels: ties, NaN, labels that name no class, and which output labels are of."""

from random import Random

import numpy as np
import pytest

from mezzo.numerics.metrics.label_accuracy import Classes, are_among, find_classes

SCORES = np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 1.0], [0.0, np.nan, 1.0]], np.float32)


@pytest.mark.parametrize(
    ("labels", "first", "right"),
    [
        ([1, 0, 2], 1, [True, True, False]),  # the earlier of two that score alike; nothing is right beside NaN
        ([2, 1, 2], 1, [False, False, False]),
        ([2, 1, 2], 2, [True, True, False]),
        ([-1, 3, 0], 3, [False, False, False]),  # no class at all, however many count
    ],
)
def test_a_class_is_right_where_it_is_among_the_first(labels: list[int], first: int, right: list[bool]) -> None:
    assert are_among(SCORES, np.array(labels), first).tolist() == right


def test_top_1_is_what_argmax_says() -> None:
    random = Random(11)
    for _ in range(50):
        scores = np.array([[random.choice((0.0, 1.0, 2.0)) for _ in range(7)] for _ in range(9)], np.float32)
        labels = np.array([random.randrange(7) for _ in range(9)])
        assert are_among(scores, labels, 1).tolist() == (scores.argmax(axis=1) == labels).tolist()
        assert are_among(scores, labels, 7).all()


def test_scores_may_have_trailing_axes_of_one() -> None:
    assert are_among(SCORES[:1, :, None, None], np.array([[1]]), 1).tolist() == [True]


def test_labels_are_of_the_one_output_with_classes() -> None:
    answers = {"logits": np.zeros((4, 9), np.float32), "hidden": np.zeros((4, 9, 2), np.float32)}
    found = find_classes(answers, {"label": np.zeros(4, np.int64), "weight": np.ones(4)}, 4)
    assert found == Classes("logits", "label", 9)
    assert [*found.metrics()] == ["top-1", "top-5"]


def test_of_five_classes_or_fewer_the_first_five_say_nothing() -> None:
    assert [*Classes("logits", "label", 5).metrics()] == ["top-1"]


@pytest.mark.parametrize(
    ("answers", "labels", "why"),
    [
        (
            {"y": np.zeros((4, 9), np.float32)},
            {"label": np.zeros(4)},
            "top-1 is unknown: of the labels 'label' float64[4] none hold an integer for each of 4 samples, and one "
            "has to; name that one alone, or give metric",
        ),
        (
            {"y": np.zeros((4, 9), np.float32)},
            {"a": np.zeros(4, np.int64), "b": np.zeros((4, 1), np.int32)},
            "top-1 is unknown: of the labels 'a' int64[4], 'b' int32[4,1] 2 hold an integer for each of 4 samples, "
            "and one has to; name that one alone, or give metric",
        ),
        (
            {"y": np.zeros((4, 9), np.int64), "z": [np.zeros(4)]},
            {"label": np.zeros(4, np.int64)},
            "top-1 is unknown: of the outputs 'y' int64[4,9], 'z' (a list) none have a score for each class of 4 "
            "samples, and one has to; give metric, a function of (outputs, labels)",
        ),
    ],
)
def test_what_labels_are_of_is_not_guessed(answers: dict[str, object], labels: dict[str, object], why: str) -> None:
    assert find_classes(answers, labels, 4) == why
