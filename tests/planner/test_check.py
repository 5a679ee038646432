"""What `check` says of each way to break a rule: the sentence names the node or value, what is held and what is due."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import toy_dialect
from pairs import pair_problem, side_of, with_fields

from mezzo.contracts.plans import AddCast, AddCopy, Edit, Quantize, Retype, Rewire, StoreInBlocks
from mezzo.contracts.problem import Choice, Problem
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Use
from mezzo.planner.check import check
from mezzo.planner.lower import lower

F16, BF16 = DType.FLOAT16, DType.BFLOAT16
TEXT = "in x 8\nconst w 8\nh = product x w\ne = explode h\nout e"
X, W, H, E = range(4)  # values
IN, WEIGHT, PRODUCT, EXPLODE, OUT = range(5)  # nodes


def problem(graph: Graph | None = None, **choices: Choice) -> Problem:
    """The product may run low, all else stays high."""
    graph = toy_dialect.read(TEXT) if graph is None else graph
    found = [Choice.ABSENT if n.kind is Kind.SOURCE else Choice.HIGH for n in graph.nodes]
    found[PRODUCT] = Choice.FREE
    for name, choice in choices.items():
        found[graph.by_name[name]] = choice
    return pair_problem(graph, found)


HIGH_ONLY = [0, 0, 0, 0, 0]
LOW = [0, 0, 1, 0, 0]
EDITS: tuple[Edit, ...] = (
    Retype(W, F16), AddCast(X, F16), Rewire(PRODUCT, 0, X, F16), Retype(H, F16), AddCast(H, HIGH),
    Rewire(EXPLODE, 0, H, HIGH),
)  # fmt: skip


def told(edits: Sequence[Edit], levels: Sequence[int] = LOW, of: Problem | None = None) -> list[str]:
    return check(problem() if of is None else of, levels, edits)


def without(kind: type, value: int) -> list[Edit]:
    return [edit for edit in EDITS if not (type(edit) is kind and edit.value == value)]


def test_what_lower_makes_is_legal() -> None:
    assert set(lower(problem(), LOW)) == set(EDITS)
    assert told(EDITS) == []
    assert told([], HIGH_ONLY) == []


def test_choices_are_kept() -> None:
    held = problem(h=Choice.HIGH)
    assert told(EDITS, of=held) == ["node 'h' (product) runs in f16, but has to stay f32"]
    assert told([], HIGH_ONLY, problem(h=Choice.LOW)) == ["node 'h' (product) runs in f32, but has to be f16"]
    assert told(EDITS, [0, 1, 1, 0, 0]) == []  # what is absent may be said to be anything


def test_schema_is_kept() -> None:
    graph = toy_dialect.read(TEXT)
    signature = replace(graph.nodes[PRODUCT].signature, legal=frozenset({HIGH, BF16}))
    nodes = [*graph.nodes]
    nodes[PRODUCT] = nodes[PRODUCT]._replace(signature=signature)
    words = "node 'h' (product) runs in f16, which its schema does not allow"
    assert told(EDITS, of=problem(replace(graph, nodes=tuple(nodes)))) == [words]


def test_holders_of_a_sequence_agree() -> None:
    graph = toy_dialect.read(TEXT)
    values = [*graph.values]
    values[H] = values[H]._replace(is_castable=False)
    held = problem(replace(graph, values=tuple(values)), e=Choice.FREE)
    words = "nodes 'e' and 'h' share a sequence and have to agree on one dtype"
    cast = "value 'h' is a sequence or optional and cannot be cast"
    assert told(EDITS, of=held) == [words, cast]
    both = [0, 0, 1, 1, 0]
    assert told(lower(held, both), both, held) == []
    choices = side_of(held).choices
    assert words not in told(EDITS, of=with_fields(held, choices=(*choices[:3], Choice.ABSENT, choices[4])))


def test_value_is_noted_as_its_producer_makes_it() -> None:
    assert "value 'h' is noted as f32, but 'h' makes f16" in told(without(Retype, H))
    assert told([*EDITS, Retype(E, F16)]) == [
        "value 'e' is noted as f16, but 'e' makes f32",
        "node 'output e' (out) reads operand 0 in f16 where it needs f32",
    ]


def test_only_a_source_may_be_stored_as_its_readers_like() -> None:
    words = "node 'h' (product) reads operand 1 in f32 where it needs f16"
    assert told([*without(Retype, W), Retype(W, BF16)]) == [words]
    graph = toy_dialect.read(TEXT)
    values = [*graph.values]
    values[W] = values[W]._replace(dtype=DType.INT64)
    signature = replace(graph.nodes[WEIGHT].signature, legal=frozenset({DType.INT64}))
    nodes = [*graph.nodes]
    nodes[WEIGHT] = nodes[WEIGHT]._replace(signature=signature)
    held = problem(replace(graph, nodes=tuple(nodes), values=tuple(values)))
    assert "value 'w' becomes f16, which cannot be: it is i64" in told(EDITS, of=held)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (AddCast(X, F16), "value 'x' is made in f16 twice"),
        (AddCast(X, HIGH), "value 'x' is made in f32 twice"),
        (AddCopy(W, F16), "value 'w' is made in f16 twice"),
        (AddCast(W, HIGH), "value 'w' is cast where it should be the other"),
        (AddCopy(E, F16), "value 'e' is copied where it should be the other"),
        (Rewire(PRODUCT, 0, X, F16), "node 'h' has operand 0 rewired twice"),
        (Rewire(PRODUCT, 1, X, F16), "node 'h' (product) reads operand 1 from 'x', which is another value"),
        (Rewire(OUT, 0, E, F16), "node 'output e' (out) reads operand 0 in f16, a form that nothing makes"),
    ],
)
def test_forms_are_made_once_and_read_where_they_exist(more: Edit, words: str) -> None:
    assert words in told([*EDITS, more])


def test_form_that_the_model_has_needs_nobody_to_make_it() -> None:
    graph = replace(toy_dialect.read(TEXT), forms={(X, F16): None})
    assert told(without(AddCast, X), of=problem(graph)) == []
    words = "node 'h' (product) reads operand 0 in f16, a form that nothing makes"
    assert told(without(AddCast, X)) == [words]


def test_operand_gets_what_its_node_needs() -> None:
    assert told([e for e in EDITS if not (type(e) is Rewire and e.node == PRODUCT)]) == [
        "node 'h' (product) reads operand 0 in f32 where it needs f16"
    ]
    assert told([e for e in EDITS if not (type(e) is Rewire and e.node == EXPLODE)]) == [
        "node 'e' (explode) reads operand 0 in f16 where it needs f32"
    ]
    assert told(without(Retype, W)) == ["node 'h' (product) reads operand 1 in f32 where it needs f16"]


def test_operand_that_takes_any_dtype_gets_any() -> None:
    graph = toy_dialect.read(TEXT)
    nodes = [*graph.nodes]
    nodes[EXPLODE] = nodes[EXPLODE]._replace(signature=replace(nodes[EXPLODE].signature, inputs=(Role.ANY,)))
    held = problem(replace(graph, nodes=tuple(nodes)))
    assert told([e for e in EDITS if not (type(e) is Rewire and e.node == EXPLODE)], of=held) == []


def test_operand_that_read_through_a_widening_cast_still_reads_fp32() -> None:
    graph = toy_dialect.read(TEXT)
    values = [*graph.values]
    values[H] = values[H]._replace(dtype=F16)
    use = frozenset({Use(EXPLODE, 0)})
    held = problem(replace(graph, values=tuple(values), widened=use, aliased=use))
    plain = [e for e in EDITS if not (type(e) is Retype and e.value == H)]
    assert told(plain, of=held) == []
    through_the_cast = [e for e in plain if not (type(e) is Rewire and e.node == EXPLODE)]
    assert told(through_the_cast, of=held) == []
    assert told([*through_the_cast, Rewire(EXPLODE, 0, H, F16)], of=held) == [
        "node 'e' (explode) reads operand 0 in f16 where it needs f32"
    ]


def test_every_fault_is_told() -> None:
    reads = "node 'h' (product) reads operand {} in f32 where it needs f16"
    assert told([]) == ["value 'h' is noted as f32, but 'h' makes f16", reads.format(0), reads.format(1)]
    assert told([], [0, 0, 1, 1, 1]) == [
        "node 'e' (explode) runs in f16, but has to stay f32",
        "node 'output e' (out) runs in f16, but has to stay f32",
        "value 'h' is noted as f32, but 'h' makes f16",
        "value 'e' is noted as f32, but 'e' makes f16",
        reads.format(0),
        reads.format(1),
        "node 'e' (explode) reads operand 0 in f32 where it needs f16",
        "node 'output e' (out) reads operand 0 in f32 where it needs f16",
    ]


def test_edit_of_an_operand_that_is_no_use_is_seen() -> None:
    """A rewire past the last operand of the last node is nobody's, and moves nothing else."""
    graph = toy_dialect.read(TEXT)
    nodes = [*graph.nodes]
    nodes[OUT] = nodes[OUT]._replace(
        inputs=(E, None), signature=replace(nodes[OUT].signature, inputs=(Role.GROUP,) * 2)
    )
    words = ["node 'output e' (out) reads operand 1 from 'e', which is another value"]
    assert told([*EDITS, Rewire(OUT, 1, E, HIGH)], of=problem(replace(graph, nodes=tuple(nodes)))) == words


