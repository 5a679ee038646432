"""What an assignment costs, counted by hand: gains, casts, penalties, and who has to agree."""

from dataclasses import replace

import pytest
import toy_dialect
from pairs import pair_costs, pair_problem, side_of, with_fields

from mezzo.contracts.problem import Choice, Problem
from mezzo.contracts.strategy import casts_of, cost
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Scope
from mezzo.tables.facts import Cost
from mezzo.tables.policy import GRANTED, Category
from mezzo.tables.target import Costs

F16 = DType.FLOAT16
LAUNCH, FACTOR = 1000, 10
ABSENT, FREE, IS_HIGH, IS_LOW = Choice.ABSENT, Choice.FREE, Choice.HIGH, Choice.LOW


def problem(
    graph: Graph, cost_of: Cost = Cost.POINTWISE, category: Category = Category.INFER, worth: int = 0, **changes: object
) -> Problem:
    """Free operators of one kind between an interface that is high."""
    ops = [node.kind is Kind.OP for node in graph.nodes]
    fixed = [ABSENT if node.kind is Kind.SOURCE else IS_HIGH for node in graph.nodes]
    found = pair_problem(
        graph,
        [FREE if op else other for op, other in zip(ops, fixed, strict=True)],
        [category if op else None for op in ops],
        [worth if op else 0 for op in ops],
        [cost_of if op else None for op in ops],
        Costs(LAUNCH, FACTOR),
    )
    return with_fields(found, **changes)


def chain(read: int = 8, made: int = 8, repeats: int = 1) -> Graph:
    """in x -> h -> out, with `read` and `made` elements; h stands in a scope that runs `repeats` times."""
    graph = toy_dialect.read(f"in x {read}\nh = move x\nout h")
    values = (graph.values[0], graph.values[1]._replace(elements=made, scope=1))
    nodes = (graph.nodes[0], graph.nodes[1]._replace(scope=1), graph.nodes[2])
    return replace(graph, nodes=nodes, values=values, scopes=(graph.scopes[0], Scope(0, None, "", repeats)))


def gain(graph: Graph, *args: object, **more: object) -> int:
    return int(problem(graph, *args, **more).gains[1, 1])  # type: ignore[arg-type]  # those of `problem`


def test_gain_is_two_bytes_for_each_element_read_or_written() -> None:
    assert problem(chain(8, 5)).gains.tolist() == [[0, 0, 0], [0, 2 * (8 + 5), 0]]


def test_gain_counts_as_often_as_the_scope_runs() -> None:
    """What runs low in a loop body saves in every turn."""
    assert gain(chain(8, 8, repeats=16)) == 16 * gain(chain(8, 8))
    allowed = {"category": Category.ALLOW, "worth": 3}
    assert gain(chain(8, 8, repeats=16), **allowed) == 16 * (3 * LAUNCH + 2 * 16)


@pytest.mark.parametrize("heavy", [Cost.LINEAR, Cost.ATTENTION, Cost.RECURRENT])
def test_bytes_of_heavy_operators_count_more_where_they_are_allowed(heavy: Cost) -> None:
    assert gain(chain(), heavy, Category.ALLOW, 2) == 2 * LAUNCH + FACTOR * 32
    assert gain(chain(), heavy, Category.INFER, 2) == 32
    assert gain(chain(), Cost.REDUCTION, Category.ALLOW, 2) == 2 * LAUNCH + 32


def test_nothing_is_gained_by_what_only_follows() -> None:
    assert gain(chain(), category=Category.CLEAR) == 0
    assert not problem(chain(), categories=(None, None, None)).gains.any()
    assert gain(chain(), category=Category.DENY) == 32


@pytest.mark.parametrize(
    ("read", "made", "worth", "is_wanted"),
    [(8, 8, 1, True), (8, 4, 1, True), (8, 3, 1, False), (4, 8, 1, True), (3, 8, 1, False), (8, 3, GRANTED, True),
     (8, 3, GRANTED - 1, False)],
)  # fmt: skip
def test_mover_that_changes_sizes_is_not_paid_for(read: int, made: int, worth: int, is_wanted: bool) -> None:
    """Slice or Expand: cast where it is small. What is granted is paid for all the same."""
    moved = 2 * (read + made)
    assert gain(chain(read, made), Cost.MOVEMENT, Category.ALLOW, worth) == moved + (worth * LAUNCH if is_wanted else 0)
    assert gain(chain(read, made), Cost.POINTWISE, Category.ALLOW, worth) == moved + worth * LAUNCH


def test_ports_outside_the_group_move_nothing() -> None:
    graph = chain()
    signature = replace(graph.nodes[1].signature, inputs=(Role.FIXED,))
    nodes = (graph.nodes[0], graph.nodes[1]._replace(signature=signature), graph.nodes[2])
    assert gain(replace(graph, nodes=nodes)) == 2 * 8
    signature = replace(signature, inputs=(Role.GROUP,), outputs=(Role.FIXED,))
    nodes = (graph.nodes[0], graph.nodes[1]._replace(signature=signature), graph.nodes[2])
    assert gain(replace(graph, nodes=nodes)) == 2 * 8


def test_operand_that_is_read_twice_counts_twice() -> None:
    graph = toy_dialect.read("in x 8\nh = plus x x\nout h")
    assert problem(graph).gains.tolist() == [[0, 0, 0], [0, 2 * (16 + 8), 0]]


