"""Plans: saved, read back, replayed, edited by hand; refused where they do not fit, with a message that says why."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.io.planfile import to_json
from mezzo.report.views.plandiff import compare_plans

_WANTED = "wanted f32, alone or with some of bf16, f16, fp8, fp8-e5m2, int8"
_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x) => (float[4,4] y)
<float[4,4] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.1,0.2,0.3,0.4,0.5,0.6,0.7}>
{
   [m1]   a = MatMul(x, w)
   [relu] b = Relu(a)
   [m2]   c = MatMul(b, w)
   [sm]   d = Softmax <axis = -1> (c)
   [m3]   y = MatMul(d, w)
}
"""
_CONTROL = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (bool c, int64 n, float[2,2] x) => (float[2,2] z)
<float[2,2] w = {1,2,3,4}, float[2,2] f>
{
   [call] f = local.block(x, w)
   [if] y = If (c) <
      then_branch = t () => (float[2,2] p) { [tm] p = MatMul(f, w) },
      else_branch = e () => (float[2,2] q) { [ee] q = Exp(f) }
   >
   [loop] z = Loop (n, c, y) <
      body = b (int64 i, bool k, float[2,2] s) => (bool k2, float[2,2] t) {
         [id] k2 = Identity(k)
         [mm] t = MatMul(s, w)
      }
   >
}
<domain: "local", opset_import: ["" : 21]>
block (p, q) => (r)
{
   [bm] m = MatMul(p, q)
   [br] r = Relu(m)
}
"""
_SEQUENCE = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x) => (float[2,2] y)
<int64 zero = {0}>
{
   [mm] a = MatMul(x, x)
   [sc] s = SequenceConstruct(a, a)
   [sa] c = SequenceAt(s, zero)
   [m2] y = MatMul(c, x)
}
"""
_WIDE = f"""
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,64] x) => (float[N,64] y)
<float[64,64] w = {{{",".join(str((7 * number) % 13 - 6) for number in range(4096))}}}>
{{ [mm] y = MatMul(x, w) }}
"""
_OPSET_11 = """
<ir_version: 6, opset_import: ["" : 11]>
g (float[2,2] x) => (float[2,2] y)
<int64 axis = {1}>
{
   [mm] a = MatMul(x, x)
   [cs] y = CumSum(a, axis)
}
"""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def spell(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


def save(plan: mezzo.Plan, folder: Path) -> Path:
    place = folder / "plan.json"
    mezzo.save_plan(plan, place)
    return place


def edit(place: Path, node: str, **fields: object) -> None:
    """Change fields of one node in a saved plan, as a person would."""
    document = json.loads(place.read_text())
    entry = next(entry for entry in document["nodes"] if entry["name"] == node)
    entry.update(fields)
    place.write_text(json.dumps(document))


def replay(text: str, place: Path, **options: Any) -> mezzo.Converted:
    return mezzo.convert(parse(text), plan=place, **options)


# -- saved and replayed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"to": "bf16"}, {"policy": "aggressive"}, {"strategy": "forward"}, {"io": "low"}]
)
@pytest.mark.parametrize("text", [_TEXT, _CONTROL, _SEQUENCE, _OPSET_11])
def test_replayed_plan_gives_the_same_bytes(text: str, options: dict[str, str], tmp_path: Path) -> None:
    decided = mezzo.convert(parse(text), **options)
    place = save(decided.plan, tmp_path)
    assert spell(replay(text, place).model) == spell(decided.model)


def test_plan_of_weights_in_blocks_alone_is_saved_and_replayed(tmp_path: Path) -> None:
    """It has one level, FP32."""
    decided = mezzo.convert(parse(_WIDE), to="int4", target="onnx", check=False)
    assert decided.plan.in_blocks
    place = save(decided.plan, tmp_path)
    assert json.loads(place.read_text())["levels"] == ["f32"]
    assert spell(replay(_WIDE, place, check=False).model) == spell(decided.model)


def test_plan_is_the_one_that_convert_follows(tmp_path: Path) -> None:
    planned, decided = mezzo.plan(parse(_TEXT)), mezzo.convert(parse(_TEXT)).plan
    assert save(planned, tmp_path).read_text() == save(decided, tmp_path).read_text()


def test_read_plan_says_what_the_saved_one_says(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_CONTROL)), tmp_path)
    text = place.read_text()
    assert save(mezzo.load_plan(place), tmp_path).read_text() == text


