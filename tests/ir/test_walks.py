"""Traversals of nodes, and what a node says of its ports."""

from collections.abc import Mapping, Sequence

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Role, Signature
from mezzo.ir.walks import walk

# Readers by node: a diamond, and a node that nothing leads to.
_READERS: Mapping[int, Sequence[int]] = {0: (1, 2), 1: (3,), 2: (3,), 3: (), 4: (3,)}


def node(number: int, inputs: tuple[int | None, ...] = (), roles: tuple[Role, ...] = ()) -> Node:
    signature = Signature(
        dialect="toy", op="op", version=1, inputs=roles, outputs=(Role.GROUP,), dtype=DType.FLOAT32, legal=frozenset()
    )
    return Node(number, f"n{number}", Kind.OP, signature, 0, inputs, (number,), {"alpha": 0.5, "axis": 1})


_NODES = [node(number) for number in _READERS]


def reached(start: int, visited: set[int]) -> list[tuple[int, int]]:
    """Ids of the nodes that a walk yields, and of those that led to them."""
    pairs = walk([_NODES[start]], lambda at: [_NODES[reader] for reader in _READERS[at.id]], visited)
    return [(other.id, at.id) for other, at in pairs]


def test_walk_yields_each_node_once_with_the_one_that_leads_to_it() -> None:
    visited = {0}
    assert reached(0, visited) == [(1, 0), (2, 0), (3, 2)]
    assert visited == {0, 1, 2, 3}


def test_walks_that_share_visited_nodes_skip_those_of_earlier_ones() -> None:
    visited = {0}
    reached(0, visited)
    assert reached(4, visited) == []


def test_ports_without_a_value_are_left_out() -> None:
    at = node(5, (7, None, 8), (Role.FIXED, Role.GROUP, Role.GROUP))
    assert at.present_inputs == [7, 8] and at.group_inputs == [8] and at.group_outputs == [5]
    assert [at.operand(index) for index in range(4)] == [7, None, 8, None]


def test_attribute_of_another_type_is_no_float() -> None:
    at = node(5)
    assert [at.float_attribute(name) for name in ("alpha", "axis", "beta")] == [0.5, None, None]