def test_weights_are_stored_in_blocks_as_asked_once_and_cast_from_there() -> None:
    storage = BlockStorage(bits=4, block=4, axis=0, scale_dtype=F16)
    stored, high = replace(problem(), in_blocks={W: storage}), [0, 0, 0, 0, 0]
    edits = lower(stored, LOW)
    assert set(edits) == {*EDITS, StoreInBlocks(W, storage)} and told(edits, of=stored) == []
    cast = (Retype(W, F16), AddCast(W, HIGH), Rewire(PRODUCT, 1, W, HIGH), StoreInBlocks(W, storage))
    assert lower(stored, high) == cast and told(cast, high, stored) == []
    copied = [AddCopy(W, HIGH) if type(edit) is AddCast else edit for edit in cast]
    assert told(copied, high, stored) == ["value 'w' is copied where it should be the other"]
    assert told(EDITS, of=stored) == ["value 'w' is stored in blocks 0 times"]
    assert told([*edits, StoreInBlocks(W, storage)], of=stored) == ["value 'w' is stored in blocks 2 times"]
    other = StoreInBlocks(W, replace(storage, bits=8))
    assert told([*EDITS, other], of=stored) == ["value 'w' is stored in other blocks than were asked for"]
    assert told([*EDITS, other]) == ["value 'w' is stored in other blocks than were asked for"]
    wide = replace(storage, scale_dtype=HIGH)
    assert told([*EDITS, StoreInBlocks(W, wide)], of=replace(stored, in_blocks={W: wide})) == [
        "value 'w' is noted as f16, but its blocks have scales of f32"
    ]
    how = Quantization(dtype=DType.INT8, scales=(1.0,), zero_points=(0,))
    both = told([*edits, Quantize(W, how, takes_over=False)], of=stored)
    assert "value 'w' is stored in blocks and as integers of a kernel" in both


