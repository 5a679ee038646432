"""Laws of partitions: over random models and over random graphs under selectors that take whatever they meet."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import graph_of, shuffled, with_unique_names
from random_models import random_model
from sweeps import swept

from mezzo.analysis.fusion import kernels_of
from mezzo.analysis.fusion.order import level_nodes, rank_nodes
from mezzo.analysis.fusion.partition import partition
from mezzo.analysis.fusion.selector import Free, Make
from mezzo.analysis.fusion.unit import FusedKernel, Partition
from mezzo.analysis.fusion.uses import NO_UNIT, kernels_of_units, number_nodes, uses_inside, values_inside
from mezzo.analysis.fusion.view import FusionView
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import line_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Role, Scope, Signature, Value
from mezzo.plugins.discovery import built_in_targets
from mezzo.tables.fusions import Constraint, Fusion, Inside
from mezzo.tables.ops import op_facts
from mezzo.tables.target import Target

_TARGETS = [name for name, rows in built_in_targets().items() if rows.fusions]
_SEEDS = st.integers(0, 2**32 - 1)


def view_of(graph: Graph) -> FusionView:
    rows = (op_facts(n.signature.dialect).get(n.op) if n.kind is Kind.OP else None for n in graph.nodes)
    return FusionView(graph, tuple(rows))


def readers(graph: Graph, node: int) -> set[int]:
    """Nodes that read what a node makes, but for the tie at the start of a loop."""
    values = [value for value in graph.nodes[node].outputs if value is not None]
    return {use.node for value in values for use in graph.uses[value] if use.node > node}


def check_laws(graph: Graph, split: Partition) -> None:
    """Each operator once; every unit connected by name in one scope, convex; no circle once units are one node each."""
    operators = [n.id for n in graph.nodes if n.kind in (Kind.OP, Kind.CAST)]
    every = [node for unit in split.units for node in unit.nodes] + [*split.alone, *split.folded]
    assert sorted(every) == operators
    for unit in split.units:
        assert len({graph.nodes[node].scope for node in unit.nodes}) == 1
        inside = set(unit.nodes)
        met: set[int] = set()
        pending = [reader for node in inside for reader in readers(graph, node) - inside]
        while pending:
            node = pending.pop()
            assert node not in inside, f"a path leaves unit {unit.number} and comes back at {graph.nodes[node].name!r}"
            if node not in met:
                met.add(node)
                pending += readers(graph, node)
    assert is_acyclic(graph, number_nodes(graph, split).tolist())


def is_acyclic(graph: Graph, unit_of: Sequence[int]) -> bool:
    """Whether the graph with units as one node has an order."""
    place = [(unit, -1) if unit != NO_UNIT else (NO_UNIT, node) for node, unit in enumerate(unit_of)]
    edges = {(place[n.id], place[reader]) for n in graph.nodes for reader in readers(graph, n.id)}
    edges = {(a, b) for a, b in edges if a != b}
    waiting = dict.fromkeys(place, 0)
    following: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for before, behind in edges:
        waiting[behind] += 1
        following.setdefault(before, []).append(behind)
    ready = [one for one, count in waiting.items() if not count]
    done = 0
    while ready:
        done += 1
        for behind in following.get(ready.pop(), ()):
            waiting[behind] -= 1
            if not waiting[behind]:
                ready.append(behind)
    return done == len(waiting)


def by_names(graph: Graph, split: Partition) -> set[tuple[str, frozenset[str]]]:
    return {(unit.pattern, frozenset(graph.nodes[node].name for node in unit.nodes)) for unit in split.units}


@pytest.mark.parametrize("target", _TARGETS)
@settings(max_examples=swept(25), deadline=None)
@given(seed=_SEEDS, size=st.integers(1, 24))
def test_laws_hold_on_random_models(target: str, seed: int, size: int) -> None:
    graph = graph_of(random_model(random.Random(seed), size), DType.FLOAT16)
    check_laws(graph, partition(view_of(graph), kernels_of(built_in_targets()[target]), target))


@pytest.mark.parametrize("target", _TARGETS)
@settings(max_examples=swept(15), deadline=None)
@given(seed=_SEEDS, size=st.integers(1, 24))
def test_order_of_nodes_changes_no_unit(target: str, seed: int, size: int) -> None:
    rng = random.Random(seed)
    model = with_unique_names(random_model(rng, size))
    graph, other = graph_of(model, DType.FLOAT16), graph_of(shuffled(model, rng), DType.FLOAT16)
    units = by_names(graph, partition(view_of(graph), kernels_of(built_in_targets()[target]), target))
    assert units == by_names(other, partition(view_of(other), kernels_of(built_in_targets()[target]), target))


def random_graph(rng: random.Random, size: int) -> Graph:
    """A graph of operators with one to three operands near them and one or two results, named by number."""
    nodes = [_node(0, "in", Kind.INPUT, (), (0,))]
    values = [Value("in", HIGH, 0, 0, 4, True)]
    for number in range(1, size + 1):
        recent = range(max(0, len(values) - 8), len(values))
        inputs = tuple(rng.choice(recent) for _ in range(rng.randint(1, 3)))
        outputs = tuple(range(len(values), len(values) + rng.randint(1, 2)))
        values += [Value(f"v{value}", HIGH, number, 0, 4, True) for value in outputs]
        nodes.append(_node(number, f"n{number}", Kind.OP, inputs, outputs))
    return Graph(
        nodes=tuple(nodes),
        values=tuple(values),
        scopes=(Scope(None, None, "", 1),),
        constants={},
        widened=frozenset(),
        aliased=frozenset(),
        forms={},
    )


def _node(number: int, name: str, kind: Kind, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Node:
    taken, made = (Role.GROUP,) * len(inputs), (Role.GROUP,) * len(outputs)
    signature = Signature(
        dialect="toy", op="blend", version=1, inputs=taken, outputs=made, dtype=HIGH, legal=frozenset({HIGH})
    )
    return Node(number, name, kind, signature, 0, inputs, outputs, {})


def reordered(graph: Graph, rng: random.Random) -> Graph:
    """The same graph with its nodes in another order that it allows."""
    waiting = list(graph.nodes)
    order: list[Node] = []
    placed: set[int] = set()
    while waiting:
        ready = [n for n in waiting if all(graph.values[v].producer in placed for v in n.inputs if v is not None)]
        chosen = rng.choice(ready)
        waiting.remove(chosen)
        placed.add(chosen.id)
        order.append(chosen)
    place = {node.id: number for number, node in enumerate(order)}
    nodes = tuple(node._replace(id=number) for number, node in enumerate(order))
    values = tuple(value._replace(producer=place[value.producer]) for value in graph.values)
    return replace(graph, nodes=nodes, values=values)


class Greedy:
    """Takes a fixed share of all neighbours, chosen by name, in both directions; keeps all but a few."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def _says(self, *words: str) -> int:
        return hashlib.sha256(" ".join((self._salt, *words)).encode()).digest()[0]

    def select(self, node: Node) -> bool:
        return self._says("seed", node.name) < 128

    def select_input(self, node: Node, maker: Node) -> bool:
        return maker.kind is Kind.OP and self._says("join", maker.name) < 150

    def select_output(self, node: Node, reader: Node) -> bool:
        return reader.kind is Kind.OP and self._says("join", reader.name) < 150

    def filter(self, nodes: Sequence[Node]) -> Sequence[Node]:
        return [node for node in nodes if self._says("keep", node.name) >= 20]


