"""Laws of plans that know what a target runs as one kernel: exact, never dearer, silent of formats not named."""

import random
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from random_problems import describe, legal_assignments, random_problem
from sweeps import swept

from mezzo.analysis.fusion.partition import partition
from mezzo.analysis.fusion.selector import tree
from mezzo.analysis.fusion.unit import FusedKernel, Partition
from mezzo.analysis.fusion.uses import kernels_of_units, links_of_units
from mezzo.analysis.fusion.view import FusionView
from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import conversion_cost, cost
from mezzo.formats.dtypes import DType
from mezzo.ir.columns import ANY, GROUP, Bools, Ints
from mezzo.ir.nodes import Kind, Node
from mezzo.planner.check import check
from mezzo.planner.choices.kernels import split_for, with_units
from mezzo.planner.lower import lower
from mezzo.plugins.discovery import built_in_targets, strategies, target, targets
from mezzo.tables.fusions import Constraint, Fusion, Inside
from mezzo.tables.kernels import FREE_CONVERSION, NO_GAIN, Kernels

MINCUT = strategies()["mincut"]
COUNTS = pytest.mark.parametrize("count", [2, 3, 4])


def random_constraint(rng: random.Random, formats: Sequence[DType]) -> Constraint:
    """What a kernel may ask, in some of the formats."""

    def some() -> frozenset[DType]:
        return frozenset(dtype for dtype in formats if rng.random() < 0.6)

    return Constraint(
        inside=rng.choice([*Inside]),
        formats=some(),
        is_linked=rng.random() < 0.4,
        reads_free=some(),
        writes_free=some(),
    )


def random_split(seed: int, problem: Problem) -> Partition:
    """Units of random operators that are neighbours, each with a constraint of its own."""
    rng, graph = random.Random(seed), problem.graph
    kernels = []
    for order in range(3):
        taken = frozenset(node.id for node in graph.nodes if rng.random() < 0.5)

        def joins(view: FusionView, node: Node, taken: frozenset[int] = taken) -> bool:
            return node.id in taken and node.kind is Kind.OP

        asks = random_constraint(rng, problem.line.other_dtypes)
        make = tree(joins)
        row = Fusion(pattern=f"p{order}", source="", since="", constraint=asks, least=rng.choice([1, 2]))
        kernels.append(FusedKernel(fusion=row, make=make, starts_at_end=True))
    return partition(FusionView(graph, (None,) * len(graph.nodes)), kernels, "toy")


def with_random_units(seed: int, count: int, size: int) -> Problem:
    problem = random_problem(seed, count, size)
    return with_units(problem, random_split(seed, problem))


@COUNTS
@pytest.mark.parametrize("part", range(3))
def test_mincut_with_units_costs_what_brute_force_finds(count: int, part: int) -> None:
    """Free conversions, kernels taken apart, links of units; with caps, shared conversions, penalties."""
    size = {2: 10, 3: 8, 4: 7}[count]
    for seed in range(1000 + 40 * part, 1040 + 40 * part):
        problem = with_random_units(seed, count, size)
        least = min((cost(problem, levels) for levels in legal_assignments(problem)), default=None)
        if least is not None:
            found = MINCUT.assign(problem)
            assert cost(problem, found) == least, (seed, describe(problem, found))
            assert check(problem, found, lower(problem, found)) == []


def test_problems_with_units_are_of_every_kind() -> None:
    """What the laws are checked on: each column says something somewhere, and links of units are among them."""
    pairs = [(random_problem(seed, 3, 9), with_random_units(seed, 3, 9)) for seed in range(swept(60))]
    for column in (field.name for field in fields(Kernels)):
        said = [getattr(problem.kernels, column).any() for _, problem in pairs]
        assert any(said) and not all(said), column
    assert any(len(known.links) > len(plain.links) for plain, known in pairs)


@COUNTS
def test_plan_that_knows_units_is_never_dearer_than_one_that_does_not(count: int) -> None:
    """By the price that knows them, of every plan that keeps together what a kernel needs in one type."""
    compared = 0
    for seed in range(2000, 2120):
        plain = random_problem(seed, count, 12)
        known = with_units(plain, random_split(seed, plain))
        unaware, aware = MINCUT.assign(plain), MINCUT.assign(known)
        if keeps_links(known, unaware) and keeps_links(known, aware):
            assert cost(known, aware) <= cost(known, unaware), seed
            compared += 1
    assert compared > 50


