"""Laws that every strategy, found by discovery, keeps on random graphs. A failure prints its case."""

import random
from collections.abc import Iterator, Sequence

import onnx.parser
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pairs import side_of
from problems import (
    Case,
    assignments,
    cases,
    perturbed,
    renamed,
    shuffled,
    with_most_free,
    with_unique_names,
)
from sweeps import swept

from mezzo.contracts.plans import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.contracts.problem import Choice, Problem
from mezzo.contracts.strategy import Strategy, casts_of, cost
from mezzo.formats.dtypes import HIGH
from mezzo.ir.nodes import Kind, Role
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.plugins.discovery import strategies
from mezzo.tables.policy import Category

EVERY_STRATEGY = pytest.mark.parametrize("strategy", list(strategies().values()), ids=list(strategies()))


def law(examples: int) -> settings:
    """The same examples on every run. A failure prints its case, and a smaller seed is no simpler one: no shrinking."""
    return settings(
        max_examples=swept(examples), derandomize=True, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def assign(strategy: Strategy, problem: Problem) -> list[int]:
    return list(strategy.assign(problem))


def fuzzed(case: Case, most: int = 1000) -> Problem:
    """The case's problem with sizes, prices and categories that no policy would think of."""
    rng = random.Random(case.seed)
    return with_most_free(perturbed(case.judged().problem, rng), most, rng)


# -- what a strategy decides ------------------------------------------------------------------------------------------


@EVERY_STRATEGY
@law(15)
@given(case=cases())
def test_assignment_is_deterministic(strategy: Strategy, case: Case) -> None:
    first, second = case.judged().problem, case.judged().problem
    assert assign(strategy, first) == assign(strategy, first) == assign(strategy, second)


@EVERY_STRATEGY
@law(25)
@given(case=cases())
def test_assignment_is_independent_of_node_order(strategy: Strategy, case: Case) -> None:
    model = with_unique_names(case.build())
    plain, mixed = (case.judged(m).problem for m in (model, shuffled(model, random.Random(case.seed))))
    by_name = [
        dict(zip((node.name for node in problem.graph.nodes), assign(strategy, problem), strict=True))
        for problem in (plain, mixed)
    ]
    assert by_name[0] == by_name[1]


@EVERY_STRATEGY
@law(25)
@given(case=cases())
def test_assignment_is_independent_of_names(strategy: Strategy, case: Case) -> None:
    model = case.build()
    plain, other = (case.judged(m).problem for m in (model, renamed(model)))
    assert assign(strategy, plain) == assign(strategy, other)


@EVERY_STRATEGY
@law(25)
@given(case=cases())
def test_every_decided_node_is_assigned_as_its_choice_says(strategy: Strategy, case: Case) -> None:
    for problem in (case.judged().problem, fuzzed(case)):
        levels = assign(strategy, problem)
        assert len(levels) == len(problem.graph.nodes)
        choices, categories = side_of(problem).choices, side_of(problem).categories
        assert {level for level, choice in zip(levels, choices, strict=True) if choice is Choice.HIGH} <= {0}
        assert {level for level, choice in zip(levels, choices, strict=True) if choice is Choice.LOW} <= {1}
        denied = [n for n, category in enumerate(categories) if category is Category.DENY]
        assert not any(levels[n] for n in denied if choices[n] is not Choice.LOW)


@EVERY_STRATEGY
@law(25)
@given(case=cases())
def test_check_finds_nothing_wrong(strategy: Strategy, case: Case) -> None:
    for problem in (case.judged().problem, fuzzed(case)):
        levels = assign(strategy, problem)
        assert check(problem, levels, lower(problem, levels)) == []


@EVERY_STRATEGY
@law(25)
@given(case=cases())
def test_value_is_made_once_per_dtype(strategy: Strategy, case: Case) -> None:
    for problem in (case.judged().problem, fuzzed(case)):
        edits = lower(problem, assign(strategy, problem))
        forms = [(edit.value, edit.dtype) for edit in edits if isinstance(edit, AddCast | AddCopy)]
        assert len(forms) == len(set(forms))
        assert not {form for form in forms if form in problem.graph.forms}


@EVERY_STRATEGY
@law(25)
@given(case=cases())
def test_lower_makes_no_more_casts_than_the_cost_counts(strategy: Strategy, case: Case) -> None:
    """Fewer where a Cast of the model became needless: its users then share the forms of its operand. What a policy has
    handed on at the base is cast for readers of any type, too, whatever is assigned: no cost counts that.
    """
    for problem in (case.judged().problem, fuzzed(case)):
        levels, graph = assign(strategy, problem), problem.graph
        handed = {(v, HIGH) for number in problem.base_outputs for v in graph.nodes[number].outputs}
        added = {(edit.value, edit.dtype) for edit in lower(problem, levels) if isinstance(edit, AddCast)}
        assert len(added - handed) <= len(set(casts_of(problem, levels)) - handed)


# -- min-cut ----------------------------------------------------------------------------------------------------------


@EVERY_STRATEGY
@law(40)
@given(case=cases(most=30))
def test_no_strategy_is_cheaper_than_mincut(strategy: Strategy, case: Case) -> None:
    mincut = strategies()["mincut"]
    for problem in (case.judged().problem, fuzzed(case)):
        assert cost(problem, assign(mincut, problem)) <= cost(problem, assign(strategy, problem))


@law(40)
@given(case=cases(), free=st.sampled_from([4, 6, 8, 8, 9, 10]))
def test_mincut_costs_what_brute_force_finds(case: Case, free: int) -> None:
    problem = fuzzed(case, free)
    assert cost(problem, assign(strategies()["mincut"], problem)) == min(cost(problem, a) for a in assignments(problem))


@pytest.mark.parametrize("seed", range(3))
def test_mincut_costs_what_brute_force_finds_over_twelve_free_nodes(seed: int) -> None:
    problem = fuzzed(Case(seed, 30, policy="aggressive"), 12)
    assert len(list(assignments(problem))) == 1 << 12
    assert cost(problem, assign(strategies()["mincut"], problem)) == min(cost(problem, a) for a in assignments(problem))


@law(60)
@given(case=cases(most=30))
def test_mincut_makes_no_more_casts_than_forward_where_sizes_are_alike(case: Case) -> None:
    problem = case.judged().problem
    casts = {name: len(casts_of(problem, assign(strategy, problem))) for name, strategy in strategies().items()}
    assert casts["mincut"] <= casts["forward"]


def test_mincut_prefers_two_small_casts_to_a_large_one() -> None:
    """Why fewer casts than any other strategy is no law: the sum of bytes is what counts."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 19]>
        g (float[1024,16] x, float[16,1] u, float[1,16] z, float[16,1024] v) => (float[1024,1024] y) {
            a = MatMul(x, u)
            b = MatMul(z, v)
            s = Add(a, b)
            y = Exp(s)
        }""")
    problem = Case(0, 0).judged(model).problem
    forward, mincut = (assign(strategies()[name], problem) for name in ("forward", "mincut"))
    assert len(casts_of(problem, mincut)) == len(casts_of(problem, forward)) + 1
    assert cost(problem, mincut) < cost(problem, forward)


