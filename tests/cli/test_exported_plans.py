"""mezzo plan --as, and --from-trtexec of convert and plan."""

import json
from pathlib import Path

import onnx
import pytest

import mezzo


@pytest.fixture
def saved(run, folder):
    """plan.json, of layernorm.onnx."""
    assert run("plan", "layernorm.onnx", "--save", "plan.json", "--quiet").code == 0
    return folder


def test_plan_is_printed_for_a_tool_from_a_model_and_from_a_file_alike(run, saved):
    of_model, of_file = run("plan", "layernorm.onnx", "--as", "nncf"), run("plan", "plan.json", "--as", "nncf")
    assert (of_model.code, of_model.err) == (0, "")
    assert of_model.out == of_file.out == mezzo.export_plan("plan.json", "nncf")
    assert run("plan", "layernorm.onnx", "--plan", "plan.json", "--as", "qnn").out == mezzo.export_plan(
        mezzo.plan("layernorm.onnx", to="fp16"), "qnn"
    )


def test_plan_for_a_tool_is_written_to_a_file_whose_use_is_printed(run, saved):
    ran = run("plan", "plan.json", "--as", "openvino", "--out", "scope.json", "--to-nothing")
    assert ran.code == 2
    assert not Path("scope.json").exists()
    ran = run("plan", "plan.json", "--as", "openvino", "--out", "scope.json")
    assert ran.code == 0
    assert ran.out == (
        "scope.json: ignored_scope for nncf.quantize and nncf.compress_weights\n"
        "for    NNCF 3.4.0, on ONNX models\n"
        "use    ignored_scope=nncf.IgnoredScope(**json.load(open(FILE))['ignored_scope'])\n"
        "notes  in the file: what NNCF cannot express\n"
    )
    assert json.loads(Path("scope.json").read_text())["tool"] == "NNCF"
    assert run("plan", "plan.json", "--as", "nncf", "-o", "b.json", "--quiet").out == ""


ERRORS = [
    (
        ("layernorm.onnx", "--as", "tvm"),
        "exporter 'tvm' is unknown; choose one of aimet, coremltools, genai, modelopt, nncf, qnn, torch-autocast, trt",
    ),
    (
        ("layernorm.onnx", "--out", "x"),
        "--out is for a plan for another tool; give --as TOOL too, or write the plan itself with --save",
    ),
    (
        ("layernorm.onnx", "--plan", "plan.json"),
        "--plan is for a plan for another tool; give --as TOOL too, or write the plan itself with --save",
    ),
    (("plan.json", "--as", "nncf", "--json"), "--as prints what the tool takes, and --json the plan; leave one out"),
    (("plan.json", "--as", "nncf", "--to", "fp16"), "--to decides, and IN is a plan that has decided; leave it out"),
    (
        ("layernorm.onnx", "--plan", "plan.json", "--as", "nncf", "--policy", "off"),
        "--policy decides, and --plan gives a plan that has decided; leave it out",
    ),
    (
        ("plan.json", "--as", "qnn"),
        "QNN goes by the names of values, which a saved plan does not have; give the model, and the plan as --plan",
    ),
]


@pytest.mark.parametrize(("words", "message"), ERRORS)
def test_what_does_not_go_together_is_one_line(run, saved, words, message):
    ran = run("plan", *words)
    assert (ran.code, ran.err) == (2, f"mezzo: {message}\n")
    assert ("--json" in words) == bool(ran.out)  # an error as a document


LINE = "trtexec --onnx=layernorm.onnx --fp16 --layerPrecisions=mm:fp32 --precisionConstraints=obey --saveEngine=e"
NEW = """
TensorRT 11
  trtexec --stronglyTyped --onnx=layernorm.fp16.onnx --saveEngine=e
dropped
  --fp16                       the types in the file decide
  --layerPrecisions=mm:fp32    mezzo's --exclude and --include, in the file
  --precisionConstraints=obey  the types in the file decide
"""


def test_trtexec_line_is_converted_and_the_line_for_tensorrt_11_is_printed(run, folder):
    ran = run("convert", "--from-trtexec", LINE)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("layernorm.onnx -> layernorm.fp16.onnx, to fp16 for tensorrt\n")
    assert ran.out.endswith(NEW)
    same = run("convert", "layernorm.onnx", "same.onnx", "--to", "fp16", "--target", "tensorrt", "--exclude", "mm")
    assert same.code == 0
    assert Path("same.onnx").read_bytes() == Path("layernorm.fp16.onnx").read_bytes()


def test_trtexec_line_is_planned_and_options_of_the_command_win(run, folder):
    assert run("plan", "--from-trtexec", LINE).out.endswith(NEW)
    ran = run("plan", f"--from-trtexec={LINE}", "--to", "bf16", "--target", "any")
    assert ran.out.startswith("plan of layernorm.onnx, to bf16 for any\n")
    assert ran.out.endswith(NEW.replace("layernorm.fp16.onnx", "layernorm.bf16.onnx"))
    assert [path.name for path in folder.glob("*.*16.onnx")] == []


def test_types_of_inputs_and_outputs_become_the_option_io(run, folder):
    line = "trtexec --onnx=layernorm.onnx --fp16 --inputIOFormats=fp16:chw --outputIOFormats=fp32:chw"
    ran = run("convert", "out.onnx", "--from-trtexec", line, "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    graph = onnx.load("out.onnx").graph
    (read,), (made,) = graph.input, graph.output
    types = (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)
    assert (read.type.tensor_type.elem_type, made.type.tensor_type.elem_type) == types


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from-trtexec",), "--from-trtexec lacks its value; write the trtexec line behind it, in quotes"),
        (
            ("--from-trtexec", "trtexec --onnx=layernorm.onnx --fp16 && rm x"),
            "'&&' is no flag of trtexec; write --FLAG or --FLAG=VALUE",
        ),
        (
            ("--from-trtexec", LINE.replace("mm:", "nn:")),
            "--exclude 'nn' matches no node; patterns are globs on node names, or 'op:' and an operator such as"
            " 'op:MatMul'",
        ),
    ],
)
def test_trtexec_line_at_fault_is_one_line_and_nothing_is_written(run, folder, words, message):
    ran = run("convert", *words)
    assert (ran.code, ran.out, ran.err) == (2, "", f"mezzo: {message}\n")
    assert sorted(path.name for path in folder.iterdir()) == ["layernorm.onnx", "small.onnx"]
