"""`mezzo compare`: exit codes 0, 1 and 2, a report, one JSON document, and errors of one line."""

import json

import numpy as np
import onnx.parser
import pytest

import mezzo

SCALE = """<ir_version: 10, opset_import: ["" : 18]>
g (float[N,20] x) => (float[N,20] y) <float a = {900}, float b = {900}, float c = {0.00001}>
{ p = Mul(x, a)  q = Mul(p, b)  y = Mul(q, c) }"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A model that FP16 ruins, conversions of it, and data."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(SCALE)
    onnx.save(model, "model.onnx")
    naive = {"policy": "aggressive", "include": ["*"], "target": "any"}
    mezzo.convert("model.onnx", "fp16.onnx", to="fp16", **naive)
    mezzo.convert("model.onnx", "bf16.onnx", to="bf16", **naive)
    x = np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32)
    np.savez("data.npz", x=x)
    np.savez("labelled.npz", x=x, sign=x[:, 0] > 0)
    (tmp_path / "own_scores.py").write_text(
        "def sign(outputs, labels):\n    return (outputs['y'][:, 0] > 0) == labels['sign']"
    )
    return tmp_path


def compare(run, model, *words, data="data.npz"):
    return run("compare", "model.onnx", model, "--data", data, "-v", *words)


def test_the_same_is_0_and_says_how_far_apart(run):
    ran = compare(run, "bf16.onnx")
    assert (ran.code, ran.err) == (0, "")
    assert "the same: output 'y' differs most, by 0.003" in ran.out
    assert "8 eps of bf16" in ran.out


def test_a_naive_conversion_is_1_and_names_the_fault_and_the_layer(run):
    ran = compare(run, "fp16.onnx")
    assert (ran.code, ran.err) == (1, "")
    assert "not the same: output 'y': infinities that the reference does not have in 30 of 30 samples" in ran.out
    assert "the error begins at q" in ran.out


def test_the_runtime_of_this_machine_may_be_trusted(run):
    assert compare(run, "fp16.onnx", "--run", "native").code == 0


def test_a_budget_decides(run):
    assert compare(run, "bf16.onnx", "--max-error", "1e-2").code == 0
    ran = compare(run, "bf16.onnx", "--max-error", "1e-4", "--no-layers", "--batch", "7")
    assert ran.code == 1 and "more than 0.0001" in ran.out and "layer" not in ran.out


@pytest.mark.parametrize("model", ["bf16.onnx", "fp16.onnx"])
def test_quiet_prints_nothing(run, model):
    ran = compare(run, model, "--quiet")
    assert (ran.code, ran.out, ran.err) == (int(model == "fp16.onnx"), "", "")


def test_json_is_one_document_with_what_was_asked(run):
    ran = compare(run, "fp16.onnx", "--json", "--max-error", "0.5", "--accumulate", "bf16", "--tile", "8")
    account = json.loads(ran.out)
    assert (ran.code, account["format"], account["command"]) == (1, "mezzo-account/1", "compare")
    assert account["settings"] == {
        "data": "data.npz", "max-error": "0.5", "run": "emulated", "accumulate": "bf16", "tile": "8"
    }  # fmt: skip
    assert account["errors"]["emulation"]["tile"] == 8
    assert [layer["name"] for layer in account["errors"]["layers"]] == ["p", "q"]


def test_a_metric_of_the_current_folder_decides(run):
    words = ("--labels", "sign", "--metric", "own_scores:sign", "--max-drop", "0.5%")
    ran = compare(run, "bf16.onnx", *words, data="labelled.npz")
    assert ran.code == 0 and "own_scores:sign" in ran.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "none.npz"), "mezzo: none.npz: no such file; give an .npz file or a folder of them"),
        (("--data", "labelled.npz"), "mezzo: labelled.npz: found 'sign', which the model does not have; the model "
         "wants 'x'; if 'sign' is for the metric, name it as a label"),
        (("--data", "model.onnx"), "mezzo: model.onnx: is an ONNX model, not an .npz file; "),
        (("--run", "fast"), "mezzo: --run 'fast' is unknown; choose one of emulated, native"),
        (("--max-error", "-1"), "mezzo: --max-error is -1.0; give a relative error of 0 or more, such as 1e-3"),
        (("--metric", "own_scores:none"), "mezzo: metric 'own_scores:none' cannot be imported: AttributeError"),
        (("--max-drop", "1%"), "mezzo: --max-drop is 1% of no metric; name one with --metric module:function"),
        (("--tile", "8"), "mezzo: --tile is 8 without --accumulate; name the format"),
        (("--batch", "0"), "mezzo: --batch is 0; give 1 or more"),
    ],
)  # fmt: skip
def test_bad_input_is_2_and_one_line(run, words, message):
    data = () if words[0] == "--data" else ("--data", "data.npz")
    ran = run("compare", "model.onnx", "bf16.onnx", *data, *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err and ran.err.count("\n") == 1


def test_data_has_to_be_given(run):
    ran = run("compare", "model.onnx", "bf16.onnx")
    assert ran.code == 2 and "--data" in ran.err


def test_swapped_models_are_noticed_with_the_command_to_give(run):
    words = ("--data", "data.npz", "--max-error", "1e-2", "--no-layers")
    ran = run("compare", "bf16.onnx", "model.onnx", *words)
    assert (ran.code, ran.err) == (
        0,
        "mezzo: 'bf16.onnx' has low precision and 'model.onnx' has none; the reference comes first: mezzo compare "
        "model.onnx bf16.onnx --data data.npz --max-error 0.01\n",
    )
    assert run("compare", "model.onnx", "bf16.onnx", *words).err == ""
    assert run("compare", "bf16.onnx", "bf16.onnx", *words).err == ""


def test_data_in_several_files_is_given_to_the_next_command_again(run, folder):
    x = np.load("data.npz")["x"]
    np.save("a.npy", x[:10])
    np.save("b c.npy", x[10:])
    ran = run("compare", "model.onnx", "bf16.onnx", "--data", "?.npy", "--data", "b c.npy", "--preprocess", "scale=2")
    assert (ran.code, ran.err) == (0, "")
    assert "next    mezzo ranges model.onnx --data '?.npy' --data 'b c.npy' --preprocess scale=2\n" in ran.out
    ran = run("compare", "model.onnx", "bf16.onnx", "--data", "x=data.npz", "--data", "x=a.npy", "--json")
    document = json.loads(ran.out)
    assert document["data"] == {"name": "x=data.npz, x=a.npy", "batches": 2, "samples": 40, "seed": None}


def test_what_was_done_to_the_data_is_said_once_and_stands_in_the_account(run):
    np.savez("one.npz", np.load("data.npz")["x"][0])
    ran = run("compare", "model.onnx", "bf16.onnx", "--data", "one.npz", "--json")
    notes = ["array 'arr_0' is taken for input 'x'", "a batch axis is added to 'x'"]
    assert ran.err == "".join(f"mezzo: one.npz: {note}\n" for note in notes)
    assert json.loads(ran.out)["data"]["name"] == f"one.npz ({'; '.join(notes)})"
