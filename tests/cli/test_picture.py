"""The picture that a conversion ends with: figures that add up, islands with reasons, commands that free them."""

import re
import shlex

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from command_lines import DIGITS
from model_texts import LAYER_NORM

import mezzo

CONVOLUTION = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3,8,8] x) => (float[2,10] y)
<int64[2] shape = {2,-1}>
{
   [conv] c = Conv<pads=[1,1,1,1], strides=[2,2]>(x, k)
   [relu] r = Relu(c)
   [flat] f = Reshape(r, shape)
   [gemm] y = Gemm(f, w, b)
}
"""
# Two heads that end in a Softmax each, and a CumSum, which no schema has in FP16 before opset 14.
TWO_HEADS = """
<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x) => (float[N,4] a, float[N,4] b, float[N,4] c)
<float[4,4] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8}, int64 axis = {1}>
{
   [m1] h = MatMul(x, w)
   [s1] a = Softmax<axis=-1>(h)
   [m2] k = MatMul(h, w)
   [s2] b = Softmax<axis=-1>(k)
   [sum] t = CumSum(k, axis)
   [m3] c = MatMul(t, w)
}
"""


def save(text: str, path: str, **weights: tuple[int, ...]) -> None:
    """Save a model, with weights of these shapes beside those of the text."""
    model = onnx.parser.parse_model(text)
    for name, shape in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, 0.5, np.float32), name))
    onnx.save(model, path)


def test_figures_of_a_convolution_are_those_worked_out_by_hand(folder):
    save(CONVOLUTION, "model.onnx", k=(4, 3, 3, 3), w=(64, 10), b=(10,))
    picture = mezzo.convert("model.onnx", policy="aggressive", io="low").picture
    low, high = picture.shares
    assert (low.nodes, high.nodes, picture.casts) == (4, 0, 0)
    assert low.weights_bytes == 2 * (4 * 3 * 9 + 64 * 10 + 10)
    assert low.activations_bytes == 2 * (3 * 2 * 4 * 4 * 4 + 2 * 10)
    assert low.multiply_adds == 2 * 4 * 4 * 4 * 27 + 2 * 10 * 64
    assert (picture.uncounted, picture.is_nominal, picture.islands) == (0, False, ())


def test_shares_cover_every_operator_whatever_its_precision(folder):
    result = mezzo.convert(DIGITS)
    low, high = result.picture.shares
    assert (low.nodes, high.nodes) == (result.summary.low_nodes, result.summary.high_nodes)
    assert result.picture.casts == result.summary.casts
    assert sum(len(island.nodes) * island.alike for island in result.picture.islands) == high.nodes


def test_islands_are_what_hangs_together_and_those_alike_are_told_once(folder):
    save(TWO_HEADS, "heads.onnx")
    islands = mezzo.convert("heads.onnx", opset="keep").picture.islands
    told = [([node.name for node in island.nodes], island.alike, island.rule) for island in islands]
    assert told == [(["s1"], 2, "softmax"), (["sum"], 1, "position")]


def commands_under_islands(out: str) -> list[str]:
    section = re.split(r"\n\d+ f32 islands?", out)[1].partition("\ntry next")[0]
    return re.findall(r"^      (mezzo plan .*)$", section, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (LAYER_NORM, ()),
        (LAYER_NORM, ("--policy", "conservative")),
        (LAYER_NORM, ("--exclude", "sq", "--exclude", "op:MatMul")),
        (LAYER_NORM, ("--fix-region", "*=fp32")),
        (TWO_HEADS, ()),
        (TWO_HEADS, ("--opset", "keep")),
        (TWO_HEADS, ("--exclude", "m2")),
        ("digits", ()),
        ("digits", ("--policy", "conservative")),
        ("digits", ("--to", "bf16", "--target", "onnxruntime-cpu")),
        ("large constant", ()),
    ],
)
def test_every_command_that_would_free_an_island_does(run, folder, text, options):
    match text:
        case "digits":
            (folder / "model.onnx").write_bytes(DIGITS.read_bytes())
        case "large constant":
            save(LAYER_NORM.replace("w = {1,", "w = {100000,"), "model.onnx")
        case _:
            save(text, "model.onnx")
    ran = run("convert", "model.onnx", "out.onnx", "-v", *options)
    assert ran.code == 0, ran.err
    low = str(mezzo.plan("model.onnx").low) if "bf16" not in options else "bf16"
    before = int(re.search(rf"^nodes in {low} +\d+ +(\d+)$", ran.out, re.MULTILINE)[1])
    commands = commands_under_islands(ran.out)
    assert commands
    for command in commands:
        planned = run(*shlex.split(command)[1:], "-v")
        assert planned.code == 0, f"{command}: {planned.err}"
        after = int(re.search(rf"^nodes in {low} +(\d+)$", planned.out, re.MULTILINE)[1])
        assert after > before, command


def test_island_of_a_replayed_plan_points_to_the_plan(run, folder):
    assert run("plan", "layernorm.onnx", "--save", "plan.json", "--quiet").code == 0
    out = run("convert", "layernorm.onnx", "out.onnx", "--plan", "plan.json", "-v").out
    assert "the plan says so: give its nodes another precision in plan.json" in out


def test_nothing_is_drawn_of_a_model_without_floats(run, folder):
    save("""<ir_version: 8, opset_import: ["" : 17]> g (int64[N] x) => (int64[N] y) { y = Neg(x) }""", "ints.onnx")
    ran = run("convert", "ints.onnx", "out.onnx", "-v")
    assert ran.code == 0 and "which precision" not in ran.out and "island" not in ran.out
