"""Min-cut stays exact when error has a price and when costs were measured. A failure prints its case."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pairs import pair_costs, side_of, with_fields
from problems import Case, assignments, cases, perturbed, with_most_free
from sweeps import swept

from mezzo.contracts.problem import Choice, Problem
from mezzo.contracts.strategy import cost
from mezzo.ir.nodes import Kind
from mezzo.plugins.discovery import strategies

MINCUT = strategies()["mincut"]
NEVER = 10**12
FORMS = ("penalties", "measured", "both")


def law(examples: int) -> settings:
    """The same examples on every run."""
    return settings(
        max_examples=swept(examples), derandomize=True, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def priced(case: Case, form: str, most: int) -> Problem:
    """A random problem with penalties, measured costs or both: small, large, zero, negative and absurd."""
    rng = random.Random(case.seed)
    problem = with_most_free(perturbed(case.judged().problem, rng), most, rng)
    nodes, values = problem.graph.nodes, problem.graph.values
    penalties, measured = None, None
    if form != "measured":
        sizes = [0, 0, 1, 1000, 300_000, 20_000_000, NEVER, 10**30]
        penalties = tuple(rng.choice(sizes) for _ in nodes)
    if form != "penalties":
        measured = pair_costs(
            tuple(rng.choice([0, 0, 1, 700, 90_000, 3_000_000, -1, -900, -200_000]) for _ in nodes),
            tuple(rng.choice([0, 1, 500, 40_000, 1_000_000]) for _ in values),
        )
    return with_fields(problem, penalties=penalties, measured=measured)


def solve(problem: Problem) -> list[int]:
    return list(MINCUT.assign(problem))


def with_gains(problem: Problem, gain: int, price: int) -> Problem:
    gains = (gain,) * len(problem.graph.nodes)
    return replace(problem, measured=pair_costs(gains, (price,) * len(problem.graph.values)))


def free_operators(problem: Problem, levels: list[int]) -> list[int]:
    nodes = zip(problem.graph.nodes, side_of(problem).choices, levels, strict=True)
    return [level for node, choice, level in nodes if node.kind is Kind.OP and choice is Choice.FREE]


@pytest.mark.parametrize("form", FORMS)
@law(40)
@given(case=cases(), free=st.sampled_from([4, 6, 8, 8, 9, 10]))
def test_mincut_costs_what_brute_force_finds(form: str, case: Case, free: int) -> None:
    problem = priced(case, form, free)
    assert cost(problem, solve(problem)) == min(cost(problem, each) for each in assignments(problem))


@pytest.mark.parametrize("name", list(strategies()))
@law(25)
@given(case=cases(most=30), form=st.sampled_from(FORMS))
def test_no_strategy_is_cheaper_than_mincut(name: str, case: Case, form: str) -> None:
    problem = priced(case, form, 1000)
    assert cost(problem, solve(problem)) <= cost(problem, list(strategies()[name].assign(problem)))


@law(40)
@given(case=cases(most=30))
def test_penalties_of_nothing_change_nothing(case: Case) -> None:
    problem = case.judged().problem
    free_of_charge = with_fields(problem, penalties=(0,) * len(problem.graph.nodes))
    assert solve(free_of_charge) == solve(problem)


@law(40)
@given(case=cases(most=30))
def test_no_operator_that_may_stay_high_pays_a_penalty_no_gain_outweighs(case: Case) -> None:
    problem = case.judged().problem
    for penalty in (NEVER * 10**6, 10**40):
        levels = solve(with_fields(problem, penalties=(penalty,) * len(problem.graph.nodes)))
        (linked,), choices = problem.linked, side_of(problem).choices
        tied_to_low = {linked[n] for n, choice in enumerate(choices) if choice is Choice.LOW}
        loose = [choice is Choice.FREE and linked[n] not in tied_to_low for n, choice in enumerate(choices)]
        assert not any(level and may for level, may in zip(levels, loose, strict=True))


@law(60)
@given(case=cases(), free=st.sampled_from([6, 8]))
def test_huge_numbers_leave_the_rest_exact(case: Case, free: int) -> None:
    """One huge gain and one huge penalty must not take the others' room."""
    problem = priced(case, "measured", free)
    assert problem.measured is not None
    may = [n for n, choice in enumerate(side_of(problem).choices) if choice is Choice.FREE]
    size = range(len(problem.graph.nodes))
    at_base, low = problem.measured.gains
    gains = tuple(10**14 if n in may[:1] else gain for n, gain in enumerate(low))
    penalties = tuple(NEVER * 10**9 if n in may[-1:] else 3 for n in size)
    problem = with_fields(problem, penalties=penalties, measured=replace(problem.measured, gains=(at_base, gains)))
    assert cost(problem, solve(problem)) == min(cost(problem, each) for each in assignments(problem))


@law(40)
@given(case=cases())
def test_no_saved_cast_outweighs_a_penalty_that_is_huge(case: Case) -> None:
    """With a low interface, running low saves casts. That gain counts in what a penalty is held to."""
    problem = with_gains(case.judged().problem, 0, 100)
    ends = (Kind.INPUT, Kind.OUTPUT)
    nodes = zip(problem.graph.nodes, side_of(problem).choices, strict=True)
    choices = tuple(Choice.LOW if n.kind in ends and c is not Choice.ABSENT else c for n, c in nodes)
    penalties = tuple(10**40 if choice is Choice.FREE else 0 for choice in choices)
    problem = with_fields(problem, choices=choices, penalties=penalties)
    (linked,) = problem.linked
    tied = {linked[n] for n, choice in enumerate(choices) if choice is Choice.LOW}
    pairs = zip(choices, solve(problem), strict=True)
    assert not any(level and choice is Choice.FREE and linked[n] not in tied for n, (choice, level) in enumerate(pairs))


@law(40)
@given(case=cases())
def test_nothing_runs_low_where_it_only_costs(case: Case) -> None:
    problem = case.judged().problem
    if Choice.LOW in side_of(problem).choices:
        return
    assert not any(free_operators(problem, solve(with_gains(problem, -1, 10))))


@law(40)
@given(case=cases())
def test_measured_gains_count_for_every_operator_whatever_the_policy_says(case: Case) -> None:
    problem = case.judged().problem
    at_base, gains = with_gains(problem, 5, 0).gains.tolist()
    assert not any(at_base)
    for node, choice, gain in zip(problem.graph.nodes, side_of(problem).choices, gains, strict=True):
        assert gain == (5 if node.kind is Kind.OP and choice is not Choice.ABSENT else 0)


def test_more_weight_on_errors_never_runs_more_nodes_low() -> None:
    """Cuts of growing sink capacities are nested: the set of low nodes only shrinks."""
    problem = Case(7, 30, policy="aggressive").judged().problem
    rng = random.Random(7)
    errors = [rng.random() for _ in problem.graph.nodes]
    before: set[int] | None = None
    for weight in (0, 10**3, 10**5, 10**6, 10**7, 10**9):
        penalties = tuple(int(weight * error) for error in errors)
        low = {n for n, level in enumerate(solve(with_fields(problem, penalties=penalties))) if level}
        assert before is None or low <= before
        before = low
