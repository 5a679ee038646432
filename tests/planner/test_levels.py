"""Laws of plans over two, three and four levels: assignments are legal, min-cut is exact, lower keeps to both."""

from dataclasses import replace

import numpy as np
import pytest
from random_problems import can_be_kept, describe, legal_assignments, random_problem
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mezzo.contracts.plans import AddCast
from mezzo.contracts.problem import Choice, LevelChoices, MeasuredCosts, Problem
from mezzo.contracts.strategy import Strategy, casts_of, conversions, cost
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import PrecisionLine, uniform
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.plugins.discovery import strategies

MINCUT = strategies()["mincut"]
COUNTS = pytest.mark.parametrize("count", [2, 3, 4])
EVERY_STRATEGY = pytest.mark.parametrize("strategy", list(strategies().values()), ids=list(strategies()))


@COUNTS
@pytest.mark.parametrize("part", range(4))
def test_mincut_costs_what_brute_force_finds(count: int, part: int) -> None:
    """Links, caps, shared conversions, penalties past every gain, levels that a node may not have."""
    size = {2: 11, 3: 8, 4: 7}[count]
    for seed in range(40 * part, 40 * (part + 1)):
        problem = random_problem(seed, count, size)
        least = min((cost(problem, levels) for levels in legal_assignments(problem)), default=None)
        if least is None:
            continue
        found = MINCUT.assign(problem)
        assert cost(problem, found) == least, (seed, describe(problem, found))


def test_problems_are_of_every_kind() -> None:
    """What the laws are checked on: most can be kept, and caps, links, gaps and a base in the middle are among them."""
    problems = [random_problem(seed, 4, 7) for seed in range(60)]
    assert sum(map(can_be_kept, problems)) > 40
    assert any(problem.caps for problem in problems) and any(problem.links for problem in problems)
    assert {problem.line.base for problem in problems} == {0, 1, 2, 3}
    between = [problem.allowed[:-2] & ~problem.allowed[1:-1] & problem.allowed[2:] for problem in problems]
    assert any(gaps.any() for gaps in between)


@EVERY_STRATEGY
@COUNTS
def test_assignments_are_legal_and_lowered_as_they_say(strategy: Strategy, count: int) -> None:
    for seed in range(60):
        problem = random_problem(seed, count, 14)
        if not _is_consistent(problem):
            continue
        levels = strategy.assign(problem)
        assert check(problem, levels, lower(problem, levels)) == [], (seed, describe(problem, levels))
        assert strategy.assign(problem) == levels


def _is_consistent(problem: Problem) -> bool:
    """Whether those who are linked, at any threshold, may all run at one level."""
    size = len(problem.graph.nodes)
    joins = [csr_array((np.ones(size, np.int8), (np.arange(size), roots)), (size, size)) for roots in problem.linked]
    group = connected_components(sum(joins[1:], joins[0]), directed=False)[1]
    groups = [np.flatnonzero((group == number) & ~problem.is_absent) for number in range(size)]
    return all(problem.allowed[:, members].all(axis=1).any() for members in groups if len(members))


@EVERY_STRATEGY
@COUNTS
def test_no_strategy_is_cheaper_than_mincut(strategy: Strategy, count: int) -> None:
    for seed in range(60):
        problem = random_problem(seed, count, 14)
        if _is_consistent(problem):
            assert cost(problem, MINCUT.assign(problem)) <= cost(problem, strategy.assign(problem)), seed


@EVERY_STRATEGY
def test_what_is_absent_stands_at_the_base(strategy: Strategy) -> None:
    for seed in range(30):
        problem = random_problem(seed, 4, 14)
        levels = np.array(strategy.assign(problem))
        assert (levels[problem.is_absent] == problem.line.base).all()