def test_plan_object_replays_as_its_file_does(tmp_path: Path) -> None:
    plan = mezzo.plan(parse(_TEXT), exclude=("m2",))
    place = save(plan, tmp_path)
    assert spell(mezzo.convert(parse(_TEXT), plan=plan).model) == spell(replay(_TEXT, place).model)


def test_plan_does_not_depend_on_the_weights_numbers(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    other = _TEXT.replace("{1,2,3,4,", "{4,3,2,1,")
    assert mezzo.show(replay(other, place).model) == mezzo.show(mezzo.convert(parse(_TEXT)).model)


def test_replay_stores_a_clamped_weight_as_the_plan_did(tmp_path: Path) -> None:
    text = _TEXT.replace("{1,2,3,4,", "{1000000,2,3,4,")
    decided = mezzo.convert(parse(text), out_of_range="clamp")
    place = save(decided.plan, tmp_path)
    assert spell(replay(text, place).model) == spell(decided.model)


def test_replay_takes_the_step_of_the_opset_that_the_plan_took(tmp_path: Path) -> None:
    plan = mezzo.plan(parse(_OPSET_11), policy="aggressive")
    assert (plan.dialect, plan.version) == ("onnx", 14)
    assert replay(_OPSET_11, save(plan, tmp_path)).model.opset_import[0].version == 14


def test_a_node_takes_one_line_so_that_a_diff_shows_what_changed(tmp_path: Path) -> None:
    before = save(mezzo.plan(parse(_TEXT)), tmp_path).read_text().splitlines()
    after = save(mezzo.plan(parse(_TEXT), exclude=("m3",)), tmp_path).read_text().splitlines()
    changed = [line.strip() for line, old in zip(after, before, strict=True) if line != old]
    assert [line.partition(",")[0] for line in changed] == ['"exclude": "[\\"m3\\"]"', '{"name": "m3"']


# -- edited by hand ---------------------------------------------------------------------------------------------------


def test_edited_node_changes_its_region_and_no_other(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "m3", precision="f32")
    before = mezzo.show(mezzo.convert(parse(_TEXT)).model).splitlines()
    after = mezzo.show(replay(_TEXT, place).model).splitlines()
    assert after == [
        "input  x: f32[4,4]",
        "weight w: f32[4,4]",
        "weight w_f16: f16[4,4]",
        "x_f16: f16[4,4] = Cast(x){to=f16}",
        "a: f16[4,4] = MatMul(x_f16, w_f16)",
        "b: f16[4,4] = Relu(a)",
        "c: f16[4,4] = MatMul(b, w_f16)",
        "c_f32: f32[4,4] = Cast(c){to=f32}",
        "d: f32[4,4] = Softmax(c_f32){axis=-1}",
        "y: f32[4,4] = MatMul(d, w)",
        "output y",
    ]
    assert [line for line in before if line not in after] == [
        "weight w: f16[4,4]",
        "a: f16[4,4] = MatMul(x_f16, w)",
        "c: f16[4,4] = MatMul(b, w)",
        "d_f16: f16[4,4] = Cast(d){to=f16}",
        "y_f16: f16[4,4] = MatMul(d_f16, w)",
        "y: f32[4,4] = Cast(y_f16){to=f32}",
    ]


def test_edit_may_go_against_the_policy(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "sm", precision="f16")
    assert "d: f16[4,4] = Softmax(c){axis=-1}" in mezzo.show(replay(_TEXT, place).model)


def test_edit_may_spell_all_three_dtypes(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "sm", precision=["f16", "f16", "f16"])
    assert "d: f16[4,4] = Softmax(c){axis=-1}" in mezzo.show(replay(_TEXT, place).model)


def test_edited_interface_changes_the_dtype_of_an_input(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "input x", precision="f16")
    assert mezzo.show(replay(_TEXT, place).model).startswith("input  x: f16[4,4]\n")


def test_edited_operator_in_a_body_and_in_a_function(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_CONTROL)), tmp_path)
    edit(place, "loop/body/mm", precision="f32")
    edit(place, "call/br", precision="f32")
    result = replay(_CONTROL, place)
    onnx.checker.check_model(result.model, full_check=True)
    by_name = {node.name: str(node.precision.compute) for node in result.plan.nodes}
    assert (by_name["loop/body/mm"], by_name["call/br"], by_name["call/bm"]) == ("f32", "f32", "f16")


# -- refused ----------------------------------------------------------------------------------------------------------


