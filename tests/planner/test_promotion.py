"""Which regions are taken low as a whole: where nothing needs FP32, and something computes."""

from dataclasses import replace

import pytest
import toy_dialect

from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role
from mezzo.planner.planner import rows_of
from mezzo.planner.verdicts.promotion import UNTROUBLED, untroubled
from mezzo.tables.policy import GRANTED, Category, NodeVerdict

F16 = DType.FLOAT16
CHAIN = "in x 8\na = plus x x\nb = plus a a\nc = move b\nout c"


def promoted(
    graph: Graph, high: str = "", low: str = "", clear: str = "", deny: str = "", worth: dict[str, int] | None = None
) -> list[str]:
    """Operators are free unless they are named."""
    choices, verdicts = [], []
    for node in graph.nodes:
        choice = Choice.FREE if node.kind in (Kind.OP, Kind.TIE) else Choice.HIGH
        choice = Choice.ABSENT if node.kind is Kind.SOURCE else choice
        choice = {"high": Choice.HIGH, "low": Choice.LOW}.get(
            "high" if node.name in high.split() else "low" if node.name in low.split() else "", choice
        )
        category = Category.CLEAR if node.name in clear.split() else Category.INFER
        category = Category.DENY if node.name in deny.split() else category
        choices.append(choice)
        verdicts.append(
            NodeVerdict(category=category, rule="rule", because="", cause=None, worth=(worth or {}).get(node.name, 0))
        )
    return [graph.nodes[number].name for number in untroubled(graph, rows_of(graph), verdicts, choices, F16)]


def test_region_that_nothing_troubles_goes_low_and_movement_follows() -> None:
    assert promoted(toy_dialect.read(CHAIN)) == ["a", "b"]
    assert promoted(toy_dialect.read(CHAIN), clear="b") == ["a"]


def test_interface_troubles_nobody() -> None:
    assert promoted(toy_dialect.read("in x 8\na = plus x x\nout a")) == ["a"]


def test_operator_in_fp32_troubles_its_whole_region() -> None:
    assert promoted(toy_dialect.read(CHAIN), high="b", deny="b") == []
    text = "in x 8\na = plus x x\nb = explode a\nc = plus b b\nin z 8\nd = plus z z\nout c\nout d"
    assert promoted(toy_dialect.read(text), high="b", deny="b") == ["d"]


def test_region_ends_at_an_fp32_operator_and_begins_anew_behind_it() -> None:
    """Both sides touch it, so both are troubled."""
    text = "in x 8\na = plus x x\nb = explode a\nc = plus b b\nout c"
    assert promoted(toy_dialect.read(text), high="b") == []


def test_values_join_all_who_read_them() -> None:
    text = "in x 8\na = plus x x\nb = plus a a\nc = plus a a\nd = explode c\nout b\nout d"
    assert promoted(toy_dialect.read(text), high="d") == []


def test_input_that_several_regions_read_joins_them_only_if_it_can_move() -> None:
    text = "in x 8\na = plus x x\nb = explode x\nout a\nout b"
    assert promoted(toy_dialect.read(text), high="b") == []


def test_weight_joins_nobody() -> None:
    text = "in x 8\nin z 8\nconst w 8\na = plus x w\nb = plus z w\nc = explode b\nout a\nout c"
    assert promoted(toy_dialect.read(text), high="c") == ["a"]


def test_operators_that_are_low_belong_to_their_region() -> None:
    """Converting twice is as converting once."""
    text = "in x 8\na = plus x x\nb = move a\nc = plus b b\nd = explode c\nout d"
    assert promoted(toy_dialect.read(text), low="b", high="d") == []
    assert promoted(toy_dialect.read(CHAIN), low="a") == ["b"]
    alone = toy_dialect.read("in x 8\na = plus x x\nb = move a\nout b")
    assert promoted(alone, low="a", clear="b") == []  # movement follows what is low already
    assert promoted(alone, low="a") == []


def test_region_of_movement_alone_goes_low() -> None:
    assert promoted(toy_dialect.read("in x 8\na = move x\nb = move a\nout b")) == ["a", "b"]
    assert promoted(toy_dialect.read("in x 8\na = move x\nb = move a\nout b"), clear="a b") == ["a", "b"]


def test_denied_operator_that_is_free_pulls_nobody() -> None:
    text = "in x 8\na = plus x x\nb = move a\nout b"
    assert promoted(toy_dialect.read(text), deny="a") == ["a", "b"]


@pytest.mark.parametrize(("worth", "taken"), [(GRANTED - 1, ["a", "b"]), (GRANTED, ["b"]), (GRANTED + 1, ["b"])])
def test_what_is_granted_needs_no_promotion(worth: int, taken: list[str]) -> None:
    assert promoted(toy_dialect.read(CHAIN), worth={"a": worth}) == taken


def test_ties_join_and_are_not_promoted_themselves() -> None:
    graph = toy_dialect.read("in x 8\na = plus x x\nt = move a\nc = plus t t\nout c")
    nodes = tuple(node._replace(kind=Kind.TIE) if node.name == "t" else node for node in graph.nodes)
    graph = replace(graph, nodes=nodes)
    assert promoted(graph) == ["a", "c"]
    assert promoted(graph, high="c") == []
    assert promoted(graph, high="t") == []


@pytest.mark.parametrize(("role", "taken"), [(Role.FIXED, ["c"]), (Role.ANY, ["a", "c"])])
def test_port_that_keeps_its_dtype_troubles_and_one_that_takes_any_does_not(role: Role, taken: list[str]) -> None:
    graph = toy_dialect.read("in x 8\na = plus x x\nb = move a\nin z 8\nc = plus b z\nout c")
    nodes = tuple(
        node._replace(signature=replace(node.signature, inputs=(role,))) if node.name == "b" else node
        for node in graph.nodes
    )
    assert promoted(replace(graph, nodes=nodes)) == taken


def test_result_of_a_fixed_port_troubles_its_readers() -> None:
    graph = toy_dialect.read("in x 8\na = plus x x\nc = plus a a\nout c")
    nodes = tuple(
        node._replace(signature=replace(node.signature, outputs=(Role.FIXED,))) if node.name == "a" else node
        for node in graph.nodes
    )
    assert "c" not in promoted(replace(graph, nodes=nodes))


def test_values_of_other_dtypes_join_nobody() -> None:
    graph = toy_dialect.read("in x 8\na = plus x x\nb = plus a a\nc = explode b\nout c")
    values = tuple(v._replace(dtype=DType.FLOAT64) if v.name == "b" else v for v in graph.values)
    assert promoted(replace(graph, values=values), high="c") == ["a", "b"]
    values = tuple(v._replace(dtype=F16) if v.name == "b" else v for v in graph.values)
    assert promoted(replace(graph, values=values), high="c") == []


def test_what_is_said_of_a_promoted_operator() -> None:
    words = "nothing in this region needs f32, and low was asked for"
    assert (
        NodeVerdict(category=Category.ALLOW, rule="untroubled", because=words, cause=None, worth=GRANTED) == UNTROUBLED
    )
    assert HIGH is DType.FLOAT32
