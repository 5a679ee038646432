"""A graph and its arrays: who reads what, in which role, how often, and what the fingerprint sees."""

from dataclasses import fields, replace

import numpy as np
import pytest
import toy_dialect
from pairs import F16_LINE

from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.columns import ANY, FIXED, GROUP
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Role, Scope, Use

F16 = DType.FLOAT16


def small() -> Graph:
    """x and the weight w make h; h is read by e twice, once in a role that takes any dtype; e is in a loop body."""
    graph = toy_dialect.read("in x 8\nconst w 4\nh = product x w\ne = plus h h\nout e")
    roles = replace(graph.nodes[3].signature, inputs=(Role.ANY, Role.FIXED))
    nodes = list(graph.nodes)
    nodes[3] = nodes[3]._replace(signature=roles, scope=1)
    values = list(graph.values)
    values[3] = values[3]._replace(scope=1, dtype=F16)
    values[0] = values[0]._replace(dtype=None)
    scopes = (graph.scopes[0], Scope(0, 3, "body/", 16))
    return replace(graph, nodes=tuple(nodes), values=tuple(values), scopes=scopes)


def test_columns_say_who_reads_what() -> None:
    columns = small().columns
    assert columns.use_node.tolist() == [2, 2, 3, 3, 4]
    assert columns.use_operand.tolist() == [0, 1, 0, 1, 0]
    assert columns.use_value.tolist() == [0, 1, 2, 2, 3]
    assert columns.use_role.tolist() == [GROUP, GROUP, ANY, FIXED, GROUP]
    assert len({GROUP, FIXED, ANY}) == 3


def test_columns_describe_values_and_nodes() -> None:
    graph = small()
    columns = graph.columns
    assert columns.value_producer.tolist() == [0, 1, 2, 3]
    assert columns.value_role.tolist() == [GROUP] * 4
    assert columns.value_elements.tolist() == [8, 4, 8, 8]
    assert columns.value_repeats.tolist() == [1, 1, 1, 16]
    assert columns.node_repeats.tolist() == [1, 1, 1, 16, 1]
    assert [list(Kind)[code] for code in columns.node_kind] == [node.kind for node in graph.nodes]
    held = [columns.signatures[code] for code in columns.node_signature]
    assert all(a is node.signature for a, node in zip(held, graph.nodes, strict=True))


def test_operands_that_are_left_out_are_no_uses() -> None:
    graph = small()
    nodes = list(graph.nodes)
    nodes[3] = nodes[3]._replace(inputs=(None, 2))
    columns = replace(graph, nodes=tuple(nodes)).columns
    assert list(zip(columns.use_node, columns.use_operand, columns.use_value, columns.use_role, strict=True)) == [
        (2, 0, 0, GROUP), (2, 1, 1, GROUP), (3, 1, 2, FIXED), (4, 0, 3, GROUP)
    ]  # fmt: skip


def test_value_of_a_fixed_port_has_its_role() -> None:
    graph = small()
    nodes = list(graph.nodes)
    nodes[2] = nodes[2]._replace(signature=replace(nodes[2].signature, outputs=(Role.FIXED,)))
    assert replace(graph, nodes=tuple(nodes)).columns.value_role.tolist() == [GROUP, GROUP, FIXED, GROUP]


def test_uses_of_a_value_are_in_node_order() -> None:
    uses = small().uses
    assert [uses[value] for value in range(4)] == [(Use(2, 0),), (Use(2, 1),), (Use(3, 0), Use(3, 1)), (Use(4, 0),)]


def test_columns_tell_who_reads_through_a_cast_and_who_in_fp32() -> None:
    graph = replace(small(), aliased=frozenset({Use(2, 0), Use(3, 1)}), widened=frozenset({Use(3, 1)}))
    assert graph.columns.use_aliased.tolist() == [True, False, False, True, False]
    assert graph.columns.use_widened.tolist() == [False, False, False, True, False]
    assert not small().columns.use_aliased.any() and not small().columns.use_widened.any()


def test_columns_say_what_a_value_holds_and_what_a_node_is() -> None:
    columns = small().columns
    assert columns.holds(HIGH).tolist() == [False, True, True, False]
    assert columns.holds(F16).tolist() == [False, False, False, True]
    assert columns.is_kind(Kind.OP).tolist() == [False, False, True, True, False]
    assert columns.is_kind(Kind.INPUT, Kind.OUTPUT).tolist() == [True, False, False, False, True]
    assert columns.is_kind(Kind.SOURCE).tolist() == [False, True, False, False, False]