def _refusal(text: str, place: Path) -> str:
    model = parse(text)
    before = spell(model)
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.convert(model, plan=place)
    assert spell(model) == before
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_weight_that_is_read_in_floats_too_stays_in_a_plan_with_fewer_int8_products(tmp_path: Path) -> None:
    """Planning stores a weight twice where others save more; a plan that is replayed has decided that before."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (int64[4,8] tokens) => (float[4,8,64] y) {
           [embed] x = Gather(table, tokens)
           [mm] h = MatMul(x, w)
           [soft] r = Softmax(h)
           [head] y = MatMul(r, table) }""")
    random = np.random.default_rng(0)
    for name in ("table", "w"):
        weight = random.standard_normal((64, 64), np.float32) / 8
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    feeds = {"tokens": random.integers(0, 64, (4, 8))}
    plan = mezzo.convert(model, to="int8", target="openvino-cpu", quantize_mode="full", data=feeds).plan
    products = {"mm", "head"}
    assert {node.name for node in plan.nodes if node.precision.compute is DType.QUANTIZED8} >= products
    place = save(plan, tmp_path)
    edit(place, "mm", precision="f32")
    document = json.loads(place.read_text())
    del document["quantized"]["w"]  # as in a plan that a budget has made, whose scales are those of what runs in INT8
    place.write_text(json.dumps(document))
    again = mezzo.convert(model, plan=mezzo.load_plan(place)).plan
    assert {node.name for node in again.nodes if node.precision.compute is DType.QUANTIZED8} & products == {"head"}


def test_plan_of_another_model_is_refused(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    assert _refusal(_TEXT.replace("Relu(a)", "Tanh(a)"), place) == (
        "the plan was made for another model: their structures differ; make a new one with 'mezzo.plan'"
    )


def test_refused_plan_writes_nothing(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    with pytest.raises(mezzo.InputError):
        mezzo.convert(parse(_SEQUENCE), tmp_path / "out.onnx", plan=place)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_node_without_a_line_is_named(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    document["nodes"] = [entry for entry in document["nodes"] if entry["name"] != "relu"]
    place.write_text(json.dumps(document))
    assert _refusal(_TEXT, place) == (
        "the plan says nothing of node 'relu'; add it or make a new plan with 'mezzo.plan'"
    )


@pytest.mark.parametrize(("wanted", "named"), [("bf16", "bf16"), ("i8", "i8")])
def test_precision_that_the_plan_does_not_know_is_refused(wanted: object, named: str, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "m1", precision=wanted)
    assert _refusal(_TEXT, place) == (
        f"node 'm1': the plan asks for {named}; this model can be replayed in f32 and f16"
    )


def test_sums_below_the_products_are_refused(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "m1", precision=["f32", "f16", "f16"])
    assert _refusal(_TEXT, place) == (
        "node 'm1': the plan asks for products in f32 and less after them; write 'f32', or f16 for the products too"
    )


def test_result_handed_on_high_is_replayed(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT), strategy="forward", policy="aggressive"), tmp_path)
    edit(place, "m1", precision=["f16", "f32", "f32"])
    plan = replay(_TEXT, place).plan
    assert [str(dtype) for dtype in plan.by_name["m1"].precision] == ["f16", "f32", "f32"]


def test_precision_that_the_schema_forbids_is_refused(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_OPSET_11), opset="keep"), tmp_path)
    edit(place, "cs", precision="f16")
    assert _refusal(_OPSET_11, place) == (
        "the plan cannot be carried out: node 'cs' (CumSum) runs in f16, which its schema does not allow; "
        "change its precision in the plan"
    )


def test_nodes_of_one_sequence_have_to_agree(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_SEQUENCE)), tmp_path)
    edit(place, "sa", precision="f32")
    assert _refusal(_SEQUENCE, place).startswith("the plan cannot be carried out: ")


def test_node_that_is_low_in_the_model_cannot_be_raised(tmp_path: Path) -> None:
    text = _TEXT.replace("float[4,4] x", "float16[4,4] x").replace(
        "a = MatMul(x, w)", "h = MatMul(x, x) [up] a0 = Cast <to = 1> (h) [m0] a = MatMul(a0, w)"
    )
    place = save(mezzo.plan(parse(text)), tmp_path)
    edit(place, "m1", precision="f32")
    assert _refusal(text, place) == (
        "the plan cannot be carried out: node 'm1' (MatMul) runs in f32, but has to be f16; "
        "change its precision in the plan"
    )


# -- malformed files --------------------------------------------------------------------------------------------------


