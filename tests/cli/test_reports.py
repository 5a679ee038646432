"""What people read: reports of conversions, plans, explanations and tables, whole, as they look in a pipe."""

import json
import platform
import re
from pathlib import Path

import onnx.parser
import pytest

from mezzo.plugins import discovery
from mezzo.tables.ops import dialects, op_facts

# What stands below the first screen, with -v.
CONVERSION = """\
to fp16, policy balanced, strategy mincut, target onnxruntime-cpu

              before    after
nodes in f16       0        1
nodes in f32       9        8
casts added                 2
size          SIZE  SIZE
opset             21       21

8 of 9 nodes stay in f32
rule        nodes  why, and which
layer-norm      7  part of a decomposed layer-norm around 'sqrt': its squares overflow, so it stays together
                   mean, sub, sq and 4 more
softmax         1  loses precision for large inputs, as it takes exponentials of differences
                   sm

notes
  to fp16, for the size alone; --to overrides
  where no data shows it, inputs are taken to hold: 'x' unit scale (-4 to 4); --assume NAME=LO..HI says otherwise
  ONNX Runtime's CPU computes FP16 graphs in FP32: weights take half the space, the speed does not gain.

what runs in which precision
               # f16  . f32                      f16      f32
nodes          ###...........................      1        8
weights        ########################......   32 B      8 B
activations    ###...........................  128 B  1.28 KB
multiply-adds  ##############################    256        0
  2 casts move 768 B in a run
  dimensions that the model leaves open count as 16

1 f32 island
  8 nodes around mean: 2 ReduceMean, Sub, Pow and 4 more kinds
      layer-norm: part of a decomposed layer-norm around 'sqrt': its squares overflow, so it stays together
      mezzo plan layernorm.onnx --policy=aggressive --to fp16
          a bolder policy keeps fewer operators high

try next
  mezzo explain layernorm.onnx mean --to fp16
      why this node stays in f32
  mezzo plan layernorm.onnx --to fp16 --policy aggressive
      how much more a bolder policy runs in f16
"""

PLAN = """\
to fp16, policy balanced, strategy mincut, target any, exclude op:MatMul

              planned
nodes in f16        0
nodes in f32        9
casts added         0

9 of 9 nodes stay in f32
rule        nodes  why, and which
layer-norm      7  part of a decomposed layer-norm around 'sqrt': its squares overflow, so it stays together
                   mean, sub, sq and 4 more
exclude         1  the user asked so with --exclude 'op:MatMul'
                   mm
softmax         1  loses precision for large inputs, as it takes exponentials of differences
                   sm

notes
  to fp16, for the size alone; --to overrides
  where no data shows it, inputs are taken to hold: 'x' unit scale (-4 to 4); --assume NAME=LO..HI says otherwise
  every node stays in f32: the model computes as it did

every node
node      operator    in   rule
input x   input       f32  interface
mm        MatMul      f32  exclude
mean      ReduceMean  f32  layer-norm
sub       Sub         f32  layer-norm
sq        Pow         f32  layer-norm
var       ReduceMean  f32  layer-norm
add       Add         f32  layer-norm
sqrt      Sqrt        f32  layer-norm
div       Div         f32  layer-norm
sm        Softmax     f32  softmax
output y  output      f32  interface

try next
  mezzo explain layernorm.onnx mean --target any --exclude op:MatMul
      why this node stays in f32
  mezzo convert layernorm.onnx layernorm.fp16.onnx --target any --exclude op:MatMul
      convert as planned
"""

EXPLANATION = """\
sub (Sub) runs in f32: part of a decomposed layer-norm around 'sqrt': its squares overflow, so it stays together.
  Rule layer-norm: deny, high whatever its neighbours run in.

how it came about
  1. sub (Sub), f32
     part of a decomposed layer-norm around 'sqrt': its squares overflow, so it stays together (rule layer-norm)
  2. sqrt (Sqrt), f32
     for the same reason

what would change it
  mezzo plan layernorm.onnx --include=sqrt
      asks for f16 in spite of the rule
  mezzo plan layernorm.onnx --include=sub
      asks for f16 in spite of the rule
"""


def test_conversion_is_reported_whole(run, folder):
    ran = run("convert", "layernorm.onnx", "out.onnx", "-v")
    assert (ran.code, ran.err) == (0, "")
    rest = ran.out.partition("\n\n")[2]
    assert re.sub(r"size +\S+ B +\S+ KB", "size          SIZE  SIZE", rest) == CONVERSION
    assert (folder / "out.onnx").exists()


def test_plan_is_reported_whole(run, folder):
    before = sorted(folder.iterdir())
    ran = run("plan", "layernorm.onnx", "--nodes", "-v", "--target", "any", "--exclude", "op:MatMul")
    assert (ran.code, ran.err, ran.out.partition("\n\n")[2]) == (0, "", PLAN)
    assert sorted(folder.iterdir()) == before


def test_explanation_goes_back_to_its_cause(run, folder):
    ran = run("explain", "layernorm.onnx", "sub")
    assert (ran.code, ran.err, ran.out) == (0, "", EXPLANATION)


def test_explanation_of_a_saved_plan_needs_no_model(run, folder):
    assert run("plan", "layernorm.onnx", "--save", "plan.json", "--quiet").out == ""
    (folder / "layernorm.onnx").unlink()
    ran = run("explain", "plan.json", "sub")
    answer, _, change = ran.out.partition("\nwhat would change it\n")
    assert ran.code == 0 and answer == EXPLANATION.partition("\nwhat would change it\n")[0]
    assert change.startswith("  another \"precision\" in the line of 'sub' in plan.json, and --plan plan.json\n")


