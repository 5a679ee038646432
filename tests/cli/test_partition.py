"""mezzo partition: a target's kernels for people and as data, parts as models, and every error a user can cause."""

import json
import re

import onnx
import onnx.helper
import onnx.parser
import pytest

import mezzo
from mezzo.onnx.run.session import Engine, native_session

CHAIN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,8,6,6] x) => (float[1,8,6,6] y)
<float[8,8,1,1] w = {WEIGHTS}, float[8] s = {1,1,1,1,1,1,1,1}>
{
   [conv] h = Conv(x, w)
   [bn] n = BatchNormalization(h, s, s, s, s)
   [relu] r = Relu(n)
   [half] q = Cast<to=1>(r)
   [soft] p = Softmax<axis=1>(q)
   [move] y = Transpose<perm=[0,1,3,2]>(p)
}
""".replace("WEIGHTS", ",".join(["1"] * 64))
REPORT = """\
chain.onnx on onnxruntime-cpu
  5 operators in 3 kernels

units by pattern
pattern      units  operators  as                              who says so
convolution      1          3  Conv, BatchNormalization, Relu  optimized graphs at levels EXTENDED (FusedConv) and ALL (nchwc.Conv with a sum) (ONNX Runtime 1.31.1)

the largest
unit  pattern      operators  from  to
   1  convolution          3  conv  relu

alone
  1 Softmax, 1 Transpose
"""  # noqa: E501  as it is printed
BODY = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x, bool c) => (float[2,4] y)
{
   [exp] e = Exp(x)
   [if] z = If (c) <then_branch = t () => (float[2,4] p) { [relu] p = Relu(e) },
                    else_branch = o () => (float[2,4] q) { [sin] q = Sin(e) }>
   [cos] y = Cos(z)
}
"""


@pytest.fixture
def chain(folder):
    onnx.save(onnx.parser.parse_model(CHAIN), "chain.onnx")
    onnx.save(onnx.parser.parse_model(BODY), "body.onnx")
    return folder


def test_report_is_plain_in_a_pipe(run, chain):
    ran = run("partition", "chain.onnx")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == REPORT


def test_every_operator_is_listed_once_with_its_unit(run, chain):
    lines = run("partition", "chain.onnx", "--nodes").out.splitlines()
    listed = [line.split() for line in lines[lines.index("every operator") + 2 :]]
    assert listed == [
        ["1", "convolution", "Conv", "conv"],
        ["1", "convolution", "BatchNormalization", "bn"],
        ["1", "convolution", "Relu", "relu"],
        ["alone", "Softmax", "soft"],
        ["alone", "Transpose", "move"],
    ]


def test_json_has_what_python_has(run, chain):
    document = json.loads(run("partition", "chain.onnx", "--json").out)
    assert document["format"] == "mezzo-partition/1"
    (unit,) = document["partition"]["units"]
    assert unit["pattern"] == "convolution"
    assert (unit["inputs"], unit["outputs"], unit["inside"]) == (["x"], ["r"], "one type")
    split = mezzo.partition("chain.onnx")
    assert [node.name for node in split.units[0].nodes] == ["conv", "bn", "relu"]
    assert split.unit_of["bn"] is split.units[0]
    assert "soft" not in split.unit_of


def test_target_without_patterns_says_so(run, chain):
    out = run("partition", "chain.onnx", "--target", "any").out
    assert "5 operators in 5 kernels" in out
    assert "nothing is known of what it fuses" in out


def test_target_file_fuses_as_its_base(run, chain):
    (chain / "box.toml").write_text('base = "onnxruntime-cpu"\n')
    out = run("partition", "chain.onnx", "--target", "box.toml").out
    assert out.startswith("chain.onnx on box\n  5 operators in 3 kernels, which fuses as onnxruntime-cpu\n")