# -- check ------------------------------------------------------------------------------------------------------------


def _faults(
    problem: Problem, levels: list[int], edits: tuple[Edit, ...]
) -> Iterator[tuple[str, list[int], list[Edit]]]:
    """Plant one fault of each kind: its name, the assignment and the edits."""
    graph, low, choices, (linked,) = problem.graph, problem.line.only_other, side_of(problem).choices, problem.linked

    def flipped(number: int) -> list[int]:
        return [1 - level if n == number else level for n, level in enumerate(levels)]

    for wanted in (Choice.HIGH, Choice.LOW):
        for number in [n for n, choice in enumerate(choices) if choice is wanted][:2]:
            yield f"{wanted.value} node flipped", flipped(number), [*lower(problem, flipped(number))]
    illegal = [n.id for n in graph.nodes if n.signature.dtype is HIGH and low not in n.signature.legal]
    for number in illegal[:1]:
        yield "illegal dtype", flipped(number), [*lower(problem, flipped(number))]
    groups = [n for n, root in enumerate(linked) if root != n and choices[n] is Choice.FREE]
    for number in [n for n in groups if choices[linked[n]] is Choice.FREE][:1]:
        yield "linked nodes disagree", flipped(number), [*lower(problem, flipped(number))]
    for kind in (AddCast, AddCopy, Retype, Rewire):
        for edit in [e for e in edits if isinstance(e, kind)][:3]:
            rest = [e for e in edits if e is not edit]
            if not _is_detour(problem, edit):
                yield f"{kind.__name__} left out", levels, rest
            if kind is not Retype:
                yield f"{kind.__name__} said twice", levels, [*edits, edit]
            if not (isinstance(edit, Rewire) and _takes_any(problem, edit)):
                other = edit._replace(dtype=HIGH if edit.dtype is not HIGH else low)
                yield f"{kind.__name__} of another dtype", levels, [e if e is not edit else other for e in edits]
            if isinstance(edit, AddCast):
                yield "cast as a copy", levels, [*rest, AddCopy(edit.value, edit.dtype)]
            if isinstance(edit, AddCopy):
                yield "copy as a cast", levels, [*rest, AddCast(edit.value, edit.dtype)]
            if isinstance(edit, Rewire) and len(graph.values) > 1:
                stranger = next((v for v in range(len(graph.values)) if v not in _reachable(problem, edit)), None)
                if stranger is not None:
                    yield "another value read", levels, [*rest, edit._replace(value=stranger)]