def _load_error(place: Path) -> str:
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.load_plan(place)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(str(place)) in message
    return message


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"null", "has format 'NoneType', wanted 'mezzo-plan/1'"),
        (b"[]", "has format 'list', wanted 'mezzo-plan/1'"),
        (b'"plan"', "has format 'str', wanted 'mezzo-plan/1'"),
        (b"{}", "has format None, wanted 'mezzo-plan/1'"),
        (b'{"format": "mezzo-plan/2"}', "has format 'mezzo-plan/2', wanted 'mezzo-plan/1'"),
        (b'{"format": "mezzo-plan/1"}', "lacks or misstates a field"),
    ],
)
def test_file_that_is_no_plan_is_refused(content: bytes, found: str, tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    place.write_bytes(content)
    assert found in _load_error(place)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    assert _load_error(tmp_path / "none.json").endswith("No such file or directory; give the path of a plan")
    assert _load_error(tmp_path).endswith("is a folder; name a file")


def test_plan_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    plan = mezzo.plan(parse(_TEXT))
    with pytest.raises(mezzo.InputError, match=r"cannot write plan .* is not a folder; make it first"):
        mezzo.save_plan(plan, tmp_path / "no" / "folder.json")
    assert not list(tmp_path.iterdir())


def test_what_is_no_plan_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(mezzo.InputError, match=r"^Converted is no plan, and a plan is saved; results have"):
        mezzo.save_plan(mezzo.convert(parse(_TEXT)), tmp_path / "plan.json")  # type: ignore[arg-type]  # what is tried
    assert not list(tmp_path.iterdir())


_FIELDS = ("fingerprint", "levels", "base", "dialect", "version", "settings", "nodes", "notes")


@pytest.mark.parametrize("field", _FIELDS)
def test_missing_field_is_refused(field: str, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    del document[field]
    place.write_text(json.dumps(document))
    assert f"lacks or misstates a field: {field!r}" in _load_error(place)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fingerprint", 7), ("fingerprint", None), ("base", "f33"), ("base", 1), ("base", ["f32"]),
        ("base", None), ("levels", "f16"), ("levels", None), ("levels", {"f32": 0, "f16": 1}),
        ("levels", ["f32", ""]), ("levels", ["f32", 16]), ("levels", ["f32", ["f16"]]), ("levels", ["f32", None]),
        ("settings", []), ("settings", "to"), ("settings", None), ("nodes", None), ("nodes", 3), ("nodes", ["m1"]),
        ("nodes", [[]]), ("nodes", [None]), ("nodes", {"m1": "f16"}), ("notes", None), ("notes", 4),
    ],
)  # fmt: skip
def test_field_of_a_wrong_kind_is_refused(field: str, value: object, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    document[field] = value
    place.write_text(json.dumps(document))
    assert "lacks or misstates a field" in _load_error(place)


@pytest.mark.parametrize(
    ("levels", "base", "words"),
    [
        ([], "f32", f"levels are none, {_WANTED}, each once"),
        (["f16", "bf16"], "f32", f"levels are f16, bf16, {_WANTED}, each once"),
        (
            ["f32", "f16", "f16"],
            "f32",
            f"levels are f32, f16, f16, {_WANTED}, each once",
        ),
        (["f32", "f32"], "f32", f"levels are f32, f32, {_WANTED}, each once"),
        (
            ["f32", "f16", "f8e5m2"],
            "f32",
            f"levels are f32, f16, f8e5m2, {_WANTED}",
        ),
        (["f32", "f64"], "f32", f"levels are f32, f64, {_WANTED}, each once"),
        (["f32", "i64"], "f32", f"levels are f32, i64, {_WANTED}, each once"),
        (["f32", "f16"], "f16", "base is f16, wanted f32"),
        (["f32", "half"], "f32", "'half' is not a valid DType"),
        ("f32", "f32", "levels is 'f32', wanted a list"),
    ],
)
def test_levels_that_no_plan_has_are_refused(levels: object, base: str, words: str, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    place.write_text(json.dumps(document | {"levels": levels, "base": base}))
    assert f"lacks or misstates a field: {words}" in _load_error(place)


_STORAGE = {"bits": 4, "block": 32, "axis": 0, "symmetric": False, "scale_dtype": "f16", "rounding": "nearest"}


def _with_storage(tmp_path: Path, **changes: object) -> Path:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    place.write_text(json.dumps(document | {"in_blocks": {"weight w": {**_STORAGE, **changes}}}))
    return place


def test_form_of_blocks_is_spelled_where_it_is_not_the_default(tmp_path: Path) -> None:
    fused = {"form": "fused", "accuracy_level": 4}
    for changes in ({}, {"form": "fused"}, fused, {"activation_block": 32}):
        loaded = mezzo.load_plan(_with_storage(tmp_path, **changes))
        assert json.loads(to_json(loaded))["in_blocks"]["weight w"] == {**_STORAGE, **changes}
        storage = dict(loaded.in_blocks)["weight w"]
        assert storage.form.value == changes.get("form", "dequantize")
        assert storage.accuracy_level == changes.get("accuracy_level", 0)
        assert storage.activation_block == changes.get("activation_block", 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": "fast"}, "form is 'fast', wanted dequantize or fused"),
        ({"form": ["fused"]}, "form is ['fused'], wanted dequantize or fused"),
        ({"form": None}, "form is None, wanted dequantize or fused"),
        ({"form": "fused", "accuracy_level": 5}, "accuracy_level is 5, wanted a number from 0 to 4"),
        ({"form": "fused", "accuracy_level": True}, "accuracy_level is True, wanted a number from 0 to 4"),
        ({"accuracy_level": 4}, "accuracy_level is 4, wanted a number from 0 to 0"),
        ({"bits": 5}, "bits are 5 and scales f16, wanted 4 or 8, and f32, f16, bf16"),
        ({"level": 1}, "wanted axis, bits, block, rounding, scale_dtype, symmetric, and perhaps accuracy_level,"),
        ({"activation_block": -1}, "activation_block is -1, wanted a number from 0 to 1048576"),
    ],
)  # fmt: skip
def test_storage_that_no_plan_has_is_refused(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    message = _load_error(_with_storage(tmp_path, **changes))
    assert "lacks or misstates a field: in_blocks 'weight w': " in message and words in message, message


def test_plan_of_three_levels_is_read_and_not_replayed(tmp_path: Path) -> None:
    """Every level converts into FP32, and what looks at plans alone takes any."""
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    pair = mezzo.load_plan(place)
    document = json.loads(place.read_text())
    place.write_text(json.dumps(document | {"levels": ["bf16", "f16", "f32"]}))
    edit(place, "m1", precision="bf16")
    loaded = mezzo.load_plan(place)
    assert (loaded.high, loaded.lows) == (DType.FLOAT32, (DType.BFLOAT16, DType.FLOAT16))
    assert mezzo.load_plan(save(loaded, tmp_path)) == loaded
    assert loaded.by_name["m1"].precision.compute is DType.BFLOAT16
    said = (
        "the plan has levels bf16, f16, f32, and a model takes f32 with one of fp16, bf16, int8, fp8, fp8-e5m2, or "
        "between two, one of them fp16 or bf16; make a new plan with 'mezzo.plan'"
    )
    for attempt in (
        lambda: replay(_TEXT, place),
        lambda: mezzo.convert(parse(_TEXT), plan=loaded),
        lambda: mezzo.emulate(parse(_TEXT), {}, plan=place),
    ):
        with pytest.raises(mezzo.InputError) as caught:
            attempt()
        assert str(caught.value) == said
    assert [setting.name for setting in compare_plans(pair, loaded).settings] == ["low precision", "levels"]


@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_plan_that_states_a_pair_loads_as_before(to: str, tmp_path: Path) -> None:
    """Files of older versions say "high" and "low" and list no levels."""
    plan = mezzo.plan(parse(_TEXT), to=to)
    place = save(plan, tmp_path)
    document = json.loads(place.read_text())
    high, low = document.pop("levels")
    assert document.pop("base") == high == "f32"
    place.write_text(json.dumps(document | {"high": high, "low": low}))
    loaded = mezzo.load_plan(place)
    assert (loaded.high, loaded.low, loaded.nodes) == (plan.high, plan.low, plan.nodes)
    assert spell(replay(_TEXT, place).model) == spell(mezzo.convert(parse(_TEXT), to=to).model)


def test_plan_that_states_an_opset_replays_as_before(tmp_path: Path) -> None:
    """Files of older versions say "opset" and no dialect."""
    plan = mezzo.plan(parse(_OPSET_11), policy="aggressive")
    place = save(plan, tmp_path)
    document = json.loads(place.read_text())
    assert document.pop("dialect") == "onnx"
    version = document.pop("version")
    place.write_text(json.dumps(document | {"opset": version}))
    loaded = mezzo.load_plan(place)
    assert (loaded.dialect, loaded.version) == ("onnx", 14)
    assert spell(replay(_OPSET_11, place).model) == spell(mezzo.convert(parse(_OPSET_11), policy="aggressive").model)


def test_plan_of_another_dialect_is_refused(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edited = json.loads(place.read_text()) | {"dialect": "tosa"}
    place.write_text(json.dumps(edited))
    expected = "the plan is of a model in dialect 'tosa', and the model is in 'onnx'; make a new one with 'mezzo.plan'"
    for attempt in (lambda: replay(_TEXT, place), lambda: mezzo.emulate(parse(_TEXT), {}, plan=place)):
        with pytest.raises(mezzo.InputError) as caught:
            attempt()
        assert str(caught.value) == expected
    place.write_text(json.dumps(edited | {"dialect": 3}))
    assert "dialect is 3, wanted text" in _load_error(place)


def test_levels_may_stand_in_any_order(tmp_path: Path) -> None:
    decided = mezzo.convert(parse(_CONTROL))
    place = save(decided.plan, tmp_path)
    document = json.loads(place.read_text())
    place.write_text(json.dumps(document | {"levels": document["levels"][::-1]}))
    assert spell(replay(_CONTROL, place).model) == spell(decided.model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"high": "f16"}, "base is f16, wanted f32"),
        ({"low": "f32"}, f"levels are f32, f32, {_WANTED}, each once"),
        ({"low": "i8"}, f"levels are f32, i8, {_WANTED}, each once"),
    ],
)
def test_pair_that_no_plan_has_is_refused(changes: dict[str, str], words: str, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    del document["levels"], document["base"]
    place.write_text(json.dumps(document | {"high": "f32", "low": "f16"} | changes))
    assert words in _load_error(place)


@pytest.mark.parametrize("field", ["high", "low"])
def test_half_a_pair_is_refused(field: str, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    del document["levels"], document["base"]
    place.write_text(json.dumps(document | {field: "f32"}))
    other = "low" if field == "high" else "high"
    assert f"lacks or misstates a field: {other!r}" in _load_error(place)


@pytest.mark.parametrize("field", ["name", "op", "kind", "precision", "category", "rule", "because", "cause"])
def test_node_without_a_field_is_refused(field: str, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    document = json.loads(place.read_text())
    del document["nodes"][1][field]
    place.write_text(json.dumps(document))
    assert f"lacks or misstates a field: {field!r}" in _load_error(place)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None), ("name", 3), ("op", []), ("kind", {}), ("precision", None), ("precision", "half"),
        ("precision", 16), ("precision", []), ("precision", ["f16"]), ("precision", ["f16", "f16", "x"]),
        ("precision", {}), ("category", "maybe"), ("category", 1), ("rule", None), ("because", 0),
    ],
)  # fmt: skip
def test_node_with_a_field_of_a_wrong_kind_is_refused(field: str, value: object, tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "m1", **{field: value})
    assert "lacks or misstates a field" in _load_error(place)