def greedy(salt: str) -> Make:
    def make(view: FusionView, free: Free) -> Greedy:
        return Greedy(salt)

    return make


def kernel(
    pattern: str, make: Make, constraint: Constraint | None = None, *, starts_at_end: bool = False
) -> FusedKernel:
    fusion = Fusion(pattern=pattern, source="a test", since="now", constraint=constraint or Constraint())
    return FusedKernel(fusion=fusion, make=make, starts_at_end=starts_at_end)


def greedy_kernels(seed: int) -> list[FusedKernel]:
    """Two patterns, of which the second gets what the first leaves."""
    return [
        kernel("first", greedy(f"{seed} first")),
        kernel("second", greedy(f"{seed} second"), starts_at_end=True),
    ]


@settings(max_examples=swept(300), deadline=None)
@given(seed=_SEEDS, size=st.integers(1, 40))
def test_laws_hold_for_selectors_that_take_anything(seed: int, size: int) -> None:
    graph = random_graph(random.Random(seed), size)
    check_laws(graph, partition(FusionView(graph, (None,) * len(graph.nodes)), greedy_kernels(seed), "toy"))


@settings(max_examples=swept(150), deadline=None)
@given(seed=_SEEDS, size=st.integers(1, 30))
def test_order_changes_nothing_for_selectors_that_take_anything(seed: int, size: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, size)
    other = reordered(graph, rng)
    rows = (None,) * len(graph.nodes)
    first = by_names(graph, partition(FusionView(graph, rows), greedy_kernels(seed), "toy"))
    assert first == by_names(other, partition(FusionView(other, rows), greedy_kernels(seed), "toy"))


