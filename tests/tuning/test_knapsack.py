"""One option per item: the optimum of all selections, or a proved gap."""

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
from sweeps import swept

from mezzo.tuning.storage.knapsack import Option, Selection, least_cost, least_error, lower_hull

Problem = list[list[Option]]
_EPS = float(np.finfo(np.float64).eps)


def totals(items: Problem) -> Iterator[Option]:
    """Cost and error of every selection without an infinite error."""
    for chosen in itertools.product(*items):
        error = math.fsum(option.error for option in chosen)
        if math.isfinite(error):
            yield Option(sum(option.cost for option in chosen), error)


def check(items: Problem, selection: Selection | None) -> Selection:
    """The selection, whose totals are those of its options."""
    assert selection is not None
    chosen = [options[index] for options, index in zip(items, selection.options, strict=True)]
    assert selection.cost == sum(option.cost for option in chosen)
    assert selection.error == math.fsum(option.error for option in chosen)
    return selection


def exceeds(error: float, budget: float, items: Problem) -> bool:
    """Whether an error is above a budget by more than the rounding of its sum, as the module says."""
    return error > budget * (1 + 32 * len(items) * _EPS)


def small_problem(rng: random.Random, cost_unit: int = 1) -> Problem:
    """Up to five items, many with ties, zeros, infinite errors or one option."""
    is_tied = rng.random() < 0.5

    def error() -> float:
        if rng.random() < 0.1:
            return rng.choice([0.0, math.inf])
        return float(rng.randrange(6)) if is_tied else rng.lognormvariate(0, 3)

    most = rng.choice([3, 1000])
    return [
        [Option(rng.randrange(most) * cost_unit, error()) for _ in range(rng.randrange(1, 6))]
        for _ in range(rng.randrange(1, 6))
    ]


def large_problem(seed: int, items: int, options: int) -> Problem:
    """Weights of lognormal sizes in ever more bits, the first a fifth of all bytes; the error falls by four per bit."""
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(14, 1.2, items)
    sizes[0] = sizes[1:].sum() / 4
    bits = np.sort(rng.choice(np.arange(3.0, 33.0, 0.25), (items, options)), 1)
    errors = rng.lognormal(0, 2, (items, 1)) * 4.0**-bits * rng.lognormal(0, 0.7, bits.shape)
    return [
        [Option(int(size * each / 8), float(error)) for each, error in zip(row, of_item, strict=True)]
        for size, row, of_item in zip(sizes, bits, errors, strict=True)
    ]


def hard_problem(seed: int, items: int) -> Problem:
    """Cost and error of all options add up to nearly the same: bounds hardly cut anything."""
    rng = random.Random(seed)
    costs = [sorted(rng.sample(range(10_000), 6)) for _ in range(items)]
    return [[Option(cost, 10_000.0 - cost + rng.uniform(0, 50)) for cost in of_item] for of_item in costs]