def test_value_is_made_as_its_node_runs_where_the_port_is_in_the_group() -> None:
    graph = small()
    nodes = list(graph.nodes)
    nodes[3] = nodes[3]._replace(signature=replace(nodes[3].signature, outputs=(Role.FIXED,)))
    columns = replace(graph, nodes=tuple(nodes)).columns
    assert columns.produced_levels(F16_LINE, [0] * 5).tolist() == [0, 0, 0, 1]  # a fixed port keeps what it has
    assert columns.produced_levels(F16_LINE, [1] * 5).tolist() == [1] * 4
    assert columns.produced_levels(F16_LINE, [0, 0, 1, 0, 0]).tolist() == [0, 0, 1, 1]


def test_use_wants_what_its_node_runs_in_or_what_it_reads_today() -> None:
    graph = small()
    nodes = list(graph.nodes)
    nodes[4] = nodes[4]._replace(signature=replace(nodes[4].signature, inputs=(Role.FIXED,)))
    graph = replace(graph, nodes=tuple(nodes))
    levels = [0, 0, 1, 0, 0]
    assert graph.columns.needed_levels(F16_LINE, levels).tolist() == [1, 1, 0, 0, 1]
    widened = replace(graph, aliased=frozenset({Use(4, 0)}), widened=frozenset({Use(4, 0)}))
    assert widened.columns.needed_levels(F16_LINE, levels).tolist() == [1, 1, 0, 0, 0]


def test_graph_without_operators_has_empty_arrays() -> None:
    columns = toy_dialect.read("in x 8").columns
    assert columns.use_node.tolist() == columns.use_role.tolist() == []
    assert columns.value_role.tolist() == [GROUP]


@pytest.mark.parametrize("text", ["in x 8", "in x 8\na = move x\nout a", ""])
def test_arrays_have_their_dtypes_however_few_they_hold(text: str) -> None:
    """An empty list would make an array of floats, which index nothing."""
    columns = (
        toy_dialect.read(text).columns
        if text
        else Graph(
            nodes=(), values=(), scopes=(), constants={}, widened=frozenset(), aliased=frozenset(), forms={}
        ).columns
    )
    for field in fields(columns):
        if field.name != "signatures":
            expected = bool if field.name in ("use_widened", "use_aliased") else np.int64
            assert getattr(columns, field.name).dtype == expected, field.name


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"kind": Kind.TIE},
        {"inputs": (1, 0)},
        {"inputs": (0, None)},
        {"outputs": ()},
        {"scope": 1},
        {"signature": "op"},
        {"signature": "dtype"},
    ],
    ids=str,
)
def test_fingerprint_changes_with_the_structure(changed: dict[str, object]) -> None:
    graph = small()
    node: Node = graph.nodes[2]
    if changed.get("signature") == "op":
        changed = {"signature": replace(node.signature, op="plus")}
    elif changed.get("signature") == "dtype":
        changed = {"signature": replace(node.signature, dtype=F16)}
    nodes = [*graph.nodes[:2], node._replace(**changed), *graph.nodes[3:]]
    assert replace(graph, nodes=tuple(nodes)).fingerprint != graph.fingerprint


def test_fingerprint_knows_no_sizes_attributes_or_notes() -> None:
    graph = small()
    nodes = tuple(node._replace(attributes={"axis": 1}) for node in graph.nodes)
    values = tuple(value._replace(elements=7) for value in graph.values)
    other = replace(graph, nodes=nodes, values=values, notes=("note",), constants={})
    assert other.fingerprint == graph.fingerprint == small().fingerprint
    assert len(graph.fingerprint) == 32 and int(graph.fingerprint, 16)


def test_fingerprint_takes_names_that_are_no_text() -> None:
    graph = small()
    node = graph.nodes[2]._replace(name="\udc80")
    assert replace(graph, nodes=(*graph.nodes[:2], node, *graph.nodes[3:])).fingerprint != graph.fingerprint


def test_what_only_rules_ask_for_is_no_part_of_a_graph() -> None:
    graph = small()
    assert replace(graph, modules={2: "a"}, shapes={0: (1,)}) == graph != replace(graph, notes=("note",))


def test_nodes_are_found_by_name() -> None:
    assert small().by_name == {"input x": 0, "weight w": 1, "h": 2, "e": 3, "output e": 4}
