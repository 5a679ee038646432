"""Methods of results: what `mezzo.convert` gives is saved, drawn, explained and compared without naming it again."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.plans import Explanation
from mezzo.report.html.page import MARK

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
{
   [mm] h = MatMul(x, w)
   [relu] r = Relu(h)
   [sm] y = Softmax<axis=-1>(r)
}
"""
DATA = {"x": np.random.default_rng(0).normal(0, 1, (64, 4)).astype(np.float32)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    # A weight that stays in the file.
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "big"))
    model.graph.node.append(onnx.helper.make_node("MatMul", ["big", "big"], ["z"], name="large"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [64, 64]))
    onnx.save(model, path)
    return path


def test_saved_result_is_the_file_that_convert_writes(source: Path) -> None:
    written = source.with_name("written.onnx")
    result = mezzo.convert(source, written, to="bf16")
    in_memory = mezzo.convert(source, to="bf16")
    for saved in (result.save(source.with_name("a.onnx")), in_memory.save(source.with_name("b.onnx"))):
        assert saved.read_bytes() == written.read_bytes()


def test_result_of_a_model_in_memory_is_saved(tmp_path: Path) -> None:
    result = mezzo.convert(onnx.parser.parse_model(TEXT), to="bf16")
    assert onnx.load(result.save(tmp_path / "saved.onnx")) == result.model


def test_result_is_not_saved_over_its_source_unless_asked(source: Path) -> None:
    before = source.read_bytes()
    result = mezzo.convert(source, to="bf16")
    with pytest.raises(mezzo.InputError) as caught:
        result.save(source)
    assert str(caught.value) == f"{str(source)!r} belongs to the input model; name another file, or pass overwrite=True"
    assert source.read_bytes() == before
    result.save(source, overwrite=True)
    assert onnx.load(source) == result.model


def test_source_that_changed_is_not_mixed_into_the_result(source: Path) -> None:
    onnx.save(onnx.load(source), source, save_as_external_data=True, location="model.data")
    result = mezzo.convert(source, source.with_name("out.onnx"), to="bf16")
    assert result._opened is not None
    result._opened.source.blobs.close()  # type: ignore[attr-defined]  # as after many other files
    os.utime(source.with_name("model.data"), ns=(0, 0))
    with pytest.raises(mezzo.InputError, match="changed while it was in use; read the model again"):
        result.save(source.with_name("saved.onnx"))
    assert not source.with_name("saved.onnx").exists()


def test_report_is_a_page_and_replaces_nothing_else(source: Path) -> None:
    result = mezzo.convert(source, to="bf16")
    page, other = source.with_name("page.html"), source.with_name("notes.txt")
    for _ in range(2):  # a page may be written again
        assert result.report(page) == page and page.read_text().startswith(MARK)
    other.write_text("mine")
    with pytest.raises(mezzo.InputError) as caught:
        result.report(other)
    assert str(caught.value) == (
        f"report {str(other)!r} exists and is no report of mezzo's; give another name or remove it"
    )
    assert other.read_text() == "mine"


def test_result_is_compared_with_its_source(source: Path) -> None:
    written = source.with_name("written.onnx")
    for result in (mezzo.convert(source, written, to="bf16"), mezzo.convert(source, to="bf16")):
        assert result.compare(DATA).verdict.is_same
    assert not result.compare(DATA, max_error=1e-9).verdict.is_same
    in_memory = mezzo.convert(onnx.parser.parse_model(TEXT), to="bf16")
    assert in_memory.compare(DATA).verdict.is_same


def test_comparison_is_a_page_with_the_graph_of_files(source: Path) -> None:
    written = source.with_name("written.onnx")
    page = source.with_name("page.html")
    sizes = []
    for result in (mezzo.convert(source, written, to="bf16"), mezzo.convert(source, to="bf16")):
        comparison = result.compare(DATA)
        assert comparison.report(page) == page and page.read_text().startswith(MARK)
        sizes.append(page.stat().st_size)
    assert sizes[0] > sizes[1]
    written.write_text("mine")
    with pytest.raises(mezzo.InputError, match="exists and is no report of mezzo's"):
        comparison.report(written)


def test_result_in_the_place_of_its_source_is_not_compared_with_itself(source: Path) -> None:
    result = mezzo.convert(source, source, to="bf16", overwrite=True)
    with pytest.raises(mezzo.InputError) as caught:
        result.compare(DATA)
    assert str(caught.value) == (
        f"{str(source)!r} replaced its source model, so nothing is left to compare it with; convert to another file"
    )


def test_plan_is_saved_by_itself(source: Path) -> None:
    plan = mezzo.convert(source, to="bf16").plan
    plan.save(source.with_name("plan.json"))
    saved = mezzo.load_plan(source.with_name("plan.json"))
    assert (saved.nodes, saved.settings, saved.fingerprint) == (plan.nodes, plan.settings, plan.fingerprint)


EXPLAINED = """\
sm (Softmax) runs in f32: {softmax}.
  Rule softmax: deny, high whatever its neighbours run in.

what would change it
  include=['sm']
      asks for bf16 in spite of the rule"""
FOLLOWS = """\
relu (Relu) runs in f32 because mm (MatMul) does: the user asked so with --exclude 'mm'.
  Rule follows: allow, the policy wants it in bf16.

how it came about
  1. relu (Relu), f32
     follows 'mm', its neighbour in f32: fewest bytes cast (rule follows)
  2. mm (MatMul), f32
     the user asked so with --exclude 'mm' (rule exclude)

what would change it
  without that exclude
      lets the policy decide about 'mm'
  include=['relu']
      asks for bf16 in spite of the rule"""
ASKED = """\
mm (MatMul) runs in f32: the user asked so with --exclude 'mm'.
  Rule exclude: deny, high whatever its neighbours run in.

what would change it
  without that exclude
      lets the policy decide about 'mm'"""
PORT = """\
input x (an input of the model) runs in f32: its type is part of the model's interface.
  Rule interface.

what would change it
  io={'x': 'bf16'}
      changes the dtype of 'x'"""


@pytest.fixture(scope="module")
def explained() -> Callable[[str], Explanation]:
    return mezzo.convert(onnx.parser.parse_model(TEXT), to="bf16", exclude=["mm"]).explain


def test_explanation_prints_as_the_command_with_keywords(
    explained: Callable[[str], Explanation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    because = explained("sm").nodes[0].because
    assert repr(explained("sm")) == EXPLAINED.format(softmax=because)
    assert str(explained("mm")) == ASKED
    assert str(explained("relu")) == FOLLOWS
    assert str(explained("input x")) == PORT
    assert [len(chain) for chain in explained("*").chains] == [1, 2, 1] and "pattern *: 3 nodes" in str(explained("*"))


@pytest.mark.parametrize("word", ["sm", "input x"])
def test_keyword_that_an_explanation_names_changes_the_node(explained: Callable[[str], Explanation], word: str) -> None:
    explanation = explained(word)
    ((keyword, _),) = explanation.changes
    options = eval(f"dict({keyword})")  # what the explanation says to type
    changed = mezzo.plan(onnx.parser.parse_model(TEXT), to="bf16", exclude=["mm"], **options)
    name = explanation.nodes[0].name
    assert changed.by_name[name].precision != explanation.nodes[0].precision


def test_word_that_matches_nothing_is_one_line(
    explained: Callable[[str], Explanation],
) -> None:
    with pytest.raises(mezzo.InputError) as caught:
        explained("nosuch")
    assert str(caught.value) == (
        "no node, value, operator or module 'nosuch' computes floats in this model; 'mezzo.plan(model).nodes' lists "
        "what there is"
    )