def test_misspelt_precision_names_the_node(tmp_path: Path) -> None:
    place = save(mezzo.plan(parse(_TEXT)), tmp_path)
    edit(place, "m1", precision="fp16")
    assert "node 'm1': 'fp16' is not a valid DType" in _load_error(place)


@pytest.mark.parametrize(
    "given",
    [
        {"to": "bf16"}, {"policy": "off"}, {"strategy": "forward"}, {"target": "any"}, {"include": ["op:Relu"]},
        {"exclude": ["op:Relu"]}, {"keep_region": ["a"]}, {"fix_region": {"a": "fp32"}}, {"io": "low"},
        {"out_of_range": "clamp"}, {"opset": "keep"}, {"assume": {"x": "0..1"}},
    ],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_keyword_that_contradicts_a_plan_is_refused(given: dict[str, Any]) -> None:
    model = parse(_TEXT)
    option = next(iter(given))
    with pytest.raises(mezzo.InputError, match=f"{option} .* contradicts the plan, which was made with"):
        mezzo.convert(model, plan=mezzo.plan(model), **given)


def test_keywords_that_a_plan_was_made_with_may_be_said_again() -> None:
    model = parse(_TEXT)
    options: dict[str, Any] = {
        "to": "bf16", "policy": "aggressive", "strategy": "forward", "target": "any", "io": "low", "opset": "keep",
        "out_of_range": "clamp", "include": ["op:*"], "exclude": [], "keep_region": [], "fix_region": {},
    }  # fmt: skip
    made = mezzo.convert(model, **options)
    again = mezzo.convert(model, plan=made.plan, **options)
    assert again.model.SerializeToString(deterministic=True) == made.model.SerializeToString(deterministic=True)
