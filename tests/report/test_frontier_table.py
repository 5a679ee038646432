"""The table of a frontier, whatever its points are, and numbers for people keep what matters."""

import math
from dataclasses import replace

import pytest
from samples import FRONTIER, show

from mezzo.numerics.measures import FrontierPoint
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.numbers import spell_cosine, spell_error, spell_share, spell_time
from mezzo.report.text.measured.frontier import report_frontier


@pytest.mark.parametrize(
    "points",
    [
        [FrontierPoint(weight=math.inf, cost=5.0, low_nodes=0, predicted_error=0.0, error=0.0, is_chosen=True)],
        [FrontierPoint(weight=0.0, cost=0.0, low_nodes=3, predicted_error=math.inf)],
        [
            FrontierPoint(weight=0.0, cost=1.0, low_nodes=3, predicted_error=1e-300),
            FrontierPoint(weight=1.0, cost=2.0, low_nodes=3, predicted_error=1e300),
        ],
        [FrontierPoint(weight=0.0, cost=1.0, low_nodes=3, predicted_error=math.nan, error=math.nan)],
        [FrontierPoint(weight=0.0, cost=7.0, low_nodes=3, predicted_error=1e-3)] * 3,
        [
            FrontierPoint(weight=0.0, cost=9.0, low_nodes=3, predicted_error=1e-3),
            FrontierPoint(weight=math.inf, cost=5.0, low_nodes=0, predicted_error=0.0),
        ],
    ],
    ids=["only FP32", "costs nothing, breaks", "far apart", "NaN", "all alike", "dearer than FP32"],
)
def test_any_frontier_has_a_table(points):
    lines = show(report_frontier(Layout.TERMINAL, points, None), 80).splitlines()
    assert max(map(len, lines)) <= 80
    counts = [str(point.low_nodes) for point in points]
    assert sum(any(count in line.split() for count in counts) for line in lines) >= len(points)


def test_chosen_point_is_seen_among_many():
    points = [FrontierPoint(weight=1.0, cost=1.0, low_nodes=3, predicted_error=1e-3, error=1e-3) for _ in range(40)]
    points[17] = replace(points[17], is_chosen=True)
    shown = show(report_frontier(Layout.PLAIN, points, None))
    assert "chosen  " in shown and shown.count("1.00e-03") <= 2 * 17


def test_cost_is_told_against_a_plan_that_is_all_high():
    shown = show(report_frontier(Layout.PLAIN, FRONTIER, None))
    assert "0.600" in shown and "cost to FP32" in shown
    shown = show(report_frontier(Layout.PLAIN, FRONTIER[:-1], None))
    assert "cost to FP32" not in shown


@pytest.mark.parametrize(
    ("share", "spelled"),
    [(0.0, "0 %"), (1.0, "100 %"), (1e-6, "<0.01 %"), (1 - 1e-6, ">99.99 %"), (0.5, "50.0 %"), (5e-4, "0.05 %")],
)
def test_shares_tell_few_from_none(share, spelled):
    assert spell_share(share) == spelled


def test_only_a_cosine_of_one_is_spelled_so():
    assert [spell_cosine(x) for x in (1.0, 1 - 1e-9, 0.5)] == ["1", "0.9999999", "0.5000000"]


def test_errors_and_times_have_few_digits():
    assert [spell_error(x) for x in (0.0, 1.2345e-7, 0.12345, math.inf)] == ["0", "1.23e-07", "0.123", "inf"]
    assert [spell_time(x) for x in (0.4, 12.3, 200.0)] == ["0.4 s", "12 s", "3 min 20 s"]
