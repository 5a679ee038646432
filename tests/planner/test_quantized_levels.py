"""Laws of plans with a quantized level: min-cut is exact, lower quantizes each value once, check finds faults."""

from dataclasses import replace

import numpy as np
import pytest
from random_problems import can_be_kept, describe, legal_assignments, quantized_problem

from mezzo.contracts.plans import Edit, Quantize, Rewire, RunDynamic
from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import Strategy, cost
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Use
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.plugins.discovery import strategies

MINCUT = strategies()["mincut"]
COUNTS = pytest.mark.parametrize("count", [2, 3, 4])
EVERY_STRATEGY = pytest.mark.parametrize("strategy", list(strategies().values()), ids=list(strategies()))
Q8 = DType.QUANTIZED8


def problems(count: int, size: int, most: int) -> list[tuple[int, Problem]]:
    found = [(seed, quantized_problem(seed, count, size)) for seed in range(most)]
    return [(seed, problem) for seed, problem in found if can_be_kept(problem)]


@COUNTS
def test_mincut_costs_what_brute_force_finds(count: int) -> None:
    size = {2: 11, 3: 8, 4: 7}[count]
    for seed, problem in problems(count, size, 60):
        least = min(cost(problem, levels) for levels in legal_assignments(problem))
        found = MINCUT.assign(problem)
        assert cost(problem, found) == least, (seed, describe(problem, found))


@EVERY_STRATEGY
@COUNTS
def test_assignments_are_legal_and_lowered_as_they_say(strategy: Strategy, count: int) -> None:
    for seed, problem in problems(count, 7, 40):
        levels = strategy.assign(problem)
        if not _is_legal(problem, levels):  # colourings join all thresholds of those who are linked at one
            continue
        assert check(problem, levels, lower(problem, levels)) == [], (seed, describe(problem, levels))


def _is_legal(problem: Problem, levels: list[int]) -> bool:
    return any(levels == legal for legal in legal_assignments(problem))


@COUNTS
def test_each_value_is_quantized_once_and_by_what_was_found_for_it(count: int) -> None:
    seen = 0
    for _, problem in problems(count, 8, 60):
        edits = [edit for edit in lower(problem, MINCUT.assign(problem)) if isinstance(edit, Quantize)]
        assert problem.quantized is not None
        assert len({edit.value for edit in edits}) == len(edits)
        assert all(edit.how == problem.quantized.parameters[edit.value] for edit in edits)
        seen += len(edits)
    assert seen > 20


@COUNTS
def test_who_runs_quantized_reads_steps_and_all_others_floats(count: int) -> None:
    """Told by the edits alone: what a use reads has been quantized exactly where its node runs so."""
    for seed, problem in problems(count, 8, 60):
        levels = MINCUT.assign(problem)
        edits = lower(problem, levels)
        wants, columns = problem.needed_levels(levels), problem.graph.columns
        counts = columns.use_wants & columns.holds(*problem.line.dtypes)[columns.use_value]
        for at, (node, operand) in enumerate(zip(columns.use_node, columns.use_operand, strict=True)):
            use = Use(int(node), int(operand))
            if problem.graph.nodes[use.node].kind is Kind.CAST or not counts[at]:
                continue
            if wants[at] == problem.line.quantized:
                assert _reads_steps(problem, levels, edits, use, int(columns.use_value[at])), (seed, use)


def _reads_steps(problem: Problem, levels: list[int], edits: tuple[Edit, ...], use: Use, value: int) -> bool:
    """Whether a use reads a quantized form: its own, one that has taken over, or what a kernel handed on."""
    assert problem.quantized is not None
    over = {edit.value for edit in edits if isinstance(edit, Quantize) and edit.takes_over}
    further = {edit.value for edit in edits if isinstance(edit, Quantize) and not edit.takes_over}
    reads = {(edit.node, edit.operand): edit for edit in edits if isinstance(edit, Rewire)}
    maker = problem.graph.values[value].producer
    is_moved = value in problem.quantized.passed_through and levels[maker] == problem.line.quantized
    own = reads.get((use.node, use.operand))
    if value in over or is_moved:
        return own is None or own.dtype is problem.line.base_dtype
    return value in further and own is not None and own.dtype is Q8