@pytest.mark.parametrize(
    ("part", "ops", "inputs", "outputs"),
    [
        ("1", ["Conv", "BatchNormalization", "Relu"], ["x"], ["r"]),
        ("bn", ["Conv", "BatchNormalization", "Relu"], ["x"], ["r"]),
        ("soft", ["Softmax"], ["q"], ["p"]),
        ("relu..move", ["Relu", "Cast", "Softmax", "Transpose"], ["n"], ["y"]),
        ("conv..conv", ["Conv"], ["x"], ["h"]),
    ],
)
def test_part_is_a_model_of_its_own(run, chain, part, ops, inputs, outputs):
    ran = run("partition", "chain.onnx", "--extract", part, "-o", "part.onnx")
    assert (ran.code, ran.err) == (0, "")
    model = onnx.load("part.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ops
    assert [port.name for port in model.graph.input] == inputs
    assert [port.name for port in model.graph.output] == outputs
    native_session(model, Engine.ONNXRUNTIME)


def test_parts_of_a_model_give_what_the_model_gives(chain):
    import numpy as np

    first, second = (mezzo.extract("chain.onnx", part, f"{n}.onnx").path for n, part in enumerate(("1", "soft..move")))
    x = np.random.default_rng(3).standard_normal((1, 8, 6, 6)).astype(np.float32)
    whole = native_session(onnx.load("chain.onnx"), Engine.ONNXRUNTIME).run({"x": x})["y"]
    middle = native_session(onnx.load(first), Engine.ONNXRUNTIME).run({"x": x})["r"]
    end = native_session(onnx.load(second), Engine.ONNXRUNTIME).run({"q": middle})["y"]
    np.testing.assert_allclose(end, whole, rtol=0, atol=2.0**-21)  # a few roundings of numbers below one


def test_body_that_reads_from_outside_comes_with_an_input(run, chain):
    assert run("partition", "body.onnx", "--extract", "if", "-o", "part.onnx").code == 0
    model = onnx.load("part.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert {port.name for port in model.graph.input} == {"c", "e"}


def test_quiet_extraction_prints_nothing_and_json_says_what_was_written(run, chain):
    words = ("partition", "chain.onnx", "--extract", "1", "-o", "part.onnx")
    assert run(*words, "--quiet").out == ""
    document = json.loads(run(*words, "--json").out)
    assert document["format"] == "mezzo-extracted/1"
    assert document["extracted"]["outputs"] == ["r"]


ERRORS = [
    (("--target", "toaster"), "--target 'toaster' is unknown; choose one of any, .*"),
    (("--extract", "1"), "--output is missing: .* give both"),
    (("-o", "part.onnx"), "--extract is missing: .* give both"),
    (("--extract", "2", "-o", "part.onnx"), "there is no unit 2; the model has units 1 to 1 for onnxruntime-cpu, .*"),
    (("--extract", "0", "-o", "part.onnx"), "there is no unit 0; .*"),
    (("--extract", "9" * 4000, "-o", "part.onnx"), r"there is no unit 9+\.\.\.9+; .*"),
    (("--extract", "1", "--target", "any", "-o", "p.onnx"), "there is no unit 1; the model has no unit for any, .*"),
    (("--extract", "cnv", "-o", "part.onnx"), "no operator of the model is called 'cnv'; did you mean 'conv'.*"),
    (("--extract", "", "-o", "part.onnx"), "no operator of the model is called ''; .*"),
    (("--extract", "..", "-o", "part.onnx"), "no operator of the model is called ''; .*"),
    (("--extract", "input x", "-o", "part.onnx"), "no operator of the model is called 'input x'; .*"),
    (("--extract", "move..conv", "-o", "p.onnx"), "'move..conv': no path leads from the first node to the second; .*"),
    (("--extract", "1", "-o", "chain.onnx"), ".*chain.onnx.*"),
    (("--extract", "1", "-o", "nowhere/part.onnx"), ".*nowhere.*"),
]


@pytest.mark.parametrize(("words", "message"), ERRORS, ids=[" ".join(words)[:40] for words, _ in ERRORS])
def test_error_is_one_line_and_writes_nothing(run, chain, words, message):
    before = sorted(chain.iterdir()), (chain / "chain.onnx").read_bytes()
    ran = run("partition", "chain.onnx", *words)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(f"mezzo: {message}\n", ran.err)
    assert (sorted(chain.iterdir()), (chain / "chain.onnx").read_bytes()) == before


def test_part_inside_a_body_is_refused(run, chain):
    ran = run("partition", "body.onnx", "--extract", "if/then/relu", "-o", "part.onnx")
    assert ran.code == 2
    assert "is in a subgraph or a function; only parts of the main graph are extracted" in ran.err


def test_value_of_unknown_type_is_refused(run, chain):
    """What an operator of an unknown domain makes has no type, unless the model states it."""
    model = onnx.parser.parse_model(CHAIN)
    model.graph.node[2].domain = "unknown.domain"
    model.graph.node[3].CopyFrom(onnx.helper.make_node("Identity", ["r"], ["q"], "half"))
    model.opset_import.append(onnx.helper.make_opsetid("unknown.domain", 1))
    onnx.save(model, "unknown.onnx")
    ran = run("partition", "unknown.onnx", "--extract", "soft", "-o", "part.onnx")
    assert ran.code == 2
    assert "the type of 'q', which the part reads or gives, is not known" in ran.err


def test_damaged_models_are_refused(run, chain):
    whole = (chain / "chain.onnx").read_bytes()
    (chain / "cut.onnx").write_bytes(whole[:-9])
    (chain / "text.onnx").write_text("no model")
    for name in ("cut.onnx", "text.onnx", "missing.onnx"):
        ran = run("partition", name)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_names_from_a_model_are_escaped(run, chain):
    model = onnx.parser.parse_model(CHAIN)
    for node in model.graph.node:
        node.name = f"\x1b[31m{node.name}\u202e"
    onnx.save(model, "loud.onnx")
    out = run("partition", "loud.onnx", "--nodes").out
    assert "\x1b" not in out
    assert "\\x1b[31mconv\\u202e" in out


def test_model_without_operators_has_no_units(run, chain):
    onnx.save(
        onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] x) {}'), "e.onnx"
    )
    ran = run("partition", "e.onnx")
    assert ran.code == 0
    assert "0 operators in 0 kernels" in ran.out


