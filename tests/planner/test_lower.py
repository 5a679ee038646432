"""The edits of an assignment, written out: which value changes, which forms are made, who reads which."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

import toy_dialect
from pairs import pair_problem

from mezzo.contracts.plans import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Use
from mezzo.planner.lower import lower

F16 = DType.FLOAT16


def edits(
    graph: Graph, low: str, limits: Mapping[int, float] | None = None, base_outputs: Set[int] = frozenset()
) -> tuple[Edit, ...]:
    """Lower with the nodes named in `low` low."""
    problem = replace(pair_problem(graph, [Choice.FREE] * len(graph.nodes)), base_outputs=frozenset(base_outputs))
    return lower(problem, [int(node.name in low.split()) for node in graph.nodes], limits)


def spelled(found: Iterable[Edit]) -> list[str]:
    """Edits with their kinds: as tuples, a Retype and an AddCopy of one value are alike."""
    return [repr(edit) for edit in found]


def altered(graph: Graph, name: str, **signature: object) -> Graph:
    """The graph with another signature for the node of a name."""
    nodes = tuple(
        node._replace(signature=replace(node.signature, **signature)) if node.name == name else node  # type: ignore[arg-type]
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def holding(graph: Graph, dtype: DType, *values: int) -> Graph:
    held = tuple(v._replace(dtype=dtype) if n in values else v for n, v in enumerate(graph.values))
    return replace(graph, values=held)


SHARED = "in x 8\nconst w 8\na = product x w\nb = product x w\nc = explode w\nout a\nout b\nout c"


def test_nothing_is_edited_where_nothing_runs_low() -> None:
    assert edits(toy_dialect.read(SHARED), "") == ()


def test_weight_is_stored_as_all_its_readers_want_it() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\na = product x w\nout a")
    assert spelled(edits(graph, "a")) == spelled((
        AddCast(0, F16), Rewire(2, 0, 0, F16), Retype(1, F16, None), Retype(2, F16), AddCast(2, HIGH),
        Rewire(3, 0, 2, HIGH),
    ))  # fmt: skip


def test_weight_that_is_read_both_ways_stays_and_is_copied_once() -> None:
    found = edits(toy_dialect.read(SHARED), "a b")
    assert spelled(edit for edit in found if getattr(edit, "value", None) == 1) == spelled([
        AddCopy(1, F16, None), Rewire(2, 1, 1, F16), Rewire(3, 1, 1, F16)
    ])  # fmt: skip
    assert [edit for edit in found if type(edit) is AddCast] == [AddCast(0, F16), AddCast(2, HIGH), AddCast(3, HIGH)]


def test_limit_bounds_what_is_stored_low_alone() -> None:
    found = edits(toy_dialect.read(SHARED), "a b", limits={1: 7.0})
    assert AddCopy(1, F16, 7.0) in found and not any(type(edit) is Retype and edit.value == 1 for edit in found)
    whole = edits(toy_dialect.read(SHARED), "a b c", limits={1: 7.0})
    assert repr(Retype(1, F16, 7.0)) in spelled(whole)
    low = holding(toy_dialect.read(SHARED), F16, 1)
    assert repr(AddCopy(1, HIGH, None)) in spelled(edits(low, "a b", limits={1: 7.0}))


def test_values_stand_in_graph_order() -> None:
    values = [edit.value for edit in edits(toy_dialect.read(SHARED), "a b c") if not isinstance(edit, Rewire)]
    assert values == sorted(values)


def test_use_that_takes_any_dtype_takes_the_value_as_it_comes() -> None:
    graph = altered(toy_dialect.read("in x 8\na = move x\nb = move a\nout b"), "b", inputs=(Role.ANY,))
    assert spelled(edits(graph, "a")) == spelled((AddCast(0, F16), Rewire(1, 0, 0, F16), Retype(1, F16)))


def test_use_of_a_source_that_takes_any_dtype_gets_the_numbers_as_they_are() -> None:
    graph = altered(toy_dialect.read("const w 8\na = move w\nb = move w\nout b"), "b", inputs=(Role.ANY,))
    assert AddCopy(0, F16, None) in edits(graph, "a")
    assert not any(type(edit) is Retype and edit.value == 0 for edit in edits(graph, "a"))


def test_use_of_a_fixed_port_keeps_what_it_reads_today() -> None:
    graph = altered(toy_dialect.read("in x 8\na = move x\nb = move a\nout b"), "b", inputs=(Role.FIXED,))
    assert edits(graph, "a b")[-4:] == (Rewire(2, 0, 1, HIGH), Retype(2, F16), AddCast(2, HIGH), Rewire(3, 0, 2, HIGH))


def test_form_that_the_model_has_is_not_made_again() -> None:
    graph = toy_dialect.read("in x 8\na = move x\nout a")
    assert AddCast(0, F16) in edits(graph, "a")
    assert spelled(edits(replace(graph, forms={(0, F16): None}), "a")) == spelled((
        Rewire(1, 0, 0, F16), Retype(1, F16), AddCast(1, HIGH), Rewire(2, 0, 1, HIGH)
    ))  # fmt: skip


WIDENED = "in x 8\na = move x\nb = move a\nout b"


def test_use_that_read_through_a_cast_is_rewired_to_what_it_wants() -> None:
    """`a` is low already, and `b` reads it through a widening Cast of the model."""
    use = frozenset({Use(2, 0)})
    graph = altered(holding(toy_dialect.read(WIDENED), F16, 0, 1), "a", dtype=F16)
    graph = replace(graph, aliased=use, widened=use, forms={(1, HIGH): None})
    both = [edit for edit in edits(graph, "a b") if isinstance(edit, Rewire) and edit.node == 2]
    assert both == [Rewire(2, 0, 1, F16)]
    one = [edit for edit in edits(graph, "a") if isinstance(edit, Rewire) and edit.node == 2]
    assert one == [Rewire(2, 0, 1, HIGH)]


def test_result_that_is_handed_on_high_is_cast_up_for_all_but_low_readers() -> None:
    graph = toy_dialect.read("in x 8\na = product x x\nb = move a\nc = explode a\nd = move a\nout b\nout c\nout d")
    graph = altered(graph, "d", inputs=(Role.ANY,))
    plain = [edit for edit in edits(graph, "a b") if isinstance(edit, Rewire) and edit.value == 1]
    assert plain == [Rewire(3, 0, 1, HIGH)]
    handed = [e for e in edits(graph, "a b", base_outputs={1}) if isinstance(e, Rewire) and e.value == 1]
    assert handed == [Rewire(3, 0, 1, HIGH), Rewire(4, 0, 1, HIGH)]
    idle = [e for e in edits(graph, "b", base_outputs={1}) if isinstance(e, Rewire) and e.value == 1]
    assert idle == [Rewire(2, 0, 1, F16)]  # `a` runs high: nothing is to be handed on


def test_weight_that_was_read_through_a_cast_is_stored_as_its_readers_want_it() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\na = product x w\nout a")
    use = frozenset({Use(2, 1)})
    found = [edit for edit in edits(replace(graph, aliased=use, widened=use), "a") if getattr(edit, "value", None) == 1]
    assert spelled(found) == spelled([Retype(1, F16, None), Rewire(2, 1, 1, F16)])
    held = [edit for edit in edits(replace(graph, aliased=use), "") if getattr(edit, "value", None) == 1]
    assert held == [Rewire(2, 1, 1, HIGH)]


def narrowed() -> Graph:
    """`c` is a Cast of the model to FP16."""
    graph = toy_dialect.read("in x 8\na = move x\nc = move a\nb = move c\nout b")
    graph = altered(graph, "c", dtype=None, inputs=(Role.ANY,), outputs=(Role.FIXED,))
    nodes = tuple(node._replace(kind=Kind.CAST) if node.name == "c" else node for node in graph.nodes)
    return replace(holding(replace(graph, nodes=nodes), F16, 2), forms={(1, F16): 2})


def test_rounding_cast_of_the_model_stays_where_its_operand_is_high() -> None:
    assert edits(narrowed(), "b") == (Retype(3, F16), AddCast(3, HIGH), Rewire(4, 0, 3, HIGH))
    assert edits(narrowed(), "") == (AddCast(2, HIGH), Rewire(3, 0, 2, HIGH))


def test_rounding_cast_of_the_model_has_nothing_to_do_where_its_operand_is_low() -> None:
    found = edits(narrowed(), "a b")
    assert Rewire(3, 0, 1, F16) in found  # past the Cast
    assert AddCast(2, HIGH) not in found and AddCast(1, HIGH) not in found
    high = edits(narrowed(), "a")
    assert Rewire(3, 0, 1, HIGH) in high and AddCast(1, HIGH) in high


def test_second_cast_to_one_dtype_is_needless_unless_its_rounding_is_wanted() -> None:
    other = replace(narrowed(), forms={(1, F16): None})
    assert Rewire(3, 0, 1, F16) in edits(other, "b")
    assert AddCast(2, HIGH) in edits(other, "")
