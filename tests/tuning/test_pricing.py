"""Errors as prices over two, three and four levels: by hand, and against every assignment of small random problems.

The squared errors are made up, so every figure is known.
"""

import math
import random
from collections.abc import Sequence

import pytest
from random_problems import can_be_kept, legal_assignments, random_problem
from sweeps import swept

from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import cost
from mezzo.ir.nodes import Kind
from mezzo.plugins.discovery import strategies
from mezzo.tuning.error_prices import UnitSquares, solve, with_prices
from mezzo.tuning.frontier import trace

MINCUT = strategies()["mincut"]
COUNTS = pytest.mark.parametrize("count", [2, 3, 4])
SIZES = {2: 10, 3: 8, 4: 7}


def made_up(problem: Problem, seed: int, *, most_nodes: int = 1) -> list[UnitSquares]:
    """A square per unit and level; some make none, and some break an output at one level alone."""
    rng = random.Random(seed)
    nodes = [n.id for n in problem.graph.nodes if n.kind is Kind.OP and not problem.is_absent[n.id]]
    units = []
    while nodes:
        size = rng.randint(1, most_nodes)
        members, nodes = tuple(nodes[:size]), nodes[size:]
        squares = {level: float(rng.choice([0, 1, 3, 20, 90])) for level in problem.line.others}
        units.append(UnitSquares(members, squares))
    return units


def square_of(problem: Problem, units: Sequence[UnitSquares], levels: Sequence[int]) -> float:
    base = problem.line.base
    return sum(
        max((unit.by_level[levels[node]] for node in unit.nodes if levels[node] != base), default=0.0) for unit in units
    )


@COUNTS
def test_optimum_is_that_of_all_assignments_at_every_price(count: int) -> None:
    """A whole price times whole squares is what each node pays, so the optimum is exact."""
    for seed in range(swept(40)):
        problem = random_problem(seed, count, SIZES[count], is_measured=True).without_penalties()
        if not can_be_kept(problem):
            continue
        units = made_up(problem, seed)
        every = [(cost(problem, levels), square_of(problem, units, levels)) for levels in legal_assignments(problem)]
        for weight in (0.0, 1.0, 7.0, 60.0):
            found = solve(problem, units, weight, MINCUT)
            assert found.cost == cost(problem, found.levels) and found.square == square_of(problem, units, found.levels)
            least = min(paid + weight * square for paid, square in every)
            assert found.cost + weight * found.square == least, (seed, weight)


@COUNTS
def test_no_assignment_beats_a_point_of_the_frontier_at_its_price(count: int) -> None:
    """Prices are rounded up, by less than one for each node."""
    for seed in range(swept(25)):
        problem = random_problem(seed, count, SIZES[count], is_measured=True).without_penalties()
        if not can_be_kept(problem):
            continue
        units = made_up(problem, seed)
        every = [(cost(problem, levels), square_of(problem, units, levels)) for levels in legal_assignments(problem)]
        points = trace(lambda weight, p=problem, u=units: solve(p, u, weight, MINCUT), 48)  # type: ignore[misc]  # bound
        assert [point.cost for point in points] == sorted(point.cost for point in points)
        for point in points:
            if math.isfinite(point.weight):
                least = min(paid + point.weight * square for paid, square in every)
                assert point.cost + point.weight * point.square <= least + len(problem.graph.nodes), seed
        if any(square == 0.0 for _, square in every):
            assert points[-1].square == 0.0, seed


@pytest.mark.parametrize(
    ("weight", "square", "nodes", "price"),
    [
        (0.0, 5.0, 1, 0),
        (2.0, 0.0, 1, 0),
        (math.inf, 0.0, 1, 0),
        (2.0, 5.0, 1, 10),
        (2.0, 5.0, 4, 3),  # 2.5, rounded up
        (0.0, math.inf, 1, 1 << 50),
        (math.inf, 1e-9, 3, 1 << 50),
        (1e30, 1e30, 2, 1 << 50),
    ],
)
def test_price_is_a_share_of_the_weighted_square(weight: float, square: float, nodes: int, price: int) -> None:
    unit = UnitSquares(tuple(range(nodes)), {1: square, 2: 0.0})
    assert (unit.price(weight, 1), unit.price(weight, 2)) == (price, 0)


def test_unit_errs_as_much_as_at_the_worst_level_that_some_of_it_runs_at() -> None:
    unit = UnitSquares((0, 2), {0: 5.0, 2: 3.0})
    assert unit.square_of([1, 0, 1], 1) == 0.0
    assert unit.square_of([2, 0, 1], 1) == 3.0
    assert unit.square_of([2, 1, 0], 1) == 5.0


@COUNTS
def test_each_side_pays_for_its_own_level_beside_what_it_paid(count: int) -> None:
    problem = random_problem(3, count, 9)
    units = made_up(problem, 3, most_nodes=3)
    priced = with_prices(problem, units, 2.0)
    for level in problem.line.others:
        expected = {node: unit.price(2.0, level) for unit in units for node in unit.nodes}
        penalties = priced.side(level).penalties
        assert penalties is not None
        paid = problem.side(level).penalties or (0,) * len(penalties)
        assert [*penalties] == [paid[node] + expected.get(node, 0) for node in range(len(penalties))]


def test_unit_that_breaks_an_output_at_one_level_runs_at_another() -> None:
    """Where a node is given both, forbidding the one it had moves it and forbids nothing else."""
    seen = 0
    for seed in range(swept(80)):
        problem = random_problem(seed, 3, 8, is_measured=True).without_penalties()
        if not can_be_kept(problem):
            continue
        free = made_up(problem, seed)
        before = solve(
            problem, [UnitSquares(unit.nodes, dict.fromkeys(unit.by_level, 0.0)) for unit in free], 0, MINCUT
        )
        broken = next((u.nodes[0] for u in free if before.levels[u.nodes[0]] != problem.line.base), None)
        if broken is None or problem.allowed[:, broken].sum() < 3:
            continue
        level = before.levels[broken]
        none = dict.fromkeys(problem.line.others, 0.0)
        units = [UnitSquares(u.nodes, none | ({level: math.inf} if u.nodes[0] == broken else {})) for u in free]
        after = solve(problem, units, 0.0, MINCUT)
        if any(levels[broken] != level for levels in legal_assignments(problem)):
            assert after.levels[broken] != level, seed
            seen += after.levels[broken] != problem.line.base
    assert seen  # some went to the third level
