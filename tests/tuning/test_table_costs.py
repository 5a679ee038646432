"""Costs of a toy graph by hand: what tables say, what profiles say of it, and what lies between."""

from dataclasses import replace

import pytest
import toy_dialect
from pairs import pair_costs, pair_problem, with_fields

from mezzo.contracts.problem import Choice, Problem
from mezzo.ir.nodes import Kind
from mezzo.numerics.measures import CostTable, NodeCost
from mezzo.tables.facts import Cost
from mezzo.tables.policy import Category
from mezzo.tables.target import Costs
from mezzo.tuning.costs import (
    CastLine,
    CastSample,
    Ran,
    Times,
    agreed,
    all_at,
    cost_table,
    derive_costs,
    fit_casts,
    heavy_at,
    noise_of,
    predict_ns,
    table_costs,
    table_weights,
    without_gains,
)

TEXT = "in x 8\nconst w 4\nh = product x w\nm = move h\nout m"
H, M = 2, 3  # nodes; their values are 2 and 3 too


def problem(**changes: object) -> Problem:
    graph = toy_dialect.read(TEXT)
    found = pair_problem(
        graph,
        (Choice.HIGH, Choice.ABSENT, Choice.FREE, Choice.FREE, Choice.HIGH),
        [Category.INFER if node.kind is Kind.OP else None for node in graph.nodes],
        costs_of=(None, None, Cost.LINEAR, Cost.MOVEMENT, None),
        prices=Costs(cast_launch=100, linear_factor=10),
    )
    return with_fields(found, **changes)


def times(h: float, m: float, spread: float = 0.0) -> Times:
    return Times({H: h, M: m}, {H: spread, M: spread})


def test_table_weighs_the_bytes_that_an_operator_moves() -> None:
    assert table_weights(problem()).tolist() == [4 * 8, 4 * 4, 4 * (8 + 4 + 8) * 10, 4 * 16, 4 * 8]


def test_table_costs_halve_what_runs_low_and_count_operators_alone() -> None:
    costs, table = table_costs(problem(), "a table")
    assert costs == pair_costs((0, 0, 400, 32, 0), (148, 124, 148, 148))
    assert table == CostTable("a table", "bytes moved", (NodeCost("h", 800.0, 400.0), NodeCost("m", 64.0, 32.0)))
    absent = problem(choices=(Choice.HIGH, Choice.ABSENT, Choice.FREE, Choice.ABSENT, Choice.HIGH))
    assert [node.node for node in table_costs(absent, "")[1].nodes] == ["h"]


def test_table_costs_of_each_level_go_by_its_bits() -> None:
    """FP16 saves half, FP8 three quarters, four bits seven eighths; and each threshold has prices of its own."""
    pair = problem()
    held = replace(pair, line=toy_dialect.LINES[4], sides=pair.sides * 3)
    costs, table = table_costs(held, "a table")
    assert costs.gains == ((0,) * 5, (0, 0, 400, 32, 0), (0, 0, 600, 48, 0), (0, 0, 700, 56, 0))
    assert costs.cast_prices == ((148, 124, 148, 148), (124, 112, 124, 124), (112, 106, 112, 112))
    assert table.nodes == (NodeCost("h", 800.0, 100.0), NodeCost("m", 64.0, 8.0))
    middle = replace(pair, line=toy_dialect.LINES[3], sides=pair.sides * 2)
    assert table_costs(middle, "")[0].gains == ((0, 0, 400, 32, 0), (0,) * 5, (0, 0, 600, 48, 0))


def test_costs_of_an_account_are_times() -> None:
    node = NodeCost("h", 2.0, 1.0)
    assert cost_table("a clock", [node]) == CostTable("a clock", "ns", (node,))


def test_all_that_may_run_low_does_and_linked_nodes_agree() -> None:
    assert all_at(problem(), 1) == [0, 0, 1, 1, 0]
    assert heavy_at(problem(), 1) == [0, 0, 1, 0, 0]
    choices = (Choice.LOW, Choice.ABSENT, Choice.FREE, Choice.LOW, Choice.HIGH)
    assert heavy_at(problem(choices=choices), 1) == [1, 0, 1, 1, 0]
    values = tuple(v._replace(is_castable=n != M) for n, v in enumerate(problem().graph.values))
    linked = problem(graph=replace(problem().graph, values=values))
    assert all_at(linked, 1) == [0, 0, 1, 0, 0]  # the output stays high
    values = tuple(v._replace(is_castable=n != H) for n, v in enumerate(problem().graph.values))
    linked = problem(graph=replace(problem().graph, values=values))
    assert heavy_at(linked, 1) == [0, 0, 1, 1, 0]  # what moves is linked to the product


