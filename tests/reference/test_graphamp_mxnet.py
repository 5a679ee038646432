"""What `upstream` and `lists` promise beyond the laws of every strategy: their fixpoints, said again the slow way, and
that more permission never takes a node back to FP32. On random graphs; a failure prints its case."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from pairs import side_of, split_of, with_fields
from problems import Case, cases, perturbed
from sweeps import swept

from mezzo.contracts.coloring import makers, makes_low, readers
from mezzo.contracts.problem import Choice, Problem
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.plugins.discovery import strategies
from mezzo.tables.policy import Category

_RANKS = [Category.DENY, Category.INFER, Category.CLEAR, Category.ALLOW]


def law(examples: int) -> settings:
    """The same examples on every run, as in test_properties.py."""
    return settings(
        max_examples=swept(examples), derandomize=True, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def fuzzed(case: Case) -> Problem:
    """The case's problem with categories that no policy would think of, and some nodes that hand on high."""
    rng = random.Random(case.seed)
    problem = perturbed(case.judged().problem, rng)
    ops = [n.id for n in problem.graph.nodes if n.kind is Kind.OP and not problem.is_absent[n.id]]
    return replace(problem, base_outputs=frozenset(n for n in ops if rng.random() < 0.2))


def assign(strategy: str, problem: Problem) -> list[int]:
    return list(strategies()[strategy].assign(problem))


def low_names(problem: Problem, levels: Sequence[int]) -> set[str]:
    return {node.name for node in problem.graph.nodes if levels[node.id]}


def free(problem: Problem, kinds: Sequence[Kind], *categories: Category) -> list[Node]:
    """Free nodes of these kinds and categories that share no sequence with others."""
    side, (linked,) = side_of(problem), problem.linked
    return [
        node
        for node in problem.graph.nodes
        if node.kind in kinds
        and side.choices[node.id] is Choice.FREE
        and side.categories[node.id] in categories
        and linked.count(linked[node.id]) == 1
    ]


# -- upstream ---------------------------------------------------------------------------------------------------------


def _wants(problem: Problem, levels: Sequence[int], node: Node) -> list[bool]:
    """What each reader with a wish wants; what reads its own result says nothing."""
    return [
        role is Role.GROUP and levels[reader.id] == 1
        for reader, role in readers(split_of(problem), node)
        if role is not Role.ANY and reader.id != node.id
    ]


@law(60)
@given(case=cases(most=30))
def test_upstream_infers_low_exactly_where_all_readers_do(case: Case) -> None:
    problem = fuzzed(case)
    levels = assign("upstream", problem)
    for node in free(problem, [Kind.OP, Kind.TIE], Category.ALLOW):
        assert levels[node.id], node.name
    for node in free(problem, [Kind.OP, Kind.TIE], Category.INFER, Category.CLEAR):
        wants = _wants(problem, levels, node)
        if levels[node.id]:
            assert wants and all(wants) and node.id not in problem.base_outputs, node.name
        elif node.id not in problem.base_outputs and not _is_in_a_loop(problem, node):
            assert not (wants and all(wants)), node.name