def test_estimate_is_explained_with_what_it_rests_on(run, folder):
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4,4] x, float[4,4] v) => (float[4,4] y) <float guard = {1e-6}, float back = {1e-5}>
    { [mm] b = MatMul(v, v)  [max] c = Max(b, guard)  [div] d = Div(x, c)  [mul] y = Mul(d, back) }"""
    onnx.save(onnx.parser.parse_model(text), "guarded.onnx")
    ran = run("explain", "guarded.onnx", "mul")
    assert "reads 'd', which may reach 4e+06, past f16's 65504 (rule may-overflow)" in ran.out
    assert "Estimated from assumed input ranges, which 'mezzo plan' notes and --assume changes" in ran.out
    assert "inputs are taken to hold: 'x' unit scale (-4 to 4)" in " ".join(
        run("plan", "guarded.onnx", "-v").out.split()
    )


def test_interface_is_explained_with_the_option_that_changes_it(run, folder):
    ran = run("explain", "layernorm.onnx", "input x")
    assert "x (an input of the model) runs in f32: its type is part of the model's interface.\n" in ran.out
    assert "mezzo plan layernorm.onnx --io=x=fp16" in ran.out


def test_low_node_is_explained_with_the_option_that_keeps_it_high(run, folder):
    ran = run("explain", "layernorm.onnx", "mm")
    assert ran.out.startswith("mm (MatMul) runs in f16: matmuls and convolutions gain most.\n")
    assert "--exclude=mm\n      keeps 'mm' out of f16" in ran.out


def test_converted_model_counts_low_nodes_it_came_with(run, folder):
    assert run("convert", "small.onnx", "once.onnx").code == 0
    ran = run("convert", "once.onnx", "twice.onnx", "-v")
    assert "nodes in f16       1      1\n" in ran.out and "casts added               0\n" in ran.out


def test_plan_that_raises_the_opset_says_so(run, folder):
    ran = run("plan", Path(__file__).parents[2] / "examples/digits/digits.onnx", "--to", "bf16", "-v")
    assert re.search(r"opset +rises to 22", ran.out)


def test_bolder_policy_is_not_suggested_to_who_has_it(run, folder):
    assert "mezzo plan" not in run("convert", "small.onnx", "o.onnx", "--policy", "aggressive", "-v").out


@pytest.mark.parametrize("command", ["policies", "strategies", "targets"])
def test_table_shows_every_row(run, command):
    ran = run(command)
    names = getattr(discovery, command)()
    assert ran.code == 0 and ran.err == ""
    assert all(re.search(rf"^{re.escape(name)}\b", ran.out, re.MULTILINE) for name in names)


def test_ops_shows_every_operator(run):
    shown = {line.split()[0] for line in run("ops", "*").out.splitlines() if line}
    assert all(row.op in shown for dialect in dialects() for row in op_facts(dialect).values())


def test_operators_are_counted_without_a_pattern(run):
    rows = {line.split()[0]: line.split() for line in run("ops").out.splitlines() if line}
    for dialect in dialects():
        assert rows[dialect][1] == str(len(op_facts(dialect)))


def test_ops_of_one_operator_tells_what_policies_make_of_it(run):
    out = run("ops", "Softmax").out
    assert "\nonnx (1 operator)\noperator  cost" in f"\n{out}"
    assert re.search(r"^balanced +fp16 +deny +loses precision for large inputs", out, re.MULTILINE)
    assert "source of the facts: " in out


def test_version_lists_what_mezzo_stands_on(run):
    lines = run("--version").out.splitlines()
    stands_on = ["numpy", "ml_dtypes", "protobuf", "onnx", "onnxruntime", "typer", "rich"]
    assert [line.split()[0] for line in lines][:9] == ["mezzo", platform.python_implementation(), *stands_on]


def test_show_prints_typed_text(run, folder):
    ran = run("show", "small.onnx")
    assert ran.code == 0 and "h: f32[2,2] = MatMul(x, w)" in ran.out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("convert", "small.onnx", "o.onnx"), "account"),
        (("plan", "small.onnx"), "plan"),
        (("explain", "small.onnx", "mm"), "explanation"),
        (("policies",), "policies"),
        (("strategies",), "strategies"),
        (("targets",), "targets"),
        (("ops",), "ops"),
    ],
)
def test_json_is_one_document_with_a_format(run, folder, words, name):
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert document["format"] == f"mezzo-{name}/1"
    assert ran.out.isascii()


def test_json_account_of_a_conversion(run, folder):
    document = json.loads(run("convert", "layernorm.onnx", "o.onnx", "--json").out)
    assert document["command"] == "convert" and document["settings"]["policy"] == "balanced"
    result = {"role": "result", "path": "o.onnx", "size_bytes": (folder / "o.onnx").stat().st_size, "opset": 21}
    assert document["models"][1] == result
    conversion = document["conversion"]
    assert conversion["precisions"] == {"f16": 1, "f32": 8} and conversion["casts"] == 2
    groups = [(group["rule"], group["count"]) for group in conversion["stayed_high"]]
    assert groups == [("layer-norm", 7), ("softmax", 1)] and conversion["stayed_high"][1]["nodes"] == ["sm"]


def test_json_plan_is_a_plan_that_can_be_replayed(run, folder):
    (folder / "plan.json").write_text(run("plan", "small.onnx", "--json").out)
    assert run("convert", "small.onnx", "o.onnx", "--plan", "plan.json", "--quiet").code == 0


def test_quiet_prints_nothing(run, folder):
    for words in (("convert", "small.onnx", "o.onnx"), ("plan", "small.onnx")):
        ran = run(*words, "--quiet")
        assert (ran.code, ran.out, ran.err) == (0, "", "")