def _is_detour(problem: Problem, edit: Edit) -> bool:
    """Whether an operand would read a dtype as good through a Cast of the model if it were not rewired."""
    if not isinstance(edit, Rewire):
        return False
    graph = problem.graph
    use = edit.node, edit.operand
    through = graph.nodes[edit.node].inputs[edit.operand]
    assert through is not None, "what is rewired is read"
    is_through_a_cast = use in graph.aliased or through != edit.value
    today = HIGH if use in graph.widened else graph.values[through].dtype
    return _takes_any(problem, edit) or (is_through_a_cast and edit.dtype is today)


def _takes_any(problem: Problem, edit: Rewire) -> bool:
    """Whether an operand reads any dtype: Shape's, say."""
    return problem.graph.nodes[edit.node].signature.inputs[edit.operand] is Role.ANY


def _reachable(problem: Problem, edit: Rewire) -> set[int]:
    """The values that an operand may read: its own, and those that it is a Cast of."""
    graph, found = problem.graph, {edit.value}
    value = graph.nodes[edit.node].inputs[edit.operand]
    while value is not None:
        found.add(value)
        producer = graph.nodes[graph.values[value].producer]
        value = producer.inputs[0] if producer.kind is Kind.CAST else None
    return found


@law(40)
@given(case=cases())
def test_check_finds_planted_faults(case: Case) -> None:
    problem = fuzzed(case)
    levels = assign(strategies()["mincut"], problem)
    edits = lower(problem, levels)
    for fault, planted, mutant in _faults(problem, levels, edits):
        if planted is levels and not _is_read(problem, edits, mutant):
            continue
        assert check(problem, planted, mutant), fault


def _is_read(problem: Problem, edits: Sequence[Edit], mutant: Sequence[Edit]) -> bool:
    """Whether the edit that was changed matters: what a source is stored in matters only to those who read it."""
    changed = next((e for e in edits if e not in mutant), None)
    if not isinstance(changed, Retype):
        return True
    producer = problem.graph.nodes[problem.graph.values[changed.value].producer]
    readers = problem.graph.uses[changed.value]
    return producer.kind is not Kind.SOURCE or any(
        problem.graph.nodes[use.node].signature.inputs[use.operand] is Role.GROUP
        and problem.graph.nodes[use.node].kind is not Kind.CAST
        for use in readers
    )


def test_faults_of_every_kind_are_planted() -> None:
    kinds: set[str] = set()
    for seed in range(swept(60)):
        problem = fuzzed(Case(seed, 14, policy="aggressive"))
        levels = assign(strategies()["mincut"], problem)
        kinds |= {fault for fault, _, _ in _faults(problem, levels, lower(problem, levels))}
    assert len(kinds) == 4 + 4 * 3 - 1 + 3
