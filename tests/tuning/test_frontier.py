"""The frontier is the lower convex hull of all assignments, and the search finds its cheapest point that holds."""

import itertools
import math
import random

import pytest
from sweeps import swept

from mezzo.tuning.budget_search import Evaluation, search
from mezzo.tuning.frontier import FrontierCandidate, trace

Items = list[tuple[int, int]]  # cost forgone by staying high, squared error of running low


def make_items(seed: int) -> Items:
    rng = random.Random(seed)
    return [(rng.randrange(1, 100), rng.randrange(1, 100)) for _ in range(rng.randrange(1, 9))]


class Solver:
    """Independent items: the optimum for a price runs an item low if its gain is above its price."""

    def __init__(self, items: Items) -> None:
        self.items, self.solved = items, 0

    def __call__(self, weight: float) -> FrontierCandidate:
        self.solved += 1
        levels = [int(gain >= (weight * square if math.isfinite(weight) else math.inf)) for gain, square in self.items]
        return self.candidate(weight, levels)

    def candidate(self, weight: float, levels: list[int]) -> FrontierCandidate:
        cost = sum(gain for (gain, _), level in zip(self.items, levels, strict=True) if not level)
        square = sum(square for (_, square), level in zip(self.items, levels, strict=True) if level)
        return FrontierCandidate(
            weight=weight, cost=float(cost), square=float(square), low_nodes=sum(levels), key=str(levels), levels=levels
        )

    def hull(self) -> set[tuple[float, float]]:
        """Corners of the lower convex hull of all assignments, by brute force."""
        every = {
            (made.square, made.cost)
            for bits in itertools.product([0, 1], repeat=len(self.items))
            for made in [self.candidate(0.0, list(bits))]
        }
        return {
            point
            for point in every
            if not any(_is_above(point, left, right) for left, right in itertools.combinations(sorted(every), 2))
            and not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in every)
        }


def _is_above(point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether a point lies on or above the segment between two others."""
    if not left[0] < point[0] < right[0]:
        return False
    share = (point[0] - left[0]) / (right[0] - left[0])
    return point[1] >= left[1] + share * (right[1] - left[1]) - 1e-9


@pytest.mark.parametrize("seed", range(swept(60)))
def test_the_frontier_is_the_lower_convex_hull(seed: int) -> None:
    solver = Solver(make_items(seed))
    points = trace(solver, 1000)
    corners = {(point.square, point.cost) for point in points}
    assert solver.hull() <= corners, f"seed {seed}"
    assert [p.cost for p in points] == sorted(p.cost for p in points)
    assert [p.square for p in points] == sorted((p.square for p in points), reverse=True)


def test_the_number_of_solutions_is_bounded() -> None:
    solver = Solver([(gain, 1) for gain in range(1, 400)])
    assert len(trace(solver, 20)) <= 20
    assert solver.solved <= 20


def test_one_plan_for_every_price_is_a_frontier_of_one_point() -> None:
    solver = Solver([])
    assert len(trace(solver, 20)) == 1


@pytest.mark.parametrize("seed", range(swept(40)))
@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_search_finds_the_cheapest_point_that_holds(seed: int, factor: float) -> None:
    """Errors are `factor` times what was predicted; the search knows nothing of it."""
    points = trace(Solver(make_items(seed)), 1000)
    limit = random.Random(seed).uniform(0.0, 1.2) * factor * points[0].error
    runs = []

    def evaluate(point: FrontierCandidate) -> Evaluation:
        runs.append(point.key)
        return Evaluation(point.error * factor, point.error * factor <= limit)

    found = search(points, evaluate, limit, lambda: True)
    holding = [point for point in points if point.error * factor <= limit]
    assert found.best == holding[0], f"seed {seed}"
    assert len(runs) == len(set(runs)) <= 2 + math.ceil(math.log2(len(points) + 1)), f"seed {seed}"


def test_a_search_that_must_stop_keeps_the_best_it_has() -> None:
    points = trace(Solver([(gain, gain) for gain in range(1, 30)]), 1000)
    left, tried = iter([True, False]), list[str]()

    def evaluate(point: FrontierCandidate) -> Evaluation:
        tried.append(point.key)
        return Evaluation(point.error, point.error <= 3.0)

    found = search(points, evaluate, 3.0, lambda: next(left))
    assert not found.is_settled
    assert len(tried) == 1


def test_a_broken_plan_tells_nothing_of_the_factor() -> None:
    points = trace(Solver(make_items(3)), 1000)
    found = search(points, lambda p: Evaluation(math.inf if p.low_nodes else 0.0, not p.low_nodes), 1e-3, lambda: True)
    assert found.best is not None and found.best.low_nodes == 0