def test_weights_in_a_low_float_are_read_through_one_cast() -> None:
    stored = replace(problem(), stored_floats={W: F16})
    edits = (Retype(W, F16), AddCast(W, HIGH), Rewire(PRODUCT, 1, W, HIGH))
    assert lower(stored, HIGH_ONLY) == edits and told(edits, HIGH_ONLY, stored) == []
    assert told(edits[:2], HIGH_ONLY, stored)[0] == "'h' reads value 'w' in f16 as it is stored"
    assert told(edits[1:], HIGH_ONLY, stored)[0] == "value 'w' is stored in f32, not in f16"
    copied = [edits[0], AddCopy(W, HIGH), edits[2]]
    assert told(copied, HIGH_ONLY, stored) == ["value 'w' is copied where it should be the other"]
    uncast = [edits[0], edits[2]]
    assert told(uncast, HIGH_ONLY, stored) == ["node 'h' (product) reads operand 1 in f32, a form that nothing makes"]


def test_weights_in_blocks_save_no_bytes_at_a_lower_level() -> None:
    plain = problem()
    stored = replace(plain, in_blocks={W: BlockStorage(bits=4, block=4, axis=0)})
    read, read_stored = plain.elements_moved[0], stored.elements_moved[0]
    assert (read - read_stored).tolist() == [0, 0, 8, 0, 0]  # the product reads the weight's 8 elements
