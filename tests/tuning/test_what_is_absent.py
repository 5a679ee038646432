"""Measurements say nothing that was not measured, and searches run nothing that need not be."""

import dataclasses
import math

import onnx.parser
import pytest
from held_values import held_masked

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics import measures
from mezzo.numerics.ranges.protection import protections
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of
from mezzo.tuning.budget_search import Evaluation, search
from mezzo.tuning.frontier import FrontierCandidate, trace

RECORDS = [held for held in vars(measures).values() if dataclasses.is_dataclass(held) and isinstance(held, type)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_is_not_said_of_a_measurement_is_absent(record: type) -> None:
    """None, no, or nothing; but how sure an interval is and how many units were measured together are always known."""
    for field in dataclasses.fields(record):
        if field.default is not dataclasses.MISSING and field.name not in ("confidence", "together", "names"):
            is_tuple = str(field.type).startswith("tuple") and not str(field.type).endswith("None")
            absent = False if field.type is bool else () if is_tuple else None
            assert field.default is absent or field.default == absent == (), field.name


def point(cost: float, square: float, key: str = "") -> FrontierCandidate:
    return FrontierCandidate(weight=0.0, cost=cost, square=square, low_nodes=1, key=key or f"{cost:g}", levels=[])


def test_candidates_are_told_apart_by_their_figures() -> None:
    one = point(1.0, 4.0)
    other = dataclasses.replace(one, levels=[1])
    assert one == other and repr(one) == repr(other)
    assert one.error == 2.0


def test_widest_gap_of_the_frontier_is_closed_first() -> None:
    """Three corners; two gaps are open behind the middle one, and a single solution is left for them."""
    corners = [point(0.0, 1e6), point(10.0, 1e3), point(30.0, 10.0), point(100.0, 9.0), point(200.0, 0.0)]
    asked: list[float] = []

    def solve(weight: float) -> FrontierCandidate:
        asked.append(weight)
        return min(corners, key=lambda c: (c.square if math.isinf(weight) else c.cost + weight * c.square, c.cost))

    found = trace(solve, 4)
    assert len(asked) == 4
    # Behind (10, 1e3) the way down to nothing is longer than the way up to 1e6.
    assert [candidate.cost for candidate in found] == [0.0, 10.0, 30.0, 200.0]


POINTS = [point(1.0, 9.0), point(2.0, 4.0), point(3.0, 1.0), point(4.0, 0.0)]


def runs_of(
    limit: float, outcome: dict[str, Evaluation], points: list[FrontierCandidate] = POINTS
) -> tuple[list[str], str | None]:
    runs: list[str] = []

    def evaluate(candidate: FrontierCandidate) -> Evaluation:
        runs.append(candidate.key)
        return outcome.get(candidate.key) or Evaluation(candidate.error, candidate.error <= limit)

    best = search(points, evaluate, limit, lambda: True).best
    return runs, None if best is None else best.key


def test_prediction_that_is_right_needs_one_run_or_two() -> None:
    assert runs_of(3.0, {}) == (["1"], "1")
    assert runs_of(2.5, {}) == (["2", "1"], "2")


def test_plan_without_any_error_corrects_no_prediction() -> None:
    assert runs_of(2.5, {"2": Evaluation(0.0, True)}) == (["2", "1"], "2")


def test_plan_that_is_hardly_cheaper_is_not_run() -> None:
    near = [point(0.996, 9.0), point(1.0, 4.0)]
    assert runs_of(2.0, {}, near) == (["1"], "1")
    far = [point(0.99, 9.0), point(1.0, 4.0)]
    assert runs_of(2.0, {}, far) == (["1", "0.99"], "1")


_TWO_MASKS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x) => (float[2,2] y, float[2,2] z) <float[2,2] mask = {0, -1e9, 0, 0}> {
    [one]   a = Add(x, mask)
    [two]   b = Add(x, mask)
    [moved] c = Transpose(a)
    [first] y = Softmax(c)
    [last]  z = Softmax(b)
}"""


def test_mask_is_followed_on_each_of_its_ways() -> None:
    graph = open_model(onnx.parser.parse_model(_TWO_MASKS)).read(DType.FLOAT16).graph
    ranges = [held_masked(node, value) for node, value in (("one", "a"), ("two", "b"), ("moved", "c"))]
    rows, low = rows_of(graph), FORMATS[DType.FLOAT16]
    assert {f.node for f in protections(graph, rows, low, ranges)} >= {"one", "two", "moved"}
    assert protections(graph, rows, low, ranges, limited=list(graph.constants)) == ()