def test_two_units_never_wait_for_each_other() -> None:
    """a1 feeds b2 and b1 feeds a2: each pair alone is convex, both together are a circle, so the second is left."""
    names = {"a1": (), "b1": (), "a2": ("a1", "b1"), "b2": ("b1", "a1")}
    graph = _graph_of(names)
    pairs = [kernel("a", _joining("a1", "a2")), kernel("b", _joining("b1", "b2"))]
    split = partition(FusionView(graph, (None,) * len(graph.nodes)), pairs, "toy")
    assert by_names(graph, split) == {("a", frozenset({"a1", "a2"}))}
    check_laws(graph, split)


def test_node_that_would_close_a_circle_is_left_out() -> None:
    """a feeds c by way of b, which is no part: a and c cannot be one kernel."""
    graph = _graph_of({"a": (), "b": ("a",), "c": ("a", "b")})
    split = partition(FusionView(graph, (None,) * len(graph.nodes)), [kernel("p", _joining("a", "c"))], "toy")
    assert not split.units
    assert [graph.nodes[node].name for node in split.alone] == ["a", "b", "c"]


def test_pattern_that_is_listed_first_takes_first() -> None:
    graph = _graph_of({"a": (), "b": ("a",), "c": ("b",)})
    rows = [kernel("early", _joining("a", "b")), kernel("late", _joining("b", "c"))]
    split = partition(FusionView(graph, (None,) * len(graph.nodes)), rows, "toy")
    assert by_names(graph, split) == {("early", frozenset({"a", "b"}))}


def test_what_a_filter_cuts_off_is_left_for_other_seeds() -> None:
    """The filter drops the middle: what is no longer connected to the seed is in no unit."""
    graph = _graph_of({"a": (), "b": ("a",), "c": ("b",), "d": ("c",)})

    class Cutting(_Joining):
        def filter(self, nodes: Sequence[Node]) -> Sequence[Node]:
            return [node for node in nodes if node.name != "c"]

    rows = [kernel("p", lambda view, free: Cutting({"a", "b", "c", "d"}))]
    split = partition(FusionView(graph, (None,) * len(graph.nodes)), rows, "toy")
    assert by_names(graph, split) == {("p", frozenset({"a", "b"}))}


def test_uses_and_values_inside_a_unit_are_told() -> None:
    graph = _graph_of({"a": (), "b": ("a",), "c": ("a", "b")})
    formats = frozenset({DType.FLOAT16})
    tight = kernel("p", _joining("a", "b", "c"), Constraint(formats=formats))
    split = partition(FusionView(graph, (None,) * len(graph.nodes)), [tight], "toy")
    columns = graph.columns
    inside = {
        (graph.nodes[node].name, graph.values[value].name)
        for node, value, is_in in zip(
            columns.use_node.tolist(), columns.use_value.tolist(), uses_inside(graph, split).tolist(), strict=True
        )
        if is_in
    }
    assert inside == {("b", "a"), ("c", "a"), ("c", "b")}
    hidden = {
        value.name for value, is_in in zip(graph.values, values_inside(graph, split).tolist(), strict=True) if is_in
    }
    assert hidden == {"a", "b"}
    line = line_of(HIGH, DType.FLOAT16)
    assert kernels_of_units(graph, split, line).takes_apart.sum() == 3
    loose = kernel("p", _joining("a", "b", "c"), Constraint(inside=Inside.FLOAT32, formats=formats))
    split = partition(FusionView(graph, (None,) * len(graph.nodes)), [loose], "toy")
    mixed = kernels_of_units(graph, split, line)
    assert (mixed.takes_apart.sum(), mixed.reads_free.sum()) == (0, 3)


