"""The probe's parts: a child that survives crashes, questions that leave no operator out, the machine it found."""

import os
import time

import onnx
import onnx.checker
import pytest
from probe.cases import onnx_questions
from probe.children import Child
from probe.contrib_cases import contrib_questions

from mezzo.common.machine import Machine, find_machine
from mezzo.tables.ops import op_facts

# What no question is about, and why. The ONNX project has a test model of every other operator.
CONTROL = {"If", "Loop", "Scan"}
AGGREGATES = {
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence",
}  # fmt: skip
EXPERIMENTAL = {  # in no opset that ONNX still has a schema of
    "Affine", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler", "ParametricSoftplus", "Scale",
    "ScaledTanh", "SimplifiedLayerNormalization",
}  # fmt: skip


def attempt_by_name(model: bytes, feeds: object) -> None:
    """Behave as the word in the place of a model says."""
    match model.decode():
        case "crash":
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "raise":
            raise RuntimeError("Exception from src/a.cpp:7: Check 'x == 1' failed at src/b.cpp:9: Details: no kernel")
        case "raise nothing":
            raise RuntimeError


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("run", None),
        ("raise", "no kernel"),
        ("raise nothing", "RuntimeError"),
        ("crash", "the process crashed (exit code 3)"),
        ("hang", "no answer within 2 s"),
    ],
)
def test_child_answers_and_goes_on(word, answer):
    with Child(attempt_by_name, patience_s=30.0 if word != "hang" else 2.0) as child:
        assert child.ask(word.encode(), None) == answer
        if word != "hang":  # a busy machine may take longer than that to start the next process
            assert child.ask(b"run", None) is None


def test_child_goes_on_after_one_that_hung():
    with Child(attempt_by_name, patience_s=6.0) as child:
        assert child.ask(b"hang", None) == "no answer within 6 s"
        assert child.ask(b"run", None) is None


@pytest.fixture(scope="module")
def questions():
    return list(onnx_questions(max_opset=None))


def test_every_operator_is_asked_about_but_those_listed(questions):
    asked = {question.op for question in questions}
    holds_floats = {
        op
        for op in op_facts("onnx")
        if onnx.defs.has(op) and any("float" in kind for rule in onnx.defs.get_schema(op).type_constraints
                                     for kind in rule.allowed_type_strs)
    }  # fmt: skip
    missing = holds_floats - asked - CONTROL - AGGREGATES - EXPERIMENTAL
    assert not missing


def test_questions_are_valid_models_at_their_version(questions):
    for question in questions[::20]:
        for model, feeds in question.models:
            onnx.checker.check_model(model, full_check=True)
            assert onnx.defs.get_schema(question.op, model.opset_import[0].version).since_version == question.version
            assert set(feeds) <= {port.name for port in model.graph.input}


def test_questions_ask_about_each_version_once_but_the_newest(questions):
    newest = {question.op: question.version for question in sorted(questions, key=lambda question: question.version)}
    old = [(question.op, question.version) for question in questions if question.version != newest[question.op]]
    assert len(old) == len(set(old)) > 100


def test_questions_stop_at_the_newest_opset_a_runtime_loads():
    assert max(model.opset_import[0].version for q in onnx_questions(15) for model, _ in q.models) <= 15


def test_contrib_questions_hold_the_operator_and_a_valid_graph():
    found = {question.op: question for question in contrib_questions()}
    assert {"Attention", "FusedMatMul", "MatMulNBits", "SkipLayerNormalization"} <= found.keys()
    for model, feeds in found["FusedMatMul"].models:
        onnx.checker.check_model(model)
        assert feeds is None and "FusedMatMul" in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("processor : 0\nflags : fpu avx2 avx512_bf16 amx_bf16\n", ("avx2", "avx512_bf16", "amx_bf16")),
        ("Features\t: fp asimd asimdhp bf16\n", ("asimdhp", "bf16")),
        ("model name : avx2 of a sort\n", ()),
    ],
)
def test_machine_features_are_read_from_the_system(tmp_path, text, features):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert find_machine(path).features == features


def test_machine_that_does_not_tell_has_unknown_features(tmp_path):
    machine = find_machine(tmp_path / "missing")
    assert isinstance(machine, Machine) and machine.features is None and machine.architecture
