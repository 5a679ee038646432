"""Strategies held against what their sources say, followed literally: one demotion or one way at a time, slowly."""

import random
from collections.abc import Callable, Iterator

import pytest
from pairs import side_of, with_fields
from problems import Case, perturbed
from sweeps import swept

from mezzo.contracts.problem import Choice, Problem
from mezzo.ir.nodes import Kind, Role
from mezzo.plugins.discovery import strategies
from mezzo.tables.policy import Category

_SEEDS = range(swept(60))


def _problem(seed: int) -> Problem:
    """A random graph whose categories no policy would think of, so that every phase has something to do.

    Who shares a sequence moves values: so the question of a node's own category has one answer for all of them.
    """
    rng = random.Random(seed)
    problem = perturbed(Case(seed, rng.randint(4, 30), policy="aggressive").judged().problem, rng)
    categories, (linked,) = list(side_of(problem).categories), problem.linked
    for number, root in enumerate(linked):
        if linked.count(root) > 1 and categories[number] in (Category.ALLOW, Category.INFER):
            categories[number] = Category.CLEAR
    return with_fields(problem, categories=tuple(categories))


def _depth(problem: Problem, scope: int | None) -> int:
    return -1 if scope is None else 1 + _depth(problem, problem.graph.scopes[scope].parent)


def _is_group(problem: Problem, value: int) -> bool:
    maker = problem.graph.nodes[problem.graph.values[value].producer]
    return value in maker.outputs and maker.signature.outputs[maker.outputs.index(value)] is Role.GROUP


# -- fixpoint ---------------------------------------------------------------------------------------------------------


def _demotions(problem: Problem, levels: list[int]) -> Iterator[int]:
    """Nodes that cannot stay low, given the others."""
    graph, values, (linked,) = problem.graph, problem.graph.values, problem.linked
    for node in graph.nodes:
        if problem.is_absent[node.id]:
            continue
        if not levels[node.id]:
            yield from (n for n, root in enumerate(linked) if root == linked[node.id])
        if node.kind is not Kind.TIE:
            continue
        depth = _depth(problem, node.scope)
        is_entry = all(_depth(problem, values[v].scope) > depth for v in node.outputs if v is not None)
        for value in node.inputs:
            if value is None or not (is_entry or _depth(problem, values[value].scope) > depth):
                continue
            maker = graph.nodes[values[value].producer]
            if maker.kind is Kind.SOURCE:
                readers = [u for v in node.outputs if v is not None for u in graph.uses[v]]
                groups = [u.node for u in readers if graph.nodes[u.node].signature.inputs[u.operand] is Role.GROUP]
                if not all(levels[number] for number in groups):
                    yield node.id
            elif not _is_group(problem, value):
                if values[value].dtype is not problem.line.only_other:
                    yield node.id
            else:
                if not levels[maker.id]:
                    yield node.id
                if not levels[node.id] and not is_entry:
                    yield maker.id


@pytest.mark.parametrize("seed", _SEEDS)
def test_fixpoint_is_what_one_demotion_at_a_time_leaves(seed: int) -> None:
    problem = _problem(seed)
    side = side_of(problem)
    levels = [
        int(choice is Choice.LOW or (choice is Choice.FREE and category is not Category.DENY))
        for choice, category in zip(side.choices, side.categories, strict=True)
    ]
    rng = random.Random(seed)
    while True:
        wanted = {n for n in _demotions(problem, levels) if levels[n] and side.choices[n] is Choice.FREE}
        if not wanted:
            break
        levels[rng.choice(sorted(wanted))] = 0
    assert list(strategies()["fixpoint"].assign(problem)) == levels


# -- paint ------------------------------------------------------------------------------------------------------------


def _neighbours(problem: Problem, number: int) -> Iterator[int]:
    """Who reads in its group what the node makes in its group."""
    graph = problem.graph
    for value in graph.nodes[number].outputs:
        if value is not None and _is_group(problem, value):
            for use in graph.uses[value]:
                if graph.nodes[use.node].signature.inputs[use.operand] is Role.GROUP:
                    yield use.node


def _leads(problem: Problem, start: int, ends: Callable[[int], bool], through: Callable[[int], bool]) -> bool:
    """Whether a way from `start` ends at one of `ends`, over `through` alone."""
    seen: set[int] = set()
    queue = [start]
    while queue:
        for other in _neighbours(problem, queue.pop()):
            if ends(other):
                return True
            if other not in seen and through(other):
                seen.add(other)
                queue.append(other)
    return False


class _Painted:
    """A problem with what paint made of it, and questions about single nodes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.levels = list(strategies()["paint"].assign(problem))

    def has(self, number: int, *categories: Category) -> bool:
        kind = self.problem.graph.nodes[number].kind
        return kind in (Kind.OP, Kind.TIE) and side_of(self.problem).categories[number] in categories

    def computes(self, number: int) -> bool:
        return self.has(number, Category.INFER, Category.DENY)

    def is_clear(self, number: int) -> bool:
        return self.has(number, Category.CLEAR)

    def leads_on(self, number: int) -> bool:
        """Whether deny spreads over the node: it computes, or only moves values on to one that does."""
        return self.computes(number) or (
            self.is_clear(number) and _leads(self.problem, number, self.computes, self.is_clear)
        )

    def is_denied(self, number: int) -> bool:
        """Whether a way leads here from a denied operator."""
        sources = [
            n
            for n, choice in enumerate(side_of(self.problem).choices)
            if self.has(n, Category.DENY) and choice is not Choice.LOW
        ]
        return self.leads_on(number) and any(
            _leads(self.problem, source, lambda other: other == number, self.leads_on) for source in sources
        )

    def free_alone(self) -> list[int]:
        """Operators that are free and share no sequence."""
        choices, (linked,) = side_of(self.problem).choices, self.problem.linked
        return [
            node.id
            for node in self.problem.graph.nodes
            if node.kind is Kind.OP and choices[node.id] is Choice.FREE and linked.count(linked[node.id]) == 1
        ]


@pytest.mark.parametrize("seed", _SEEDS)
def test_paint_allows_what_is_allowed_and_nothing_that_deny_reaches(seed: int) -> None:
    painted = _Painted(_problem(seed))
    for number in painted.free_alone():
        if painted.has(number, Category.ALLOW):
            assert painted.levels[number]
        elif painted.levels[number]:
            assert not painted.is_denied(number), painted.problem.graph.nodes[number].name


@pytest.mark.parametrize("seed", _SEEDS)
def test_paint_leaves_no_clear_beside_what_is_painted(seed: int) -> None:
    painted = _Painted(_problem(seed))
    free = painted.free_alone()
    for number in [n for n in free if painted.is_clear(n) and not painted.levels[n]]:
        touching = {
            *_neighbours(painted.problem, number),
            *(n for n in free if number in _neighbours(painted.problem, n)),
        }
        if any(painted.levels[n] for n in touching & set(free)):
            assert painted.is_denied(number), painted.problem.graph.nodes[number].name


@pytest.mark.parametrize("seed", _SEEDS)
def test_paint_changes_nothing_without_an_allow_operator(seed: int) -> None:
    problem = _problem(seed)
    without = [Category.INFER if category is Category.ALLOW else category for category in side_of(problem).categories]
    problem = with_fields(problem, categories=tuple(without))
    levels = list(strategies()["paint"].assign(problem))
    assert levels == [int(choice is Choice.LOW) for choice in side_of(problem).choices]
