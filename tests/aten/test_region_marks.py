"""Marks of regions, as a reader finds them on nodes: no PyTorch is needed for it."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mezzo.aten.marks import KEY, Mark, mark_of, mark_within, marks_in, spell_around
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType

_KEPT, _BF16, _FP16 = Mark(None, is_exact=True), Mark(DType.BFLOAT16), Mark(DType.FLOAT16)


def _meta(word: str | None) -> dict[str, object]:
    return {"val": 1} if word is None else {"custom": {"another's": 2, KEY: word}}


@pytest.mark.parametrize(
    ("meta", "mark"),
    [
        ({}, None),
        ({"custom": None}, None),
        ({"custom": {"another's": "keep"}}, None),
        (_meta("keep"), _KEPT),
        (_meta("bf16"), _BF16),
        (_meta("fp16"), _FP16),
        (_meta("fp32"), Mark(DType.FLOAT32)),
        (_meta("around 3 keep"), _KEPT),
    ],
)
def test_mark_of_a_node_is_its_word(meta: dict[str, object], mark: Mark | None) -> None:
    assert mark_of(meta) == mark


@pytest.mark.parametrize("word", ["", "int8", "around keep", "around 1", "around -1 keep", "keep keep"])
def test_word_that_no_region_writes_is_refused(word: str) -> None:
    with pytest.raises(InputError, match=f"^the region of a node is '{word.removeprefix('around 1 ')}'; .*bf16, fp32$"):
        mark_of(_meta(word))


@pytest.mark.parametrize(
    ("word", "around", "depth", "mark"),
    [
        (None, None, 1, None),
        (None, _KEPT, 1, _KEPT),
        ("bf16", _KEPT, 1, _BF16),
        ("around 0 keep", _KEPT, 1, _KEPT),
        ("around 0 keep", _BF16, 1, _BF16),  # traced for another caller
        ("around 0 keep", None, 1, None),  # traced for another caller, and this one is in no region
        ("around 1 fp16", None, 1, _FP16),
        ("around 1 fp16", _KEPT, 1, _FP16),
        ("around 1 fp16", Mark(None, depth=1), 2, Mark(None)),
        ("around 2 fp16", Mark(None, depth=1), 2, _FP16),
        ("around 2 fp16", Mark(None, depth=1), 1, _FP16),  # what was around both has become part of the graph
    ],
)
def test_own_region_of_a_body_is_told_from_its_callers(
    word: str | None, around: Mark | None, depth: int, mark: Mark | None
) -> None:
    assert mark_within(_meta(word), around, depth) == mark


def _node(op: str, word: str | None, *operands: Any, target: str = "") -> Any:
    return SimpleNamespace(op=op, meta=_meta(word), target=target, all_input_nodes=list(operands))


def _graph(*nodes: Any, **bodies: Any) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(nodes=nodes), **bodies)


def _calling(first: str | None, second: str | None, inside: str | None) -> Any:
    """Two calls of one body."""
    body = _graph(_node("call_function", inside), _node("call_function", spell_around("keep", "0")))
    one, two = _node("get_attr", first, target="body"), _node("get_attr", second, target="body")
    return _graph(one, _node("call_function", first, one), two, _node("call_function", second, two), body=body)


def test_a_body_is_told_once_for_each_caller() -> None:
    graph = _calling("around 0 keep", "around 0 bf16", None)
    told = [(body, mark) for body, _, mark in marks_in(graph)]
    assert told == [
        ((), _KEPT), ((), _KEPT), (("body",), _KEPT), (("body",), _KEPT),
        ((), _BF16), ((), _BF16), (("body",), _BF16), (("body",), _BF16),
    ]  # fmt: skip


def test_module_that_is_called_is_a_body() -> None:
    graph = _graph(
        _node("call_module", "keep", target="part.inner"), part=_graph(inner=_graph(_node("call_function", None)))
    )
    assert [mark for *_, mark in marks_in(graph)] == [_KEPT, _KEPT]


def test_operand_that_is_no_graph_is_no_body() -> None:
    weight = _node("get_attr", None, target="weight")
    assert len(list(marks_in(_graph(weight, _node("call_function", "keep", weight), weight=3)))) == 2


def _marks(graph: Any) -> list[tuple[tuple[str, ...], Mark | None]]:
    return [(body, mark) for body, _, mark in marks_in(graph)]


def test_marks_differ_wherever_they_stand() -> None:
    graphs = [
        _calling(None, None, None),
        _calling("around 0 keep", None, None),
        _calling(None, "around 0 keep", None),
        _calling(None, None, "keep"),
        _calling("around 0 keep", "around 0 keep", "bf16"),
        _calling("around 0 keep", "around 0 keep", "fp16"),
    ]
    assert len({tuple(_marks(graph)) for graph in graphs}) == len(graphs)
    assert _marks(_calling("keep", "keep", None)) == _marks(_calling("around 0 keep", "keep", "keep"))


def test_marks_are_read_without_pytorch() -> None:
    code = "import sys, mezzo.aten.marks; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
