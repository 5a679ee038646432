"""mezzo diff: what differs between two saved plans, for people, as data and as an exit code."""

import json
from dataclasses import replace

import pytest

from mezzo.contracts.corrections import Correction
from mezzo.formats.block_storage import BlockForm, BlockStorage
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.io.planfile import load_plan, save_plan
from mezzo.report.views.plandiff import Change, compare_plans

REPORT = """\
a.json <-> b.json
different: 1 node in another precision, 1 setting

              first  second
nodes in f16      1       0
nodes in f32      8       9

settings
         first  second
exclude  []     ["op:MatMul"]

1 node in another precision
node  operator  first       second
mm    MatMul    f16 linear  f32 exclude
"""


@pytest.fixture
def plans(run, folder):
    """a.json and b.json: the second keeps MatMul in FP32."""
    assert run("plan", "layernorm.onnx", "--save", "a.json", "--quiet").code == 0
    assert run("plan", "layernorm.onnx", "--save", "b.json", "--quiet", "--exclude", "op:MatMul").code == 0
    return folder


def test_difference_is_reported_whole(run, plans):
    ran = run("diff", "a.json", "b.json")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == REPORT


def test_plan_diff_is_the_same_command(run, plans):
    assert run("plan", "diff", "a.json", "b.json") == run("diff", "a.json", "b.json")


def test_same_plans_give_exit_code_0(run, plans):
    ran = run("diff", "a.json", "a.json")
    assert (ran.code, ran.out) == (0, "a.json <-> a.json\nthe same: every node, reason, setting and parameter\n")
    assert run("diff", "a.json", "a.json", "--model", "layernorm.onnx").code == 0


def test_casts_are_told_where_the_model_is_given(run, plans):
    out = run("diff", "a.json", "b.json", "--model", "layernorm.onnx").out
    assert "casts added       2       0\n" in out
    assert "2 casts only in a.json\n  x to f16\n  h to f32\n" in out


def test_difference_as_data_has_both_lines_of_a_node(run, plans):
    ran = run("diff", "a.json", "b.json", "--model", "layernorm.onnx", "--json")
    document = json.loads(ran.out)
    assert (ran.code, document["format"], document["is_same"]) == (1, "mezzo-plan-diff/1", False)
    node = document["nodes"][0]
    assert (node["name"], node["change"]) == ("mm", "precision")
    assert (node["first"]["rule"], node["second"]["rule"]) == ("linear", "exclude")
    assert document["casts"]["only_first"] == [{"value": "x", "to": "f16"}, {"value": "h", "to": "f32"}]


def test_reasons_and_lines_of_one_plan_only_are_differences(run, plans):
    first = load_plan("a.json")
    nodes = [node._replace(because="by hand") if node.name == "sm" else node for node in first.nodes]
    found = compare_plans(first, first.with_nodes([*nodes[:-1], nodes[-1]._replace(name="other")]))
    told = {node.name: node.change for node in found.nodes}
    assert told == {"sm": Change.REASON, "output y": Change.ONLY_FIRST, "other": Change.ONLY_SECOND}
    assert not found.is_same and not found.settings and found.casts is None


def test_parameters_of_integers_are_differences(run, plans):
    """Scales, dynamic quantization, corrections and blocks are decisions too, though no line of a node has them."""
    first = load_plan("a.json")
    scale = Quantization(dtype=DType.INT8, scales=(0.5,), zero_points=(0,))
    by_channel = replace(scale, scales=(0.5, 0.25), zero_points=(0, 0), axis=0)
    blocks = BlockStorage(bits=4, block=32, axis=0)
    second = replace(
        first, quantized=(("x", scale), ("w", by_channel)), dynamic=("mm",), in_blocks=(("weight v", blocks),),
        corrected=(Correction(value="w", axis=0, factors=(2.0, 1.0)),),
    )  # fmt: skip
    found = compare_plans(first, second)
    assert not found.is_same and not found.nodes
    assert [(row.name, row.first) for row in found.parameters] == [
        ("x", None), ("w", None), ("mm", None), ("w before quantization", None), ("weight v", None)
    ]  # fmt: skip
    assert found.parameters[0].second == "i8, scale 0.5, zero point 0"
    assert found.parameters[-1].second == "4 bits, blocks of 32 along axis 0, asymmetric, f32 scales, nearest"
    fused = replace(second, in_blocks=(("weight v", replace(blocks, form=BlockForm.FUSED, accuracy_level=4)),))
    assert [row.second for row in compare_plans(second, fused).parameters] == [
        "4 bits, blocks of 32 along axis 0, asymmetric, f32 scales, nearest, fused, accuracy level 4"
    ]
    other = replace(second, quantized=(("x", scale), ("w", replace(by_channel, scales=(0.5, 0.125)))))
    assert [row.name for row in compare_plans(second, other).parameters] == ["w"]
    save_plan(second, "c.json")
    out = run("diff", "a.json", "c.json").out
    assert "different: 5 parameters\n" in out and "x                      -      i8, scale 0.5, zero point 0\n" in out


def test_many_nodes_are_counted_past_the_first(run, plans):
    assert run("plan", "layernorm.onnx", "--save", "c.json", "--quiet", "--policy", "aggressive").code == 0
    out = run("diff", "a.json", "c.json", "--top", "3").out
    assert "and 5 more; --top shows them\n" in out


def test_plans_of_two_models_differ_and_say_so(run, plans):
    assert run("plan", "small.onnx", "--save", "s.json", "--quiet").code == 0
    ran = run("diff", "a.json", "s.json")
    assert ran.code == 1 and "they are of models whose structures differ" in ran.out


def test_a_file_that_is_no_plan_is_bad_input(run, plans):
    (plans / "no.json").write_text("{}")
    ran = run("diff", "a.json", "no.json")
    assert ran.code == 2 and ran.err.startswith("mezzo: plan 'no.json' has format None, wanted 'mezzo-plan/1'")


def test_quiet_answers_with_the_exit_code_alone(run, plans):
    ran = run("diff", "a.json", "b.json", "--quiet")
    assert (ran.code, ran.out, ran.err) == (1, "", "")


def test_plan_of_three_levels_is_compared_and_explained_and_not_replayed(run, plans):
    """What reads plans alone takes any levels; in a model each converts into FP32."""
    document = json.loads((plans / "a.json").read_text())
    document["levels"] = ["bf16", "f16", "f32"]
    for node in document["nodes"]:
        if node["op"] == "MatMul":
            node["precision"] = "bf16"
    (plans / "c.json").write_text(json.dumps(document))
    ran = run("diff", "a.json", "c.json")
    assert (ran.code, ran.err) == (1, "")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["nodes", "in", "bf16", "0", "1"] in rows and ["nodes", "in", "f16", "1", "0"] in rows
    assert ["levels", "-", "bf16,", "f16,", "f32"] in rows
    ran = run("explain", "c.json", "mm")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("mm (MatMul) runs in bf16") and "the policy wants it in bf16" in ran.out
    said = (
        "mezzo: the plan has levels bf16, f16, f32, and a model takes f32 with one of fp16, bf16, int8, fp8, fp8-e5m2, "
        "or between two, one of them fp16 or bf16; make a new plan with 'mezzo plan'\n"
    )
    for words in (
        ("convert", "layernorm.onnx", "out.onnx", "--plan", "c.json"),
        ("explain", "c.json", "mm", "--to", "fp16"),
    ):
        ran = run(*words)
        assert (ran.code, ran.out, ran.err) == (2, "", said)
    assert not (plans / "out.onnx").exists()