def test_measured_gains_take_the_place_of_the_table() -> None:
    measured = pair_costs((7, -3, 9), (50, 60))
    held = problem(chain(), measured=measured)
    assert held.gains.tolist() == [[0, 0, 0], [0, -3, 0]]
    assert held.cast_prices.tolist() == [[50, 60]]
    assert not problem(chain(), measured=measured, choices=(IS_HIGH, ABSENT, IS_HIGH)).gains.any()


def test_cast_costs_a_launch_and_six_bytes_for_each_element_as_often_as_it_runs() -> None:
    assert problem(chain(8, 5, repeats=16)).cast_prices.tolist() == [[LAUNCH + 6 * 8, 16 * (LAUNCH + 6 * 5)]]


def test_values_are_planned_that_hold_one_of_two_precisions_and_have_a_maker() -> None:
    graph = toy_dialect.read("in x 8\nin z 8\nin i 8\nconst w 8\nh = product x w\nout h")
    values = list(graph.values)
    values[1] = values[1]._replace(dtype=F16)
    values[2] = values[2]._replace(dtype=DType.INT64)
    assert problem(replace(graph, values=tuple(values))).is_planned.tolist() == [True, True, False, False, True]


FORK = "in x 8\na = move x\nb = move a\nc = move a\nout b\nout c"


def test_casts_are_one_for_each_value_and_dtype_that_is_wanted() -> None:
    held = problem(toy_dialect.read(FORK))
    assert casts_of(held, [0] * 6) == []
    assert casts_of(held, [0, 1, 0, 0, 0, 0]) == [(0, F16), (1, HIGH)]  # a low: one for both
    assert casts_of(held, [0, 1, 1, 0, 0, 0]) == [(0, F16), (1, HIGH), (2, HIGH)]
    assert casts_of(held, [0, 0, 1, 1, 0, 0]) == [(1, F16), (2, HIGH), (3, HIGH)]


def test_use_that_takes_any_dtype_needs_no_cast() -> None:
    graph = toy_dialect.read("in x 8\na = move x\nb = move a\nout b")
    signature = replace(graph.nodes[2].signature, inputs=(Role.ANY,))
    nodes = (*graph.nodes[:2], graph.nodes[2]._replace(signature=signature), graph.nodes[3])
    assert casts_of(problem(replace(graph, nodes=nodes)), [0, 1, 0, 0]) == [(0, F16)]


def test_cost_is_gains_forgone_and_casts_made() -> None:
    held = problem(toy_dialect.read(FORK))
    each, price = 32, LAUNCH + 48
    assert cost(held, [0] * 6) == 3 * each
    assert cost(held, [0, 1, 0, 0, 0, 0]) == 2 * each + 2 * price
    assert cost(held, [0, 1, 1, 1, 0, 0]) == 3 * price


def test_cost_counts_losses_and_penalties_of_what_runs_low_alone() -> None:
    graph = toy_dialect.read(FORK)
    measured = pair_costs((0, 5, -7, 11, 0, 0), (0,) * 4)
    held = problem(graph, measured=measured, penalties=(10**30, 100, 200, 400, 10**30, 10**30))
    assert cost(held, [0] * 6) == 5 + 11
    assert cost(held, [0, 1, 1, 0, 0, 0]) == 11 + 7 + 100 + 200
    assert cost(held, [0, 1, 1, 1, 0, 0]) == 7 + 700


def test_absent_nodes_cost_nothing_whatever_they_are_said_to_be() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\nh = product x w\nout h")
    held = problem(graph, penalties=(0, 10**9, 0, 0))
    assert cost(held, [0, 1, 0, 0]) == cost(held, [0] * 4)


def test_choices_are_found() -> None:
    held = problem(toy_dialect.read("in x 8\nconst w 8\nh = product x w\nout h"))
    found = {choice: side_of(held).has_choice(choice).tolist() for choice in Choice}
    assert found == {
        ABSENT: [False, True, False, False], FREE: [False, False, True, False], IS_HIGH: [True, False, False, True],
        IS_LOW: [False] * 4,
    }  # fmt: skip


def linked_graph(castable: tuple[bool, ...], role: Role = Role.GROUP) -> Graph:
    graph = toy_dialect.read("in x 8\na = move x\nb = move a\nc = move b\nd = plus x c\nout d")
    values = tuple(v._replace(is_castable=c) for v, c in zip(graph.values, castable, strict=True))
    nodes = [*graph.nodes]
    nodes[2] = nodes[2]._replace(signature=replace(nodes[2].signature, inputs=(role,)))
    return replace(graph, nodes=tuple(nodes), values=values)


@pytest.mark.parametrize(
    ("castable", "linked"),
    [
        ((True, True, True, True, True), (0, 1, 2, 3, 4, 5)),
        ((True, False, True, True, True), (0, 1, 1, 3, 4, 5)),
        ((True, False, False, True, True), (0, 1, 1, 1, 4, 5)),
        ((False, True, False, True, True), (0, 0, 2, 2, 0, 5)),
        ((False, True, True, False, False), (0, 0, 2, 0, 0, 0)),
        ((True, True, True, True, False), (0, 1, 2, 3, 4, 4)),
    ],
)
def test_nodes_that_share_what_cannot_be_cast_are_linked(castable: tuple[bool, ...], linked: tuple[int, ...]) -> None:
    assert problem(linked_graph(castable)).linked == (linked,)


def test_use_that_takes_any_dtype_links_nobody() -> None:
    assert problem(linked_graph((True, False, True, True, True), Role.ANY)).linked == ((0, 1, 2, 3, 4, 5),)