@COUNTS
def test_casts_are_the_conversions_that_the_cost_counts(count: int) -> None:
    """Each form once, made from its neighbour, or across the base; a source's forms are stored and cost nothing."""
    for seed in range(120):
        problem = random_problem(seed, count, 12)
        if not _is_consistent(problem):
            continue
        levels = MINCUT.assign(problem)
        edits = lower(problem, levels)
        added = {(edit.value, edit.dtype) for edit in edits if isinstance(edit, AddCast)}
        assert added == set(casts_of(problem, levels))
        assert len(added) == sum(isinstance(edit, AddCast) for edit in edits)
        native = problem.graph.columns.produced_levels(problem.line, levels).tolist()
        for edit in edits:
            if isinstance(edit, AddCast):
                read = native[edit.value] if edit.reads is None else problem.line.level_of(edit.reads)
                made = problem.line.level_of(edit.dtype)
                assert read is not None and made is not None
                is_across = read != made and (read + made) / 2 == problem.line.base
                assert abs(read - made) == 1 or (is_across and (edit.value, HIGH) not in added)


def test_value_read_two_levels_away_is_cast_twice() -> None:
    problem = next(
        found
        for seed in range(200)
        for found in [random_problem(seed, 3, 9)]
        if _is_consistent(found) and found.line.base == 0 and _reads_far(found)
    )
    levels = MINCUT.assign(problem)
    casts = [edit for edit in lower(problem, levels) if isinstance(edit, AddCast) and edit.reads is not None]
    assert casts and all(edit.reads is problem.line.dtypes[1] for edit in casts)


def _reads_far(problem: Problem) -> bool:
    made = {(value, threshold) for value, threshold, _ in conversions(problem, MINCUT.assign(problem))}
    return any((value, 0) in made and (value, 1) in made for value, _ in made)


@COUNTS
def test_order_of_the_line_is_a_matter_of_names(count: int) -> None:
    """The same problem told from the other end costs the same."""
    for seed in range(40):
        problem = random_problem(seed, count, 9, is_measured=True)
        if not _is_consistent(problem):
            continue
        assert cost(_mirrored(problem), MINCUT.assign(_mirrored(problem))) == cost(problem, MINCUT.assign(problem))


def _mirrored(problem: Problem) -> Problem:
    last = len(problem.line.levels) - 1
    measured = problem.measured
    assert measured is not None
    return replace(
        problem,
        line=PrecisionLine(problem.line.levels[::-1], last - problem.line.base),
        sides=problem.sides[::-1],
        links=tuple((last - 1 - threshold, *nodes) for threshold, *nodes in problem.links),  # type: ignore[misc]  # two
        caps={use: (last - most, last - least) for use, (least, most) in problem.caps.items()},
        measured=MeasuredCosts(measured.gains[::-1], measured.cast_prices[::-1]),
    )


def test_level_that_nobody_may_have_changes_nothing() -> None:
    """A third level between two is walked over: what costs nothing on the way leaves the plan as it was."""
    for seed in range(40):
        problem = random_problem(seed, 2, 11, is_measured=True)
        if not _is_consistent(problem):
            continue
        wide = _with_a_gap(problem)
        found = [level // 2 for level in MINCUT.assign(wide)]
        assert cost(problem, found) == cost(problem, MINCUT.assign(problem))


def _with_a_gap(problem: Problem) -> Problem:
    line, measured = problem.line, problem.measured
    assert measured is not None
    levels = (line.levels[0], uniform(DType.INT4), line.levels[1])
    nobody = tuple(Choice.ABSENT if choice is Choice.ABSENT else Choice.HIGH for choice in problem.sides[0].choices)
    empty = LevelChoices(nobody, problem.sides[0].categories, problem.sides[0].worths)
    free = (0,) * len(problem.graph.values)
    return replace(
        problem,
        line=PrecisionLine(levels, 2 * line.base),
        sides=(empty, problem.sides[0]) if line.base == 0 else (problem.sides[0], empty),
        caps={use: (2 * least, 2 * most) for use, (least, most) in problem.caps.items()},
        measured=MeasuredCosts(
            (measured.gains[0], (0,) * len(problem.graph.nodes), measured.gains[1]), (*measured.cast_prices, free)
        ),
    )
