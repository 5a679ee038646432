"""How nodes are boxed for a picture: by body, by the path in names or of modules, by repetition."""

from dataclasses import replace

import numpy as np
import pytest
import toy_dialect

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Scope
from mezzo.report.views.grouping import NodeBox, find_repeats, group_nodes


def named(*names: str, modules: dict[int, str] | None = None, text: str | None = None) -> Graph:
    """in x, then one operator for each name, then out."""
    lines = [f"v{n} = move {'x' if not n else f'v{n - 1}'}" for n in range(len(names))]
    graph = toy_dialect.read(text or "\n".join(["in x 8", *lines, f"out v{len(names) - 1}"]))
    nodes = [node._replace(name=names[n - 1]) if 0 < n <= len(names) else node for n, node in enumerate(graph.nodes)]
    return replace(graph, nodes=tuple(nodes), modules=modules or {})


def boxes(graph: Graph) -> list[str]:
    """The path of the box of each node, the kinds of the boxes behind it."""
    groups, of_node = group_nodes(graph)

    def path(number: int) -> str:
        group = groups[number]
        return "" if group.parent is None else f"{path(group.parent)}/{group.name}:{group.kind}"

    assert groups[0] == NodeBox("", None, "graph")
    assert all(group.parent is not None and group.parent < number for number, group in enumerate(groups) if number)
    return [path(number) for number in of_node]


def test_paths_in_names_are_boxes_in_boxes() -> None:
    found = boxes(named("/enc/layer.0/add", "/enc/layer.1/add", "/enc/add", "plain"))
    assert found[1:-1] == ["/enc:scope/layer.0:scope", "/enc:scope/layer.1:scope", "/enc:scope", ""]


def test_inputs_and_outputs_stand_outside() -> None:
    graph = named("/enc/add")
    names = [graph.nodes[0]._replace(name="/enc/x"), graph.nodes[1], graph.nodes[2]._replace(name="/enc/y")]
    assert boxes(replace(graph, nodes=tuple(names))) == ["", "/enc:scope", ""]


def test_path_with_no_end_opens_no_end_of_boxes() -> None:
    found = boxes(named("/".join("abcdefghijklmnopqrstuvwxyz")))
    assert found[1].count(":scope") == 16


def test_module_counts_where_the_name_has_no_path() -> None:
    found = boxes(named("add", "/enc/mul", "gelu", modules={1: "encoder.layer.0.attention", 2: "other", 3: "a/b.12"}))
    assert found[1:-1] == ["/encoder:scope/layer.0:scope/attention:scope", "/enc:scope", "/a:scope/b.12:scope"]


def test_weight_stands_with_its_first_reader() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\nconst u 8\na = product x w\nb = product a w\nout b")
    renames = {3: "/one/a", 4: "/two/b", 1: "/three/w"}
    nodes = tuple(node._replace(name=renames.get(node.id, node.name)) for node in graph.nodes)
    assert boxes(replace(graph, nodes=nodes)) == ["", "/one:scope", "", "/one:scope", "/two:scope", ""]


def in_scopes(graph: Graph, scopes: tuple[Scope, ...], of_node: dict[int, int]) -> Graph:
    nodes = tuple(node._replace(scope=of_node.get(node.id, 0)) for node in graph.nodes)
    return replace(graph, nodes=nodes, scopes=scopes)


def test_body_is_a_box_named_for_its_owner_and_its_paths_are_its_own() -> None:
    main = Scope(None, None, "", 1)
    scopes = (main, Scope(0, 1, "/loop/body/", 16), Scope(1, 2, "/loop/body/if/then/", 16), Scope(0, None, "f/", 1))
    graph = named("/loop", "/loop/body/enc/add", "/loop/body/if/then/mul", "f/neg")
    found = boxes(in_scopes(graph, scopes, {2: 1, 3: 2, 4: 3}))
    assert found[1:-1] == ["", "/move body:body/enc:scope", "/move body:body/move then:body", "/f:body"]


def test_two_bodies_of_one_name_are_two_boxes() -> None:
    main = Scope(None, None, "", 1)
    graph = in_scopes(named("a/x", "a/y"), (main, Scope(0, None, "a/", 1), Scope(0, None, "a/", 1)), {1: 1, 2: 2})
    groups, of_node = group_nodes(graph)
    assert of_node[1] != of_node[2] and [groups[of_node[n]].name for n in (1, 2)] == ["a", "a"]


def test_body_whose_path_is_no_path_keeps_its_name() -> None:
    graph = in_scopes(named("z"), (Scope(None, None, "", 1), Scope(0, None, "/", 1)), {1: 1})
    assert boxes(graph)[1] == "//:body"


