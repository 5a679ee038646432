"""Target files: what they say reaches the plan, and what is wrong with one is said in a line."""

import pytest

import mezzo
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType
from mezzo.plugins import discovery
from mezzo.tables.files.targetfile import load_target, read_target
from mezzo.tables.ops import known_operators
from mezzo.tables.target import Costs, KernelListing, KernelRow, Target

F16, BF16 = DType.FLOAT16, DType.BFLOAT16
MODEL = "examples/digits/digits.onnx"


def read(text: str) -> Target:
    return read_target(text, "mine", discovery.target)


def low_ops(plan: mezzo.Plan) -> set[str]:
    return {node.op for node in plan.nodes if node.kind == "op" and node.precision.compute is not DType.FLOAT32}


def test_empty_file_is_a_target_that_runs_everything():
    assert read("") == Target(name="mine", summary="read from mine")


def test_refusal_holds_for_each_operator_it_names():
    found = read(
        '[[refuse]]\nop = ["Resize", "com.microsoft:Gelu"]\nformat = "fp16"\nversions = [11, 13]\n'
        'attribute = { mode = ["cubic", "linear"], antialias = 1 }\nbecause = "no kernel"\nsource = "measured"\n'
    )
    first, second = found.refusals
    assert (first.dialect, first.op, second.dialect, second.op) == ("onnx", "Resize", "com.microsoft", "Gelu")
    assert (first.because, first.source, first.versions) == ("no kernel", "measured", (11, 13))
    attributes = {"mode": "cubic", "antialias": 1}
    assert found.refusal("onnx", "Resize", 13, attributes, F16) is first
    assert found.refusal("onnx", "Resize", 18, attributes, F16) is None
    assert found.refusal("onnx", "Resize", 13, {"mode": "nearest", "antialias": 1}, F16) is None
    assert found.refusal("onnx", "Resize", 13, attributes, BF16) is None


def test_list_of_kernels_refuses_what_it_does_not_name():
    found = read(
        '[[run]]\nformat = "bf16"\nops = ["MatMul, Add 7-14", "com.microsoft:Gelu 1"]\nbecause = "no kernel"\n'
    )
    rows = (KernelRow("onnx", "MatMul"), KernelRow("onnx", "Add", (7, 14)), KernelRow("com.microsoft", "Gelu", (1, 1)))
    assert found.listings == (KernelListing(dtype=BF16, kernels=rows, because="no kernel", source="mine", since=""),)
    assert found.refusal("onnx", "Sin", 7, {}, BF16) is not None
    assert found.refusal("onnx", "MatMul", 13, {}, BF16) is None
    assert found.refusal("onnx", "Sin", 7, {}, F16) is None


def test_base_counts_where_the_file_says_nothing():
    base = discovery.target("onnxruntime-cuda")
    found = read('base = "onnxruntime-cuda"\n[[refuse]]\nop = "Gemm"\n[[run]]\nformat = "bf16"\nops = "MatMul"\n')
    assert found.refusals[1:] == base.refusals
    assert found.newest == base.newest and found.notes == base.notes and found.gains == base.gains
    assert found.runtime is base.runtime and base.runtime is not None  # its results are run and timed there
    by_dtype = {listing.dtype: listing for listing in found.listings}
    assert by_dtype[BF16].kernels == (KernelRow("onnx", "MatMul"),)
    assert [x for x in found.listings if x.dtype is F16] == [x for x in base.listings if x.dtype is F16]


def test_head_costs_and_gains_are_read():
    found = read(
        'name = "box"\nsummary = "our box"\nmax_opset = 17\nnotes = "mind the step"\n'
        '[costs]\ncast_launch = 0\nlinear_factor = 8\n[[gain]]\nformat = "bf16"\nfaster = false\nbecause = "emulated"\n'
    )
    assert (found.name, found.summary, found.newest, found.costs) == ("box", "our box", {"onnx": 17}, Costs(0, 8))
    assert found.notes_for(BF16) == ("mind the step", "emulated") and found.notes_for(F16) == ("mind the step",)


