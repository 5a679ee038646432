"""`benchmarks/learning_curves.py`: verdicts over seeds, and the rows that it reads."""

import math
import random
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def curves() -> ModuleType:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        return import_module("learning_curves")
    finally:
        sys.path.pop(0)


def test_equal_is_said_only_where_the_seeds_can_tell(curves: ModuleType) -> None:
    baseline = {1: 1.0, 2: 1.1, 3: 1.2}  # a standard deviation of 0.1: a margin of 0.2
    cases: list[tuple[dict[int, float], Any]] = [
        ({1: 1.01, 2: 1.1, 3: 1.19}, curves.Ending.EQUAL),
        ({1: 1.0, 2: 1.1, 3: 1.2}, curves.Ending.EQUAL),
        ({1: 1.5, 2: 1.61, 3: 1.7}, curves.Ending.HIGHER),
        ({1: 0.5, 2: 0.61, 3: 0.7}, curves.Ending.LOWER),
        ({1: 1.2, 2: 1.1, 3: 1.0}, curves.Ending.UNKNOWN),  # the same mean, but pairs far apart
        ({1: 1.0, 2: 1.1}, curves.Ending.UNKNOWN),
        ({4: 1.0, 5: 1.1, 6: 1.2}, curves.Ending.UNKNOWN),
        ({1: 1.0, 2: math.nan, 3: 1.2}, curves.Ending.NOT_FINITE),
    ]
    for ends, ending in cases:
        judged = curves.judge_ends(ends, baseline)
        assert judged.ending is ending, ends
        assert bool(judged.because) is (ending is curves.Ending.UNKNOWN)
    assert curves.judge_ends(baseline, {1: math.inf, 2: 1.0, 3: 1.0}).because == "the baseline's ends are not finite"
    # Three differences of 0, 0.01 and 0.02: 2.920 times their standard deviation over the root of three to either side.
    judged = curves.judge_ends({1: 1.0, 2: 1.11, 3: 1.22}, baseline)
    assert judged.low is not None and judged.high is not None and judged.margin is not None
    assert (judged.difference, judged.low, judged.high) == pytest.approx((0.01, -0.006859, 0.026859), abs=1e-6)
    assert judged.margin == pytest.approx(0.2)


def test_noise_alone_is_seldom_called_a_difference(curves: ModuleType) -> None:
    """Each side of the interval misses in 5 % of all draws; so many of 2,000 stray by less than 1.5 %."""
    rng = random.Random(7)
    called = 0
    for _ in range(2000):
        base = {seed: rng.gauss(0, 0.01) for seed in range(5)}
        judged = curves.judge_ends({seed: base[seed] + rng.gauss(0, 1) for seed in base}, base)
        called += judged.ending in (curves.Ending.HIGHER, curves.Ending.LOWER)
    assert 0.085 < called / 2000 < 0.115, "seed 7"


def _row(way: str, seed: int, losses: list[float], **others: Any) -> dict[str, Any]:
    return {"way": way, "seed": seed, "losses": losses, **others}


def test_the_baseline_is_fp32_else_the_first_and_held_out_counts_where_all_have_it(curves: ModuleType) -> None:
    def baselines(rows: list[dict[str, Any]], named: str | None = None) -> list[str]:
        judged = curves.judge_trainings(rows, named)
        return [ends.way for ends in judged if ends.judged.ending is curves.Ending.BASELINE]

    assert baselines([_row("x", 1, [1]), _row("fp32", 1, [1])]) == ["fp32"]
    assert baselines([_row("x", 1, [1]), _row("y", 1, [1])]) == ["x"]
    assert baselines([_row("x", 1, [1]), _row("y", 1, [1])], "y") == ["y"]
    assert baselines([_row("x", 1, [1], network=name) for name in "ab"]) == ["x", "x"]
    held = [_row("x", 1, [1], held_out=5.0), _row("y", 1, [2], held_out=6.0)]
    assert [ends.by_seed for ends in curves.judge_trainings(held)] == [{1: 5.0}, {1: 6.0}]
    assert curves.judge_trainings([held[0], _row("y", 1, [2])])[0].by_seed == {1: 1.0}


def test_final_losses_are_means_of_a_tenth_of_the_steps_and_of_twenty_at_most(curves: ModuleType) -> None:
    for steps, last in ((5, 1), (30, 3), (400, 20)):
        (ends,) = curves.judge_trainings([_row("x", 1, [float(step) for step in range(steps)])])
        assert ends.by_seed == {1: steps - (last + 1) / 2}


def test_a_baseline_that_is_missing_and_a_training_twice_are_told(curves: ModuleType) -> None:
    with pytest.raises(ValueError, match="baseline 'z' is no way of network ''; choose one of x"):
        curves.judge_trainings([_row("x", 1, [1])], "z")
    with pytest.raises(ValueError, match="way 'x' with seed 1 is there twice"):
        curves.judge_trainings([_row("x", 1, [1]), _row("x", 1, [2])])