def repeated(pattern: str, count: int) -> Graph:
    ops = {"m": "move", "p": "plus", "e": "explode"}
    lines, last = ["in x 8"], "x"
    for n, letter in enumerate(pattern * count):
        lines.append(f"v{n} = {ops[letter]} {last}")
        last = f"v{n}"
    return toy_dialect.read("\n".join([*lines, f"out {last}"]))


def test_operators_that_repeat_are_blocks() -> None:
    groups, of_node = group_nodes(repeated("mpe", 14))
    assert [group.name for group in groups[1:]] == [f"block {n} of 14" for n in range(1, 15)]
    assert {(group.parent, group.kind) for group in groups[1:]} == {(0, "block")}
    assert of_node == [0, *(1 + n // 3 for n in range(42)), 0]


def test_few_operators_are_no_blocks() -> None:
    assert len(group_nodes(repeated("mpe", 13))[0]) == 1  # 39 of them
    assert len(group_nodes(repeated("mpep", 10))[0]) == 11  # 40


def test_blocks_are_looked_for_box_by_box() -> None:
    graph = repeated("mpe", 28)
    nodes = [node._replace(name=f"/{'ab'[n // 43]}/{n}") if node.kind is Kind.OP else node
             for n, node in enumerate(graph.nodes)]  # fmt: skip
    groups, _ = group_nodes(replace(graph, nodes=tuple(nodes)))
    assert [group.name for group in groups[1:3]] == ["a", "b"]
    assert [group.parent for group in groups[3:]] == [1] * 14 + [2] * 14


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ([1, 2, 3] * 7, [(0, 3, 7)]),
        ([1, 2, 3] * 6, []),  # 18 are too few
        ([1, 2] * 10, [(0, 4, 5)]),  # the shortest pattern that is looked for has three
        ([1] * 40, []),  # a run of one operator
        ([9, 9, *[1, 2, 3, 4] * 5], [(2, 4, 5)]),
        ([*[1, 2, 3, 4] * 5, 9, 8, 4, *[5, 6, 7] * 8], [(0, 4, 5), (23, 3, 8)]),
        ([*[1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 2], [(0, 10, 2)]),
        (list(range(40)), []),
        ([], []),
        ([*range(600)] * 2, [(0, 600, 2)]),
        ([*range(601)] * 2, []),  # longer than is looked for
    ],
)
def test_repeats_are_found_with_their_beginning_period_and_count(
    codes: list[int], found: list[tuple[int, int, int]]
) -> None:
    assert find_repeats(np.array(codes, np.int64)) == found


# v0 is in the block, then a cast and an operator without a scope, and readers further on.
_SERVED = "in x 8\nv0 = move x\nv1 = move v0\nv2 = move v1\nv3 = move v2\nv4 = move v3\nout v4"


def with_kinds(graph: Graph, kinds: dict[int, Kind]) -> Graph:
    return replace(graph, nodes=tuple(node._replace(kind=kinds.get(node.id, node.kind)) for node in graph.nodes))


def test_cast_without_a_scope_stands_with_what_it_serves() -> None:
    graph = named("/enc/a/mul", "x_cast0", "/enc/b/in/mul", "y_cast0", "/dec/mul", text=_SERVED)
    found = boxes(with_kinds(graph, {2: Kind.CAST, 4: Kind.CAST}))
    assert found[2] == "/enc:scope/b:scope/in:scope", "what reads it"
    assert found[4] == "/enc:scope/b:scope/in:scope", "what it reads is further inside"


def test_chain_without_a_scope_follows_the_last_of_it() -> None:
    found = boxes(named("one", "two", "three", "/enc/a/mul", "/enc/b/mul", text=_SERVED))
    assert found[1:4] == ["/enc:scope/a:scope"] * 3


def test_operator_behind_all_scopes_stays_outside() -> None:
    assert boxes(named("/enc/mul", "score"))[2] == ""


def test_operator_at_the_top_of_the_model_stays_there() -> None:
    graph = named("/Add", "top", "/enc/mul", "enc_mul", modules={2: "", 4: "enc.b"})
    assert boxes(graph)[1:-1] == ["", "", "/enc:scope", "/enc:scope/b:scope"]


def test_node_that_serves_several_scopes_stands_around_them() -> None:
    graph = named("mask", "/enc/a/mul", "/enc/b/mul", "/enc/c/mul")
    nodes = tuple(node._replace(inputs=graph.nodes[1].outputs) if node.id in (2, 3) else node for node in graph.nodes)
    assert boxes(replace(graph, nodes=nodes))[1] == "/enc:scope"


def test_node_without_a_scope_leaves_and_enters_no_body() -> None:
    scopes = (Scope(None, None, "", 1), Scope(0, None, "loop/", 1))
    graph = named("before", "loop/enc/mul", "loop/after", "/dec/mul")
    found = boxes(in_scopes(graph, scopes, {2: 1, 3: 1}))
    assert found[1:4] == ["", "/loop:body/enc:scope", "/loop:body"]
