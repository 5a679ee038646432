"""The core plans a dialect that no front end knows: facts, policy, strategies, lower and check run on it unchanged."""

from dataclasses import replace

import pytest
import toy_dialect
from pairs import F16_LINE

import mezzo.planner.planner
from mezzo.common.errors import InputError
from mezzo.contracts.plans import AddCast, AddCopy, Edit, Retype
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import Judged, judge
from mezzo.planner.reasons import reasons
from mezzo.plugins.discovery import policy, strategies, target
from mezzo.tables.ops import op_facts

PROGRAM = """
in x 8
const w 64
h = product x w
m = move h
e = explode m
p = plus m e
out p
"""


@pytest.fixture(autouse=True)
def _toy_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {toy_dialect.DIALECT: toy_dialect.FACTS}
    monkeypatch.setattr(mezzo.planner.planner, "op_facts", lambda dialect: tables.get(dialect) or op_facts(dialect))


def decide(graph: Graph, strategy: str) -> tuple[Judged, dict[str, int], tuple[Edit, ...], PlanningOptions]:
    """Judge, assign, lower and check; the assignment is by node name."""
    planning = PlanningOptions(
        line=F16_LINE, policy=policy("balanced"), strategy=strategies()[strategy], target=target("any")
    )
    judged = judge(graph, planning)
    levels = planning.strategy.assign(judged.problem)
    edits = lower(judged.problem, levels)
    assert check(judged.problem, levels, edits) == []
    return judged, {node.name: level for node, level in zip(graph.nodes, levels, strict=True)}, edits, planning


@pytest.mark.parametrize("strategy", strategies())
def test_toy_linear_work_runs_low_and_exponentials_do_not(strategy: str) -> None:
    _, levels, _, _ = decide(toy_dialect.read(PROGRAM), strategy)
    assert levels["h"] and not levels["e"]
    # What `m` makes is wanted in FP32 only, so a strategy that asks its readers leaves it.
    assert bool(levels["m"]) == (strategy != "upstream")


@pytest.mark.parametrize("strategy", strategies())
def test_toy_interface_keeps_its_dtype(strategy: str) -> None:
    _, levels, _, _ = decide(toy_dialect.read(PROGRAM), strategy)
    assert not levels["input x"] and not levels["output p"]


def test_toy_weight_is_retyped_and_values_are_cast_once() -> None:
    graph = toy_dialect.read(PROGRAM)
    _, _, edits, _ = decide(graph, "mincut")
    names = {number: value.name for number, value in enumerate(graph.values)}
    assert [names[e.value] for e in edits if isinstance(e, Retype)] == ["w", "h", "m"]
    assert [(names[e.value], e.dtype) for e in edits if isinstance(e, AddCast)] == [("x", DType.FLOAT16), ("m", HIGH)]


def test_toy_weight_used_in_both_precisions_is_stored_twice() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\nh = product x w\ne = explode w\no = plus h e\nout o")
    _, _, edits, _ = decide(graph, "mincut")
    assert [e.dtype for e in edits if isinstance(e, AddCopy)] == [DType.FLOAT16]


def test_toy_constant_out_of_range_keeps_its_reader_high() -> None:
    judged, levels, _, planning = decide(toy_dialect.read("in x 8\nconst w 8 1e6\nh = product x w\nout h"), "mincut")
    assert not levels["h"]
    assert reasons(judged, list(levels.values()), planning)[2].rule == "constant-out-of-range"


def test_toy_operator_without_facts_is_denied() -> None:
    judged, levels, _, planning = decide(toy_dialect.read("in x 8\nh = conjure x\nout h"), "mincut")
    assert not levels["h"]
    assert reasons(judged, list(levels.values()), planning)[1].rule == "unlisted"


def marked(**marks: DType | None) -> Graph:
    graph = toy_dialect.read(PROGRAM)
    return replace(graph, marks={graph.by_name[name]: dtype for name, dtype in marks.items()})


@pytest.mark.parametrize("strategy", strategies())
def test_the_program_itself_says_what_a_node_runs_in(strategy: str) -> None:
    judged, levels, _, planning = decide(marked(h=None, m=HIGH, p=DType.FLOAT16), strategy)
    assert (levels["h"], levels["m"], levels["p"]) == (0, 0, 1)
    why = reasons(judged, list(levels.values()), planning)
    assert [why[judged.problem.graph.by_name[name]].because for name in "hmp"] == [
        "the program keeps it as it is written", "the program asks for f32 here", "the program asks for f16 here",
    ]  # fmt: skip


def test_the_program_beats_the_options_of_its_user() -> None:
    graph = marked(h=None, p=DType.FLOAT16)
    planning = PlanningOptions(
        line=F16_LINE, policy=policy("balanced"), strategy=strategies()["mincut"], target=target("any"),
        include=("h",), exclude=("p",),
    )  # fmt: skip
    levels = planning.strategy.assign(judge(graph, planning).problem)
    assert (levels[graph.by_name["h"]], levels[graph.by_name["p"]]) == (0, 1)


def test_a_node_that_cannot_run_so_stays_high_and_that_is_told() -> None:
    graph = marked(p=DType.FLOAT16)
    nodes = [
        node._replace(signature=replace(node.signature, legal=frozenset({HIGH}))) if node.name == "p" else node
        for node in graph.nodes
    ]
    planning = PlanningOptions(
        line=F16_LINE, policy=policy("balanced"), strategy=strategies()["mincut"], target=target("any")
    )
    judged = judge(replace(graph, nodes=tuple(nodes)), planning)
    assert "node 'p' cannot run in f16 here, so it stays f32" in judged.notes
    assert planning.strategy.assign(judged.problem)[graph.by_name["p"]] == 0


def test_a_program_that_asks_for_what_is_no_level_is_refused() -> None:
    planning = PlanningOptions(
        line=F16_LINE, policy=policy("balanced"), strategy=strategies()["mincut"], target=target("any")
    )
    with pytest.raises(InputError) as caught:
        judge(marked(p=DType.BFLOAT16), planning)
    assert str(caught.value) == (
        "node 'p' is in a region that asks for bf16, and this conversion has f32 and f16; ask for one of them "
        'there, or for to="bf16"'
    )