def keeps_links(problem: Problem, levels: Sequence[int]) -> bool:
    at, present = np.array(levels), ~problem.is_absent
    return all(
        bool(((at > threshold) == (at > threshold)[np.array(roots)])[present].all())
        for threshold, roots in enumerate(problem.linked)
    )


@COUNTS
def test_units_that_name_no_level_change_no_plan(count: int) -> None:
    """Fail closed: of a format that no constraint names nothing is said, whatever else is said of the kernel."""
    for seed in range(swept(40)):
        plain = random_problem(seed, count, 12)
        stranger = frozenset({DType.FLOAT8E5M2, DType.INT4})
        asks = Constraint(
            inside=Inside.FLOAT32, formats=stranger, is_linked=True, reads_free=stranger, writes_free=stranger
        )
        split = random_split(seed, plain)
        split = replace(split, units=tuple(replace(unit, constraint=asks) for unit in split.units))
        known = with_units(plain, split)
        assert known.links == plain.links
        assert not any(column.any() for column in columns_of(known))
        levels = MINCUT.assign(plain)
        assert MINCUT.assign(known) == levels
        assert cost(known, levels) == cost(plain, levels)


def columns_of(problem: Problem) -> list[Bools]:
    kernels = problem.kernels
    assert kernels is not None
    return [getattr(kernels, field.name) for field in fields(kernels)]


def test_threshold_without_the_base_is_told_nothing() -> None:
    for seed in range(swept(40)):
        problem = with_random_units(seed, 4, 12)
        assert problem.kernels is not None
        far = [t for t in problem.line.thresholds if problem.line.base not in (t, t + 1)]
        for column in (problem.kernels.reads_free, problem.kernels.writes_free, problem.kernels.takes_apart):
            assert not column[far].any()
        assert not problem.kernels.computes_base[problem.line.base].any()


@COUNTS
def test_conversions_cost_what_their_kernels_say(count: int) -> None:
    """Counted use by use, as the rules say it in words."""
    for seed in range(swept(60)):
        problem = with_random_units(seed, count, 12)
        levels = MINCUT.assign(problem)
        assert conversion_cost(problem, levels) == _spelled_cost(problem, levels), seed


def _spelled_cost(problem: Problem, levels: Sequence[int]) -> int:
    kernels, columns = problem.kernels, problem.graph.columns
    assert kernels is not None
    made, wanted, paid = problem.produced_levels(levels), problem.needed_levels(levels), 0
    for threshold in problem.line.thresholds:
        shared: dict[int, int] = {}
        for use, value in enumerate(columns.use_value.tolist()):
            crosses = (made[value] > threshold) != (wanted[use] > threshold)
            if not crosses or not problem.is_planned[value] or columns.use_role[use] == ANY:
                continue
            price = int(problem.cast_prices[threshold, value])
            is_free = bool(kernels.reads_free[threshold, use])
            if kernels.takes_apart[threshold, use]:
                paid += price
            elif is_free:
                paid += FREE_CONVERSION
            if not is_free:
                shared[value] = min(price, FREE_CONVERSION) if kernels.writes_free[threshold, value] else price
        paid += sum(shared.values())
    return paid


def chain_of(problem: Problem, constraint: Constraint) -> Kernels:
    """All operators of a problem as one unit."""
    row = Fusion(pattern="p", source="", since="", constraint=constraint)
    kernel = FusedKernel(fusion=row, make=tree(_is_operator), starts_at_end=True)
    split = partition(FusionView(problem.graph, (None,) * len(problem.graph.nodes)), [kernel], "toy")
    return kernels_of_units(problem.graph, split, problem.line)


def _is_operator(view: FusionView, node: Node) -> bool:
    return node.kind is Kind.OP