def test_explain_names_the_kernel(run, chain):
    out = run("explain", "chain.onnx", "relu").out
    assert "Inside one kernel with conv, bn on onnxruntime-cpu (pattern convolution)." in " ".join(out.split())
    assert "Inside one kernel" not in run("explain", "chain.onnx", "soft").out
    unit = json.loads(run("explain", "chain.onnx", "relu", "--json").out)["unit"]
    assert unit["pattern"] == "convolution"


def test_explain_says_where_a_plan_takes_a_kernel_apart(run, chain):
    out = " ".join(run("explain", "chain.onnx", "conv", "--exclude", "relu").out.split())
    assert "; relu in another precision takes it apart." in out


SUM = """<ir_version: 10, opset_import: ["" : 18]>
g (float[2,2] x) => (float[2,2] y)
<float[2,2] w = {1, 2, 3, 4}>
{
   [mm] h = MatMul(x, w)
   [relu] r = Relu(x)
   [sum] s = Add(r, h)
   [mm2] y = MatMul(s, w)
}"""


def test_explain_says_what_costs_nothing_in_fp32(run, chain):
    onnx.save(onnx.parser.parse_model(SUM), "sum.onnx")
    options = ("--to", "bf16", "--target", "openvino-cpu")
    out = " ".join(run("explain", "sum.onnx", "sum", *options).out.split())
    assert (
        "sum (Add) runs in f32: at no cost on openvino-cpu: inside one kernel with 'relu', which computes in f32 "
        "whatever it reads (runtime graphs: a Subgraph of Cast, operators and Cast, in FP32; OpenVINO" in out
    )
    assert "Rule free-in-kernel: allow, the policy wants it in bf16." in out
    document = json.loads(run("explain", "sum.onnx", "sum", *options, "--json").out)
    assert document["chain"][0]["rule"] == "free-in-kernel"
    unit = document["unit"]
    assert (unit["inside"], unit["formats"], unit["is_linked"]) == ("fp32", ["bf16"], False)
    assert (unit["reads_free"], unit["writes_free"]) == (["bf16"], ["bf16"])
    assert "runs in bf16" in run("explain", "sum.onnx", "sum", *options, "--include", "sum").out


def test_target_file_knows_the_kernels_of_its_base(run, chain):
    onnx.save(onnx.parser.parse_model(SUM), "sum.onnx")
    (chain / "box.toml").write_text('base = "openvino-cpu"\n')
    out = run("explain", "sum.onnx", "sum", "--to", "bf16", "--target", "box.toml").out
    assert "Rule free-in-kernel" in out
    assert "free-in-kernel" not in run("explain", "sum.onnx", "sum", "--to", "bf16", "--target", "onnx").out