@pytest.mark.parametrize("hundred", range(swept(20)))
def test_selections_are_optimal_among_all(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        compare_with_all(seed)


def compare_with_all(seed: int) -> None:
    """Small costs, and costs whose sums are beyond 64 bits."""
    rng = random.Random(seed)
    items = small_problem(rng, rng.choice([1, 1, 1 << 61]))
    every = list(totals(items))
    some = rng.choice(every) if every else Option(5, 5.0)
    max_cost, max_error = (
        rng.choice([some.cost, some.cost // 2, 0, 1 << 70]),
        rng.choice([some.error, 2.5, 0.0, math.inf]),
    )
    cheapest = min((each for each in every if not exceeds(each.error, max_error, items)), default=None)
    safest = min((each[::-1] for each in every if each.cost <= max_cost), default=None)
    by_cost, by_error = least_cost(items, max_error), least_error(items, max_cost)
    assert (by_cost is None, by_error is None) == (cheapest is None, safest is None), f"seed {seed}"
    if cheapest is not None:
        found = check(items, by_cost)
        assert found.is_exact and found.bound == found.cost == cheapest.cost, f"seed {seed}"
        # Of equal costs: as exact as errors under a budget are.
        assert found.error == pytest.approx(cheapest.error, rel=0, abs=32 * len(items) * _EPS * some.error)
    if safest is not None:
        found = check(items, by_error)
        assert found.is_exact and found.bound == found.error
        assert found.error == pytest.approx(safest[0], rel=len(items) * _EPS), f"seed {seed}"
        assert found.cost == safest[1], f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_selections_are_as_good_as_a_table_over_all_costs(seed: int) -> None:
    """Errors of all magnitudes: one that is small against the others must not be lost in their rounding."""
    rng = np.random.default_rng(seed)
    items = [
        [Option(int(cost), float(error)) for cost, error in zip(costs, errors, strict=True)]
        for costs, errors in zip(rng.integers(0, 40, (60, 6)), rng.lognormal(0, 12, (60, 6)), strict=True)
    ]
    table = np.zeros(1)
    for options in items:
        longer = np.full(len(table) + 40, math.inf)
        for option in options:
            part = longer[option.cost : option.cost + len(table)]
            np.minimum(part, table + option.error, out=part)
        table = longer
    best = np.minimum.accumulate(table)
    for max_cost in range(0, len(best), 67):
        selection = least_error(items, max_cost)
        if math.isinf(best[max_cost]):
            assert selection is None
            continue
        assert check(items, selection).is_exact
        assert selection is not None and selection.cost <= max_cost
        # Both sums round once per item.
        assert selection.error == pytest.approx(best[max_cost], rel=2 * len(items) * _EPS)


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_items_are_selected_exactly(seed: int) -> None:
    items = large_problem(seed, 400, 9)
    hull = lower_hull(items)
    for left, right in itertools.pairwise(hull[:: len(hull) // 5]):
        cheapest = check(items, least_cost(items, math.sqrt(left.error * right.error)))
        safest = check(items, least_error(items, (left.cost + right.cost) // 2))
        assert cheapest.is_exact and safest.is_exact


@pytest.mark.parametrize("seed", range(5))
def test_selections_are_at_least_as_good_as_those_on_the_hull(seed: int) -> None:
    items = large_problem(seed, 30, 5)
    for cost, error in lower_hull(items):
        assert check(items, least_cost(items, error)).cost <= cost
        # Both sums round once per item.
        assert check(items, least_error(items, cost)).error <= error * (1 + 2 * len(items) * _EPS)


@pytest.mark.parametrize("seed", range(swept(20)))
def test_the_hull_has_the_optimum_for_every_price(seed: int) -> None:
    rng = random.Random(seed)
    items = [[Option(rng.randrange(99), float(rng.randrange(99))) for _ in range(5)] for _ in range(6)]
    hull = lower_hull(items)
    assert hull == tuple(sorted(hull)) and set(hull) <= set(totals(items))
    for price in (1 / 128, 1 / 3, 1.0, 3.0, 128.0):
        optimum = sum(min(option.cost + price * option.error for option in options) for options in items)
        assert min(cost + price * error for cost, error in hull) == pytest.approx(optimum), f"seed {seed}"


@pytest.mark.parametrize("seed", range(5))
def test_larger_budgets_are_never_worse(seed: int) -> None:
    items = large_problem(seed, 40, 6)
    costs = [check(items, least_cost(items, 10.0**power)).cost for power in range(-8, 3)]
    assert costs == sorted(costs, reverse=True)
    least, most = (sum(each(options).cost for options in items) for each in (min, max))
    errors = [check(items, least_error(items, least + (most - least) * n // 50)).error for n in range(51)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("seed", range(10))
def test_totals_do_not_depend_on_the_order_of_items_and_options(seed: int) -> None:
    rng, items = random.Random(seed), large_problem(seed, 50, 6)
    shuffled = [rng.sample(options, len(options)) for options in rng.sample(items, len(items))]
    for select, budget in ((least_cost, 1), (least_error, sum(options[2].cost for options in items))):
        first, second = check(items, select(items, budget)), check(shuffled, select(shuffled, budget))
        assert (first.cost, first.error) == (second.cost, second.error), f"seed {seed}"


@pytest.mark.parametrize("most_states", [1, 2, 50])
@pytest.mark.parametrize("seed", range(5))
def test_a_result_of_few_states_has_a_proved_gap(seed: int, most_states: int) -> None:
    items = hard_problem(seed, 20)
    for select, budget, field in ((least_cost, 100_000, "cost"), (least_error, 100_000, "error")):
        cut, exact = check(items, select(items, budget, most_states)), check(items, select(items, budget))
        assert exact.is_exact
        assert cut.bound <= getattr(exact, field) <= getattr(cut, field), f"seed {seed}"
        assert cut.is_exact == (cut.bound == getattr(cut, field))
        assert (cut.error if field == "cost" else cut.cost) <= budget
        on_hull = [point for point in lower_hull(items) if point[field == "cost"] <= budget]
        assert getattr(cut, field) <= min(getattr(point, field) for point in on_hull)


def test_few_states_are_not_claimed_to_be_exact() -> None:
    results = [check(items, least_cost(items, 100_000.0, 2)) for items in map(hard_problem, range(5), [20] * 5)]
    assert not any(result.is_exact for result in results)


def test_a_bound_of_costs_is_a_whole_number() -> None:
    """Selections that tie are more than the states, and each is proved to be as good as the others."""
    items = [[Option(cost, 3.0 - cost) for cost in range(4)]] * 20
    result = check(items, least_cost(items, 31.5, 1))
    assert result.is_exact and result.cost == result.bound == 29


def test_equal_selections_are_the_first_options() -> None:
    items = [[Option(2, 1.0), Option(2, 1.0), Option(1, 2.0), Option(1, 2.0)]] * 2
    assert check(items, least_cost(items, 2.0)).options == (0, 0)
    assert check(items, least_error(items, 2)).options == (2, 2)


def test_a_total_within_the_rounding_of_its_sum_is_within_the_budget() -> None:
    items = [[Option(0, 0.1), Option(9, 0.0)], [Option(0, 0.2), Option(9, 0.0)]]
    assert 0.1 + 0.2 > 0.3
    assert check(items, least_cost(items, 0.3)).cost == 0
    assert check(items, least_cost(items, 0.3 * (1 - 1e-12))).cost == 9


@pytest.mark.parametrize("error", [5e-324, 1e-300, 1.0, 1e200])
def test_errors_of_every_size_have_budgets(error: float) -> None:
    items = [[Option(0, math.inf), Option(1, 3 * error), Option(2, error), Option(1 << 80, 0.0)]] * 2
    assert check(items, least_cost(items, 4 * error)).options == (1, 2)
    assert check(items, least_cost(items, 0.0)).options == (3, 3)
    assert check(items, least_cost(items, math.inf)).options == (1, 1)
    assert check(items, least_error(items, 3)).error == 4 * error


def test_there_is_no_selection_without_a_usable_option() -> None:
    for unusable in ([], [Option(0, math.inf)], [Option(0, math.nan)], [Option(0, 1e300)]):
        items = [[Option(0, 0.0)], unusable]
        assert least_cost(items, math.inf) is None and least_error(items, 9) is None and lower_hull(items) == ()
    items = [[Option(1, 1.0)]]
    assert least_cost(items, math.nan) is None and least_cost(items, -1.0) is None and least_error(items, 0) is None


def test_no_items_have_one_selection() -> None:
    nothing = Selection(options=(), cost=0, error=0.0, bound=0, is_exact=True)
    assert least_cost([], 0.0) == least_error([], 0) == nothing
    assert lower_hull([]) == (Option(0, 0.0),)