def _is_in_a_loop(problem: Problem, node: Node) -> bool:
    """Whether a node's results come back to it: there, agreement alone does not make it low."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        new = [reader for reader, _ in readers(split_of(problem), waiting.pop()) if reader.id not in found]
        found.update(reader.id for reader in new)
        waiting += new
    return node.id in found


@law(60)
@given(case=cases(most=30))
def test_upstream_pulls_every_low_node_from_one_that_is_low_by_itself(case: Case) -> None:
    problem = fuzzed(case)
    levels = assign("upstream", problem)
    for node in free(problem, [Kind.OP, Kind.TIE], Category.INFER, Category.CLEAR):
        if levels[node.id]:
            assert _has_a_cause(problem, node), node.name


def _has_a_cause(problem: Problem, node: Node) -> bool:
    found, side, split = {node.id}, side_of(problem), split_of(problem)
    waiting = [node]
    while waiting:
        for reader, _ in readers(split, waiting.pop()):
            choice, allows = side.choices[reader.id], side.categories[reader.id] is Category.ALLOW
            if choice is Choice.LOW or (choice is Choice.FREE and allows):
                return True
            if reader.id not in found and choice is Choice.FREE:
                found.add(reader.id)
                waiting.append(reader)
    return False


# -- lists ------------------------------------------------------------------------------------------------------------


def _can_be_had_low(problem: Problem, levels: Sequence[int], value: int) -> bool:
    if makes_low(split_of(problem), [level == 1 for level in levels], value):
        return True
    # What a loop carries back decides nothing.
    uses = [use for use in problem.graph.uses[value] if use.node > problem.graph.values[value].producer]
    nodes = [problem.graph.nodes[use.node] for use in uses]
    return any(
        levels[node.id]
        and side_of(problem).choices[node.id] is Choice.FREE
        and side_of(problem).categories[node.id] is Category.ALLOW
        and node.signature.inputs[use.operand] is Role.GROUP
        for node, use in zip(nodes, uses, strict=True)
    )


@law(60)
@given(case=cases(most=30))
def test_lists_follows_exactly_what_can_be_had_low(case: Case) -> None:
    problem = fuzzed(case)
    levels = assign("lists", problem)
    # Ties are left out: state that comes back high is demoted though all it was given is low.
    for node in free(problem, [Kind.OP], Category.ALLOW):
        assert levels[node.id], node.name
    for node in free(problem, [Kind.OP], Category.INFER, Category.CLEAR):
        had = [_can_be_had_low(problem, levels, v) for v, maker in makers(split_of(problem), node) if maker is not None]
        wanted = any(had) if side_of(problem).categories[node.id] is Category.CLEAR else bool(had) and all(had)
        assert (levels[node.id] == 1) == wanted, node.name


# -- both -------------------------------------------------------------------------------------------------------------


def raised(problem: Problem, rng: random.Random) -> Problem:
    """The problem with some operators moved to a category that permits more."""
    choices, categories = list(side_of(problem).choices), list(side_of(problem).categories)
    for node in problem.graph.nodes:
        category = categories[node.id]
        is_open = problem.line.only_other in node.signature.legal and choices[node.id] in (Choice.FREE, Choice.HIGH)
        if node.kind is not Kind.OP or category is None or not is_open or rng.random() < 0.5:
            continue
        if choices[node.id] is Choice.HIGH:
            category = Category.DENY
        categories[node.id] = rng.choice(_RANKS[_RANKS.index(category) :])
        if categories[node.id] is not Category.DENY:
            choices[node.id] = Choice.FREE
    return with_fields(problem, choices=tuple(choices), categories=tuple(categories))


@pytest.mark.parametrize("strategy", ["lists", "upstream"])
@law(60)
@given(case=cases(most=30))
def test_more_permission_takes_no_node_back(strategy: str, case: Case) -> None:
    """A policy that permits more runs low all that a stricter one does."""
    problem = fuzzed(case)
    more = raised(problem, random.Random(case.seed + 1))
    strict, loose = assign(strategy, problem), assign(strategy, more)
    assert low_names(problem, strict) <= low_names(more, loose)


@pytest.mark.parametrize("strategy", ["lists", "upstream"])
@law(30)
@given(case=cases(most=30))
def test_without_an_allowed_node_nothing_becomes_low(strategy: str, case: Case) -> None:
    problem = case.judged().problem
    categories = tuple(Category.INFER if c is Category.ALLOW else c for c in side_of(problem).categories)
    problem = with_fields(problem, categories=categories)
    was_low = [int(choice is Choice.LOW) for choice in side_of(problem).choices]
    assume(not any(was_low))  # what is low already would be a reason as good
    assert assign(strategy, problem) == was_low