def test_kernel_that_hands_on_either_is_not_quantized_for_who_reads_floats() -> None:
    spared = 0
    for _, problem in problems(3, 8, 120):
        assert problem.quantized is not None
        levels = MINCUT.assign(problem)
        edits = {edit.value for edit in lower(problem, levels) if isinstance(edit, Quantize)}
        wanted, columns = problem.needed_levels(levels), problem.graph.columns
        for value in problem.quantized.either_output:
            reads = wanted[(columns.use_value == value) & columns.use_wants]
            if levels[problem.graph.values[value].producer] == problem.line.quantized and not (reads == 2).any():
                assert value not in edits
                spared += 1
    assert spared > 5


@COUNTS
def test_what_finds_ranges_as_it_runs_reads_and_makes_floats(count: int) -> None:
    """It is told so once, wherever it runs quantized and nowhere else, and nothing is quantized for it."""
    seen = 0
    for seed, problem in problems(count, 8, 60):
        assert problem.quantized is not None
        levels = MINCUT.assign(problem)
        edits = lower(problem, levels)
        late = {number for number in problem.quantized.dynamic if levels[number] == problem.line.quantized}
        assert sorted(edit.node for edit in edits if isinstance(edit, RunDynamic)) == sorted(late), seed
        assert not [edit for edit in edits if isinstance(edit, Rewire) and edit.node in late and edit.dtype is Q8], seed
        made = {value for number in late for value in problem.graph.nodes[number].outputs}
        assert not [edit for edit in edits if isinstance(edit, Quantize) and edit.takes_over and edit.value in made]
        seen += len(late)
    assert seen > 5


def test_wrong_edits_about_ranges_found_late_are_found() -> None:
    seen = 0
    for _, problem in problems(3, 8, 60):
        levels = MINCUT.assign(problem)
        edits = lower(problem, levels)
        for at, edit in enumerate(edits):
            if isinstance(edit, RunDynamic):
                other = edit._replace(product=edit.product._replace(weights=()))
                elsewhere = edit._replace(node=next(n for n, level in enumerate(levels) if n != edit.node))
                for broken in ((), (edit, edit), (other,), (edit, elsewhere)):
                    assert check(problem, levels, (*edits[:at], *broken, *edits[at + 1 :])), (edit, broken)
                    seen += 1
    assert seen > 20


def test_edits_that_are_wrong_are_found() -> None:
    kinds = set[str]()
    for _, problem in problems(3, 8, 80):
        levels = MINCUT.assign(problem)
        edits = lower(problem, levels)
        for at, edit in enumerate(edits):
            if isinstance(edit, Quantize):
                other = edit._replace(how=replace(edit.how, scales=(0.25,)))
                wrong = {
                    "left out": (*edits[:at], *edits[at + 1 :]),
                    "twice": (*edits, edit),
                    "other parameters": (*edits[:at], other, *edits[at + 1 :]),
                }
                for kind, broken in wrong.items():
                    found = check(problem, levels, broken)
                    if found:
                        kinds.add(kind)
                    # What takes over for readers that all want floats changes numbers and no types.
                    is_needed = kind != "left out" or _is_read_so(problem, levels, edit.value)
                    assert found or not is_needed, (kind, edit)
    assert kinds == {"left out", "twice", "other parameters"}


def _is_read_so(problem: Problem, levels: list[int], value: int) -> bool:
    columns = problem.graph.columns
    at_level = np.asarray(problem.needed_levels(levels)) == problem.line.quantized
    return bool((at_level & (columns.use_value == value) & columns.use_wants).any())
