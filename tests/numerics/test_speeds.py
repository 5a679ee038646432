"""Speeds from times taken in turns: equal models are told apart no more often than stated, different ones are. All
times are made up from seeds.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzo.numerics.measures import Interval
from mezzo.numerics.statistics.speeds import Difference, judge_speed, speed, spread_of

_TRIALS = 400
# Of so many trials with the error allowed, 5 %, more are wrong once in a thousand times: three standard errors.
_MOST_WRONG = _TRIALS * 0.05 + 3 * math.sqrt(_TRIALS * 0.05 * 0.95)


def machine(
    seed: int,
    slowness: tuple[float, ...],
    *,
    starts: int = 5,
    rounds: int = 12,
    bias: float = 0.01,
    bursts: float = 0.1,
) -> list[list[list[float]]]:
    """Turns of models on a machine that drifts, where processes differ as long as they live and others interrupt."""
    random = np.random.default_rng([seed, 7])
    taken: list[list[list[float]]] = [[] for _ in slowness]
    for _ in range(starts):
        drift = np.exp(np.cumsum(random.normal(0, 0.01, rounds)))
        for model, factor in enumerate(slowness):
            noise = np.exp(random.normal(0, 0.02, rounds) + random.normal(0, bias))
            noise *= np.where(random.random(rounds) < bursts, random.uniform(1, 5, rounds), 1)
            taken[model].append(list(1e6 * factor * drift * noise))
    return taken


def wrong(equal: int, **kind: float) -> int:
    """How often any of so many equal models is told apart from the reference."""
    count = 0
    for seed in range(_TRIALS):
        reference, *models = machine(seed, (1.0,) * (equal + 1), **kind)  # type: ignore[arg-type]  # all are numbers
        found = [judge_speed(speed(reference, model, equal)) for model in models]
        count += any(difference is not Difference.UNKNOWN for difference in found)
    return count


@pytest.mark.parametrize("equal", [1, 4])
@pytest.mark.parametrize("bias", [0.0, 0.05], ids=lambda bias: f"processes differ by {bias:.0%}")
@pytest.mark.parametrize("bursts", [0.0, 0.3], ids=lambda share: f"{share:.0%} disturbed")
def test_equal_models_are_told_apart_no_more_often_than_stated(equal: int, bias: float, bursts: float) -> None:
    assert wrong(equal, bias=bias, bursts=bursts) <= _MOST_WRONG


def test_turns_of_one_start_alone_would_take_a_lucky_process_for_a_faster_model() -> None:
    """What the starts are for: with one, the law above does not hold."""
    count = sum(
        judge_speed(speed(*machine(seed, (1.0, 1.0), starts=1, rounds=60, bias=0.05, bursts=0.0)))
        is not Difference.UNKNOWN
        for seed in range(_TRIALS)
    )
    assert count > _MOST_WRONG


@pytest.mark.parametrize(("slowness", "wanted"), [(0.8, Difference.FASTER), (1.25, Difference.SLOWER)])
def test_model_of_another_speed_is_told_apart(slowness: float, wanted: Difference) -> None:
    found = [judge_speed(speed(*machine(seed, (1.0, slowness)))) for seed in range(100)]
    assert found.count(wanted) >= 95  # a quarter is 25 times what processes differ by, and five starts are few


def test_interval_holds_the_true_speed() -> None:
    held = 0
    for seed in range(_TRIALS):
        found = speed(*machine(seed, (1.0, 0.5)))
        held += found.low <= 2.0 <= found.high
    assert _TRIALS - held <= _MOST_WRONG


_TIMES = st.lists(st.lists(st.floats(1e3, 1e9), min_size=3, max_size=8), min_size=1, max_size=4)


@given(_TIMES, st.floats(0.01, 100))
@settings(deadline=None)
def test_speed_knows_no_unit_and_no_side(turns: list[list[float]], factor: float) -> None:
    other = [[time * (1 + 0.1 * (number % 3)) for number, time in enumerate(start)] for start in turns]
    found, back = speed(turns, other), speed(other, turns)
    scaled = speed(*([[factor * time for time in start] for start in each] for each in (turns, other)))
    for here, there in ((found.estimate, scaled.estimate), (found.low, scaled.low), (found.high, scaled.high)):
        assert here == pytest.approx(there, rel=1e-9)  # logarithms of FP64 add up over some dozen terms
    assert found.estimate * back.estimate == pytest.approx(1, rel=1e-9)
    assert found.low <= found.estimate * (1 + 1e-12) and found.estimate <= found.high * (1 + 1e-12)


@given(_TIMES, st.integers(1, 10))
@settings(deadline=None)
def test_more_comparisons_never_make_an_interval_narrower(turns: list[list[float]], more: int) -> None:
    other = [[time * (1 + 0.1 * (number % 3)) for number, time in enumerate(start)] for start in turns]
    alone, among = speed(turns, other), speed(turns, other, 1 + more)
    assert among.low <= alone.low and alone.high <= among.high


def test_few_rounds_bound_nothing() -> None:
    """Five rounds on one side of 1 by chance: once in 16 times, more than 1 in 20."""
    found = speed([[2.0] * 5], [[1.0] * 5])
    assert (found.estimate, found.low, found.high) == (2.0, 0.0, math.inf)
    assert judge_speed(found) is Difference.UNKNOWN
    assert judge_speed(speed([[2.0] * 6], [[1.0] * 6])) is Difference.FASTER


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (1.01, 1.2, Difference.FASTER), (0.8, 0.99, Difference.SLOWER), (0.99, 1.01, Difference.UNKNOWN),
        (1.0, 1.2, Difference.UNKNOWN), (0.8, 1.0, Difference.UNKNOWN),
    ],
)  # fmt: skip
def test_interval_that_reaches_1_tells_nothing(low: float, high: float, wanted: Difference) -> None:
    assert judge_speed(Interval(1.0, low, high)) is wanted


def test_spread_is_of_all_turns() -> None:
    spread = spread_of([[4.0, 2.0], [1.0, 3.0, 5.0]])
    assert (spread.least_ns, spread.low_ns, spread.median_ns, spread.high_ns) == (1.0, 2.0, 3.0, 4.0)
    assert spread.share == pytest.approx(2 / 3)  # one division of FP64
