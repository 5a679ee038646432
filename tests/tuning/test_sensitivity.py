"""Group runs find what each unit costs: on models whose units' errors are independent, the answer is known."""

import math
import random
from collections.abc import Sequence

import pytest
from sweeps import swept

from mezzo.tuning.sensitivity import Probing, probe_units


class Toy:
    """A model whose squared errors add. `errors` per unit; infinite ones break an output."""

    def __init__(self, errors: Sequence[float]) -> None:
        self.errors, self.runs = errors, 0

    def __call__(self, units: Sequence[int]) -> float:
        self.runs += 1
        return math.sqrt(sum(self.errors[unit] ** 2 for unit in units))

    def probe(self, most: int = 48) -> Probing:
        return probe_units([1.0] * len(self.errors), self, most)


def random_errors(seed: int) -> list[float]:
    rng = random.Random(seed)
    errors = [10 ** rng.uniform(-6, -4) for _ in range(rng.choice([1, 2, 3, 9, 50, 400, 5000]))]
    for _ in range(3):
        errors[rng.randrange(len(errors))] = 10 ** rng.uniform(-3, -1)
    return errors


@pytest.mark.parametrize("seed", range(swept(40)))
def test_the_costliest_unit_gets_runs_of_its_own_and_the_rest_adds_up(seed: int) -> None:
    errors = random_errors(seed)
    toy = Toy(errors)
    found = toy.probe()
    worst = max(range(len(errors)), key=errors.__getitem__)
    assert toy.runs == found.runs <= 48, f"seed {seed}"
    assert found.costs[worst].is_measured, f"seed {seed}"
    # A sum of squares rounds at most once per unit of the group.
    assert math.isclose(found.costs[worst].square, errors[worst] ** 2, rel_tol=1e-12), f"seed {seed}"
    whole = sum(error**2 for error in errors)
    assert math.isclose(sum(cost.square for cost in found.costs), whole, rel_tol=1e-6), f"seed {seed}"


def test_a_unit_that_breaks_an_output_is_found_among_hundreds() -> None:
    errors = [1e-4] * 300
    errors[217] = math.inf
    found = Toy(errors).probe()
    broken = [unit for unit, cost in enumerate(found.costs) if math.isinf(cost.square)]
    assert broken == [217]


def test_runs_follow_what_matters_not_the_size_of_the_model() -> None:
    runs = []
    for size in (64, 4096):
        errors = [1e-6] * size
        errors[size // 3] = 1e-2
        runs.append(Toy(errors).probe(1000).runs)
    # One more halving of one group per doubling of the model.
    assert runs[1] - runs[0] <= 2 * math.log2(4096 / 64)


def test_no_run_is_spent_on_units_when_nothing_is_lost() -> None:
    toy = Toy([0.0] * 100)
    assert toy.probe().runs == 1
    assert all(cost.square == 0.0 for cost in toy.probe().costs)


def test_without_runs_left_the_whole_is_shared_out() -> None:
    found = Toy([1e-3] * 10).probe(1)
    assert not any(cost.is_measured for cost in found.costs)
    assert math.isclose(sum(cost.square for cost in found.costs), 10e-6, rel_tol=1e-9)


def test_no_units_need_no_run() -> None:
    toy = Toy([])
    assert toy.probe() == Probing(costs=(), all_low=0.0, runs=0)
    assert toy.runs == 0