def test_newest_versions_are_read_by_dialect_and_add_to_the_base() -> None:
    assert read("newest = { toy = 2 }").newest == {"toy": 2}
    assert read('base = "tensorrt"\nnewest = { toy = 2 }').newest == {"onnx": 24, "toy": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "'x' is unknown; choose of base, costs, custom, formats, gain, max_opset, name, newest, notes, "),
        ("a b", "target 'mine' is not TOML"),
        ('base = "toaster"', "target 'toaster' is unknown; choose one of any, coreml,"),
        ("refuse = 1", "'refuse' is int; write each refuse under [[refuse]]"),
        ("[[refuse]]\nformat = 'fp16'", "refuse 1 lacks 'op'"),
        ("[[run]]\nops = 'Add'\nformat = 'int8'", "format is 'int8'; write what runs on quantized operands under [["),
        ("[[refuse]]\nop = 'Add'\nversions = [3, 2]", "versions is [3, 2]; write the first and the last"),
        ("[[refuse]]\nop = 'Add'\nattribute = { a = [[1]] }", "attribute a is [[1]]; write a number, a text"),
        ("[[run]]\nops = 'Add'", "run 1 lacks 'format'"),
        ("[[run]]\nops = 'Add x'\nformat = 'fp16'", "'Add x' is no operator; write 'Abs', 'Abs 6' or 'Abs 6-13'"),
        ("[[run]]\nops = 'Add'\nformat = ['fp16', 'fp16']", "fp16 has a list already"),
        ("[[gain]]\nformat = 'fp16'\nfaster = 'no'\nbecause = 'x'", "faster is 'no'; write true or false"),
        ("[costs]\ncast_launch = -1", "cast_launch is -1; write a whole number from 0"),
        ("[costs]\nlinear_factor = 0", "linear_factor is 0; write a whole number from 1"),
        ("max_opset = 0", "max_opset is 0; write 1 or more"),
        ("newest = { toy = 0 }", "newest: toy is 0; write 1 or more"),
        ("max_opset = 17\nnewest = { onnx = 18 }", "max_opset and newest.onnx say the same; keep one"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(text, message):
    with pytest.raises(InputError) as told:
        read(text)
    assert message in str(told.value)


def test_file_that_is_missing_or_no_text_is_said(tmp_path):
    with pytest.raises(InputError, match="cannot read target"):
        load_target(tmp_path / "none.toml", discovery.target)
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_target(tmp_path / "odd.toml", discovery.target)


def test_every_option_that_takes_a_target_takes_a_file_and_an_object(tmp_path):
    path = tmp_path / "no-gemm.toml"
    path.write_text('base = "onnxruntime-cpu"\n[[refuse]]\nop = "Gemm"\nbecause = "our kernel is FP32"\n')
    by_name = mezzo.plan(MODEL)
    assert "Gemm" in low_ops(by_name)
    for target in (path, str(path), load_target(path, discovery.target)):
        found = mezzo.plan(MODEL, target=target)
        assert low_ops(found) == low_ops(by_name) - {"Gemm"}
        (node,) = [node for node in found.nodes if node.op == "Gemm"]
        assert node.because == "no-gemm: our kernel is FP32 (no-gemm)"
    saved = tmp_path / "plan.json"
    mezzo.save_plan(mezzo.plan(MODEL, target=path), saved)
    path.unlink()
    assert mezzo.convert(MODEL, plan=saved).summary.low_nodes  # a plan needs no target file


def test_operator_that_no_table_knows_is_told(tmp_path):
    path = tmp_path / "typo.toml"
    path.write_text('base = "tensorrt"\n[[refuse]]\nop = "Rezise"\n')
    notes = mezzo.convert(MODEL, target=path).summary.notes
    assert [note for note in notes if "'Rezise'" in note]
    shipped = {row.op for target in discovery.targets().values() for row in target.refusals}
    assert shipped <= known_operators()
