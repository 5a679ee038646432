"""A model that runs, and that ONNX's full check faults, is converted and the note says so; an invalid one is not."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from loading import loads

import mezzo
from mezzo.common.errors import ModelError
from mezzo.onnx.edit import checking
from mezzo.onnx.files.files import from_proto
from mezzo.onnx.opening import open_model

_HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
_ONE = "g (float[2,4] x) => (float[2,4] y)"
# What ONNX Runtime runs, with a warning at most.
RUNS = {
    "a value's stale size": _ONE + "<float[3,7] h> { h = Relu(x) y = Neg(h) }",
    "a value's stale rank": _ONE + "<float[3] h> { h = Relu(x) y = Neg(h) }",
    "sizes from before a transposition": "g (float[2,4] x) => (float[2,9] y) <float[2,9] h> "
    "{ h = Transpose<perm=[1,0]>(x) k = Transpose<perm=[1,0]>(h) y = Relu(k) }",
    "an output's rank": "g (float[2,4] x) => (float[2,4,1] y) { h = Relu(x) y = Neg(h) }",
    "an output's size": "g (float[2,4] x) => (float[5,4] y) { h = Relu(x) y = Neg(h) }",
    "a product's size": "g (float[2,4] x) => (float[9,9] y) <float[4,2] w = {1,2,3,4,5,6,7,8}, float[8] h> "
    "{ h = Relu(x) y = MatMul(h, w) }",
    "results of a body": "g (float[2,4] x, bool c) => (float[2,4] y) { y = If (c) <then_branch = t () => "
    "(float[3,4] a) { a = Relu(x) }, else_branch = e () => (float[2,5] b) { b = Neg(x) }> }",
}
# What no runtime loads.
INVALID = {
    "operands that do not fit": "g (float[2,4] x, float[3,4] z) => (float[N,M] y) { y = MatMul(x, z) }",
    "parts that do not fit": "g (float[2,4] x, float[3,4] z) => (float[N,M] y) { y = Concat<axis=1>(x, z) }",
    "a type that is another": "g (float[2,4] x) => (int64[2,4] y) { y = Relu(x) }",
}


def _parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + text)


def _fails_full_check(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return True
    return False


@pytest.mark.parametrize("to", ["fp16", "bf16"])
@pytest.mark.parametrize("case", RUNS)
def test_model_that_runs_is_converted_with_a_note(case: str, to: str) -> None:
    model = _parse(RUNS[case])
    assert _fails_full_check(model) and loads(model)
    made = mezzo.convert(model, to=to, policy="aggressive")
    notes = [note for note in made.summary.notes if note.startswith("ONNX's full check faults the model as it came")]
    assert len(notes) == 1 and "held to the full check without the shapes that the model declares" in notes[0]
    assert made.summary.low_nodes
    onnx.checker.check_model(made.model)
    assert to == "bf16" or loads(made.model)  # no CPU runs BF16 in ONNX Runtime
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    feeds |= {"c": np.array(True)} if any(port.name == "c" for port in model.graph.input) else {}
    assert mezzo.compare(model, made.model, feeds, max_error=0.1).verdict.is_same


@pytest.mark.parametrize("to", ["fp16", "bf16"])
@pytest.mark.parametrize("what", ["a shape", "a name"])
def test_model_without_what_no_runtime_wants_is_converted(what: str, to: str) -> None:
    model = _parse(_ONE + "{ h = Relu(x) y = Neg(h) }")
    if what == "a shape":
        model.graph.output[0].type.tensor_type.ClearField("shape")
    else:
        model.graph.name = ""
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    assert loads(model)
    made = mezzo.convert(model, to=to, policy="aggressive")
    assert made.summary.low_nodes and "ONNX's full check faults the model as it came" in made.summary.notes[-1]
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    assert mezzo.compare(model, made.model, feeds, max_error=0.1).verdict.is_same


@pytest.mark.parametrize("case", INVALID)
def test_invalid_model_is_refused(case: str) -> None:
    model = _parse(INVALID[case])
    assert not loads(model)
    with pytest.raises(ModelError, match=r"the model is not valid ONNX: .*; mend the model first"):
        mezzo.convert(model)


def test_model_that_only_the_runtime_vouches_for_is_held_to_the_plain_check(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _parse(INVALID["operands that do not fit"])
    monkeypatch.setattr(checking, "_loads", lambda *_: True)  # no model is known that both refuse and one runs
    made = mezzo.convert(model, policy="aggressive")
    assert made.summary.low_nodes and "held to the check without shape inference" in made.summary.notes[-1]


def test_result_is_held_to_what_its_source_passes() -> None:
    """Beside the stale shape the result has a fault of its own: that one counts."""
    model = _parse(RUNS["a value's stale size"])
    opened = open_model(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.node[1].op_type = "Not"
    assert opened.find_fault(model) is None
    assert "Not" in (opened.find_fault(result) or "")


def test_replayed_plan_says_it_once() -> None:
    model = _parse(RUNS["an output's rank"])
    made = mezzo.convert(model, policy="aggressive")
    again = mezzo.convert(model, plan=made.plan)
    assert again.plan.notes == made.plan.notes


def test_sound_model_passes_in_full() -> None:
    source = from_proto(_parse(_ONE + "{ h = Relu(x) y = Neg(h) }"))
    assert checking.stand(source, may_crash=False) == checking.OnnxValidity(checking.Strictness.FULL, None)


@pytest.mark.parametrize("where", ["graph", "body"])
def test_output_without_a_type_is_given_the_one_that_it_has(where: str) -> None:
    model = _parse(RUNS["results of a body"].replace("3,4", "2,4").replace("2,5", "2,4"))
    bodies = [attribute.g for attribute in model.graph.node[0].attribute]
    for graph in [model.graph] if where == "graph" else bodies:
        graph.output[0].ClearField("type")
    assert loads(model)
    made = mezzo.convert(model, to="fp16", policy="aggressive")
    onnx.checker.check_model(made.model, full_check=True)
    assert made.model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert {body.output[0].type.tensor_type.elem_type for body in _bodies(made.model)} == {onnx.TensorProto.FLOAT16}


def _bodies(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    return [a.g for node in model.graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


@pytest.mark.parametrize("element", ["double", "bfloat16"])
def test_model_of_other_floats_is_called_what_it_is(element: str) -> None:
    model = _parse(f"g ({element}[2,4] x) => ({element}[2,4] y) {{ h = Relu(x) y = Neg(h) }}")
    made = mezzo.convert(model, to="fp16")
    held = {"double": "f64", "bfloat16": "bf16"}[element]
    text = (
        f'the model came with 2 nodes in {held} and none in f32; convert it with to="fp32" first, or export it in f32'
    )
    assert (text if held != "f64" else text.replace('convert it with to="fp32" first, or ', "")) in repr(made)
    assert "computes no floats" not in repr(made) and "every node stays" not in repr(made)
    assert "no node computes in f32: the model computes as it did" in made.summary.notes


def test_other_floats_inside_a_model_are_counted() -> None:
    text = _ONE + "{ h = Relu(x) d = Cast<to=11>(h) [wide] e = Neg(d) f = Cast<to=1>(e) y = Neg(f) }"
    made = mezzo.convert(_parse(text), to="fp16", policy="aggressive")
    assert "2 of 2 nodes in f16, 1 in f64 as it came" in repr(made)


def _file_of_spoilt_name(folder: Path, text: str) -> Path:
    """A file whose graph is named in bytes that are no UTF-8, which protobuf reads and hands out as an error."""
    model = _parse(text)
    model.graph.name = "NAME"
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString().replace(b"NAME", b"\xff\xfe\xfd\xfc"))
    return path


def test_graph_whose_name_is_no_text_stands_like_one_without(tmp_path: Path) -> None:
    assert open_model(_file_of_spoilt_name(tmp_path, _ONE + "{ h = Relu(x) y = Neg(h) }")).standing.is_valid
    with pytest.raises(ModelError, match="is not valid ONNX: Unrecognized attribute: nothing for operator Neg"):
        mezzo.convert(_file_of_spoilt_name(tmp_path, _ONE + "{ h = Relu(x) y = Neg<nothing=1>(h) }"))