def test_operator_that_computes_at_the_base_gains_only_what_it_moves() -> None:
    """Its wish to run low counts for nothing, and what it converts by itself or keeps inside is no traffic."""
    for seed in range(swept(40)):
        plain = random_problem(seed, 2, 12, is_measured=False)
        (low,) = plain.line.other_dtypes
        level = plain.line.others[0]
        every = frozenset({low})
        asks = Constraint(inside=Inside.FLOAT32, formats=every, reads_free=every, writes_free=every)
        known = replace(plain, kernels=chain_of(plain, asks))
        inside = known.computes_base[level]
        assert (known.gains[level][inside] <= plain.gains[level][inside]).all()
        columns, scopes = plain.graph.columns, [value.scope for value in plain.graph.values]
        at_home = inside.copy()  # what it reads from another scope it does not convert
        for node, value in zip(columns.use_node.tolist(), columns.use_value.tolist(), strict=True):
            at_home[node] &= plain.graph.nodes[node].scope == scopes[value]
        assert (known.gains[level][at_home] == -NO_GAIN).all()
        assert (known.gains[level][~inside] == plain.gains[level][~inside]).all()


@pytest.mark.parametrize("inside", [Inside.REGISTERS, Inside.WRAPPED])
def test_operator_with_casts_that_are_kernels_gains_nothing(inside: Inside) -> None:
    """What it moves does not count, and conversions that the runtime places cost what Casts do."""
    for seed in range(swept(40)):
        plain = random_problem(seed, 2, 12, is_measured=False)
        (low,) = plain.line.other_dtypes
        level = plain.line.others[0]
        known = replace(plain, kernels=chain_of(plain, Constraint(inside=inside, formats=frozenset({low}))))
        prices = plain.cast_prices[plain.line.threshold_of(level)] * plain.is_planned
        for node in np.flatnonzero(known.computes_base[level]).tolist():
            around = 0 if inside is Inside.REGISTERS else _price_around(plain, node, prices)
            assert known.gains[level][node] == -NO_GAIN - around


def _price_around(problem: Problem, node: int, prices: Ints) -> int:
    """Conversions of all that a node reads and writes in its precision, use by use."""
    columns = problem.graph.columns
    read = columns.use_value[(columns.use_node == node) & (columns.use_role == GROUP)]
    return int(prices[read].sum() + prices[(columns.value_producer == node) & (columns.value_role == GROUP)].sum())


def test_unit_with_a_node_that_has_to_leave_the_base_links_nobody() -> None:
    problem = random_problem(3, 2, 10)
    (low,) = problem.line.other_dtypes
    asks = Constraint(inside=Inside.FLOAT32, formats=frozenset({low}), is_linked=True)
    split = random_split(3, problem)
    split = replace(split, units=tuple(replace(unit, constraint=asks) for unit in split.units))
    unit = max(split.units, key=lambda unit: len(unit.nodes))
    assert len(unit.nodes) > 1
    everybody = np.ones(len(problem.graph.nodes), bool)
    linked = {node for link in links_of_units(split, problem.line, everybody) for node in link[1:]}
    assert set(unit.nodes) <= linked
    everybody[unit.nodes[-1]] = False
    linked = {node for link in links_of_units(split, problem.line, everybody) for node in link[1:]}
    assert not linked & set(unit.nodes)


@pytest.mark.parametrize("name", sorted(targets()))
def test_target_without_rows_for_a_format_has_no_units_in_its_plans(name: str) -> None:
    """Who names no format of the line is not even asked how it splits the graph."""
    problem = random_problem(0, 2, 6)
    graph, rows = problem.graph, (None,) * len(problem.graph.nodes)
    named = {dtype for fusion in target(name).fusions for dtype in fusion.constraint.named}
    split = split_for(graph, rows, target(name), problem.line)
    assert (split is not None) == bool(named & set(problem.line.other_dtypes))


def test_every_row_that_says_something_names_a_format() -> None:
    """A row that computes in FP32 or is linked says so of some format, or its target says nothing of any: ONNX
    Runtime's CPU.
    """
    for name, rows in built_in_targets().items():
        for fusion in rows.fusions if rows.fused_formats else ():
            asks = fusion.constraint
            if asks.inside is not Inside.ONE_TYPE or asks.is_linked:
                assert asks.formats, (name, fusion.pattern)
    assert {name for name, rows in built_in_targets().items() if rows.fusions and not rows.fused_formats} == {
        "onnxruntime-cpu"
    }