def test_profiles_differ_by_the_share_of_their_times() -> None:
    assert noise_of(times(900, 100), times(1100, 100)) == pytest.approx(200 / 1100)
    assert noise_of(times(100, 100), times(100, 100)) == 0.0
    assert noise_of(Times({H: 1.0}, {}), Times({M: 1.0}, {})) == 0.0
    assert noise_of(Times({H: 100.0, M: 7.0}, {}), Times({H: 300.0}, {})) == 1.0


def test_agreed_times_are_means_whose_spread_covers_all_that_is_known() -> None:
    found = agreed(times(900, 100, 1.0), times(1100, 100, 500.0))
    assert found.times_ns == {H: 1000.0, M: 100.0}
    assert found.spreads_ns == {H: 500.0, M: 500.0}
    assert agreed(times(900, 100, 300.0), times(1100, 100)).spreads_ns == {H: 300.0, M: 300.0}
    plain = agreed(Times({H: 900.0, M: 100.0}, {}), Times({H: 1100.0, M: 104.0, 9: 1.0}, {}))
    assert plain.spreads_ns == {H: 200.0, M: pytest.approx(102 * 204 / 1102)}


@pytest.mark.parametrize(
    ("samples", "line"),
    [
        ([], None),
        ([CastSample(5, 0.0), CastSample(5, -1.0)], None),
        ([CastSample(5, 8.0)], CastLine(8.0, 0.0)),
        ([CastSample(5, 8.0), CastSample(7, 0.0)], CastLine(8.0, 0.0)),
        ([CastSample(10, 20.0), CastSample(20, 30.0)], CastLine(pytest.approx(10.0), pytest.approx(1.0))),  # type: ignore[arg-type]
        # Least relative squares by hand: for t in (4, 8), the launch is sum(1/t) / sum(1/t^2).
        ([CastSample(5, 4.0), CastSample(5, 8.0)], CastLine(pytest.approx(4.8), 0.0)),  # type: ignore[arg-type]
        # Through nothing: rates 1 and 2, whose relative squares weigh alike: 1.5 / 1.25.
        ([CastSample(1, 1.0), CastSample(4, 8.0)], CastLine(0.0, pytest.approx(1.2))),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_line_through_casts_takes_relative_errors(samples: list[CastSample], line: CastLine | None) -> None:
    found = fit_casts(samples)
    if line is None or found is None:
        assert found is line
    else:
        assert (found.launch_ns, found.element_ns) == (line.launch_ns, line.element_ns)


def test_costs_of_casts_are_their_line_as_often_as_the_scope_runs() -> None:
    costs, _ = derive_costs(problem(), times(1, 1), [Ran(all_at(problem(), 1), times(1, 1))], [CastLine(10.0, 0.5)])
    assert costs.cast_prices == ((14, 12, 14, 14),)
    none, _ = derive_costs(problem(), times(864, 0), [Ran(all_at(problem(), 1), times(1, 1))], [None])
    assert none.cast_prices == ((148, 124, 148, 148),)  # 864 ns for the 864 that the table says: one ns each
    least, _ = derive_costs(problem(), times(1, 1), [Ran(all_at(problem(), 1), times(1, 1))], [CastLine(0.0, 0.0)])
    assert least.cast_prices == ((1, 1, 1, 1),)


def test_node_without_a_time_is_guessed_by_its_bytes() -> None:
    costs, nodes = derive_costs(
        problem(), Times({H: 1600.0}, {}), [Ran(all_at(problem(), 1), Times({H: 800.0}, {}))], [None]
    )
    assert nodes == (NodeCost("h", 1600.0, 800.0), NodeCost("m", 128.0, 64.0))
    assert costs.gains == ((0, 0, 0, 0, 0), (0, 0, 800, 64, 0))


@pytest.mark.parametrize(("low_ns", "gain"), [(95.0, 0), (94.0, 6), (105.0, 0), (106.0, -6)])
def test_difference_up_to_both_spreads_is_none(low_ns: float, gain: int) -> None:
    """3 ns and 4 ns make 5 ns."""
    high, low = Times({H: 100.0}, {H: 3.0}), Times({H: low_ns}, {H: 4.0})
    costs, _ = derive_costs(problem(), high, [Ran(all_at(problem(), 1), low)], [CastLine(1.0, 0.0)])
    assert costs.gains[1][H] == gain
    assert {type(each) for gains in costs.gains for each in gains} == {int}


def test_where_nothing_gains_losses_stay() -> None:
    assert without_gains(pair_costs((5, -3, 0), (7,))) == pair_costs((0, -3, 0), (7,))


def test_prediction_takes_gains_off_and_adds_casts() -> None:
    held = problem(measured=pair_costs((0, 0, 30, -5, 0), (1, 2, 4, 8)))
    assert predict_ns(held, [0, 0, 1, 1, 0], 100.0) == 100 - 30 + 5 + 1 + 8
    assert predict_ns(held, [0, 0, 1, 0, 0], 100.0) == 100 - 30 + 1 + 4