def test_ranks_put_makers_before_readers_and_levels_grow_along_uses() -> None:
    graph = random_graph(random.Random(5), 60)
    ranks, levels = rank_nodes(graph), level_nodes(graph)
    assert sorted(ranks) == list(range(len(graph.nodes)))
    for node in graph.nodes:
        for reader in readers(graph, node.id):
            assert ranks[node.id] < ranks[reader]
            assert levels[node.id] < levels[reader]


@pytest.mark.parametrize("target", _TARGETS)
def test_every_kernel_names_who_says_so(target: str) -> None:
    for row in built_in_targets()[target].fusions:
        assert row.source and row.since, row.pattern
        assert any(character.isdigit() for character in row.since), f"{row.pattern}: since lacks a version"


def test_fusions_that_no_pattern_matches_are_refused_with_what_there_is() -> None:
    def target_of(pattern: str, form: str = "") -> Target:
        return Target(name="npu", summary="", fusions=(Fusion(pattern=pattern, form=form, source="", since=""),))

    with pytest.raises(InputError, match=r"target 'npu' fuses 'conv', which is no pattern; choose one of attention, "):
        kernels_of(target_of("conv"))
    with pytest.raises(InputError, match=r"target 'npu' fuses 'gelu' in form 'own'; choose one of '', 'usual'$"):
        kernels_of(target_of("gelu", "own"))


def test_time_grows_with_the_graph_and_no_faster() -> None:
    """Counts questions instead of seconds: those to a selector per node stay the same."""
    counts = []
    for size in (200, 1600):
        asked = 0

        def ask(view: FusionView, free: Free) -> Greedy:
            return Counting("x")

        class Counting(Greedy):
            def _says(self, *words: str) -> int:
                nonlocal asked
                asked += 1
                return super()._says(*words)

        graph = random_graph(random.Random(1), size)
        partition(FusionView(graph, (None,) * len(graph.nodes)), [kernel("p", ask)], "toy")
        counts.append(asked / size)
    assert counts[1] < 1.5 * counts[0], "eight times the graph, at most half more questions per node"


def _graph_of(names: dict[str, tuple[str, ...]]) -> Graph:
    """A graph of operators with one result each, by name with what they read; the first reads an input."""
    nodes = [_node(0, "in", Kind.INPUT, (), (0,))]
    values = [Value("in", HIGH, 0, 0, 4, True)]
    for number, (name, operands) in enumerate(names.items(), 1):
        inputs = tuple(next(i for i, v in enumerate(values) if v.name == operand) for operand in operands) or (0,)
        nodes.append(_node(number, name, Kind.OP, inputs, (number,)))
        values.append(Value(name, HIGH, number, 0, 4, True))
    return Graph(
        nodes=tuple(nodes),
        values=tuple(values),
        scopes=(Scope(None, None, "", 1),),
        constants={},
        widened=frozenset(),
        aliased=frozenset(),
        forms={},
    )


class _Joining:
    """Joins the nodes of some names."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def select(self, node: Node) -> bool:
        return node.name in self._names

    def select_input(self, node: Node, maker: Node) -> bool:
        return maker.name in self._names

    def select_output(self, node: Node, reader: Node) -> bool:
        return reader.name in self._names

    def filter(self, nodes: Sequence[Node]) -> Sequence[Node]:
        return nodes


def _joining(*names: str) -> Callable[[FusionView, Free], _Joining]:
    return lambda view, free: _Joining(set(names))
