"""What the commands say of a file that mezzo wrote, and what they keep of it."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

_NOT_HEEDED = "what the file tells of how it was made is not heeded"


@pytest.fixture
def layer_norm(folder: Path) -> Path:
    return folder / "layernorm.onnx"


@pytest.fixture
def written(run: Run, layer_norm: Path, tmp_path: Path) -> Path:
    """A model that was converted with one node kept out."""
    out = tmp_path / "out.onnx"
    assert run("convert", layer_norm, out, "--exclude", "mm", "--quiet").code == 0
    return out


def test_show_tells_what_made_a_file_before_its_lines(run: Run, written: Path, layer_norm: Path) -> None:
    lines = run("show", written).out.splitlines()
    assert lines[0].startswith("# made by mezzo ") and lines[0].endswith(', exclude ["mm"]')
    assert lines[1].startswith("# 0 operators run in f16, 9 do not: ")
    assert lines[2].startswith("input ")
    assert not run("show", layer_norm).out.startswith("#")


def test_explain_tells_why_a_node_of_the_file_was_decided(run: Run, written: Path) -> None:
    ran = run("explain", written, "mm")
    assert ran.code == 0
    assert "mm (MatMul) runs in f32: kept, as decided when this file was made (convert): the user asked so" in ran.out
    assert "Rule exclude" in ran.out
    chain = json.loads(run("explain", written, "mm", "--json").out)["chain"]
    assert chain[0]["precision"]["compute"] == "f32" and chain[0]["rule"] == "exclude"


def test_what_data_decided_is_asked_of_the_result(run: Run, tmp_path: Path) -> None:
    model, out, data = tmp_path / "model.onnx", tmp_path / "out.onnx", tmp_path / "data.npz"
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N,8] x) => (float[N,8] y)
    { [mm] h = MatMul(x, w)  [sm] s = Softmax<axis=-1>(h)  [last] y = MatMul(s, w) }"""
    made = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(made, model)
    np.savez(data, x=np.random.default_rng(1).standard_normal((64, 8)).astype(np.float32))
    ran = run("convert", model, out, "--data", data, "-v")
    assert ran.code == 0 and f"mezzo explain {out} " in ran.out and f"mezzo explain {model}" not in ran.out
    told = run("explain", out, "sm").out
    assert told.startswith("sm (Softmax) runs in f16: is f16 in the model already, as decided when it was made")
    assert "deny, the policy alone would keep it high." in told
    assert f"mezzo explain {model} " in run("convert", model, tmp_path / "other.onnx", "-v").out
    # A file that tells nothing cannot be asked: the plan is, where it was saved.
    untold = run("convert", model, tmp_path / "untold.onnx", "--data", data, "--no-provenance", "-v")
    assert untold.code == 0 and "mezzo explain" not in untold.out
    plan = tmp_path / "plan.json"
    asked = run("convert", model, tmp_path / "u.onnx", "--data", data, "--no-provenance", "--save-plan", plan, "-v")
    assert f"  mezzo explain {plan} " in asked.out and f"mezzo explain {tmp_path / 'u.onnx'}" not in asked.out


def test_show_counts_one_operator_as_one(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4,4] x) => (float[4,4] y) { [mm] h = MatMul(x, x)  [sm] y = Softmax<axis=-1>(h) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    assert run("convert", tmp_path / "model.onnx", tmp_path / "out.onnx", "--quiet").code == 0
    assert run("show", tmp_path / "out.onnx").out.splitlines()[1] == "# 1 operator runs in f16, 1 does not: softmax 1"


def test_explain_says_so_where_what_the_file_tells_does_not_fit(run: Run, written: Path) -> None:
    model = onnx.load(written)
    next(node for node in model.graph.node if node.name == "mm").name = "other"
    onnx.save(model, written)
    ran = run("explain", written, "other")
    assert ran.code == 0 and "other (MatMul) runs in f16" in ran.out and _NOT_HEEDED in ran.out
    assert _NOT_HEEDED in run("show", written).out.splitlines()[0]


def test_a_second_conversion_gives_the_same_file(run: Run, written: Path, tmp_path: Path) -> None:
    ran = run("convert", written, tmp_path / "again.onnx", "-v")
    assert ran.code == 0 and "are kept in f32, as decided when this file was made (convert)" in ran.out
    assert (tmp_path / "again.onnx").read_bytes() == written.read_bytes()


def test_another_policy_decides_anew_and_says_so(run: Run, written: Path, tmp_path: Path) -> None:
    ran = run("convert", written, tmp_path / "again.onnx", "--policy", "aggressive", "-v")
    assert "--policy aggressive asks for something else" in ran.out
    assert "mm (MatMul) runs in f16" in run("explain", tmp_path / "again.onnx", "mm").out


@pytest.mark.parametrize("command", ["convert", "tune"])
def test_no_provenance_leaves_it_out(run: Run, layer_norm: Path, tmp_path: Path, command: str) -> None:
    out, data = tmp_path / "out.onnx", tmp_path / "data.npz"
    np.savez(data, x=np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    words = ["--data", data, "--max-error", "1e-2"] if command == "tune" else []
    for extra, wanted in (([], 1), (["--no-provenance"], 0)):
        assert run(command, layer_norm, out, *words, "--quiet", *extra).code == 0
        assert len(onnx.load(out).metadata_props) == wanted


def test_no_provenance_leaves_it_out_of_every_file_of_a_folder(run: Run, layer_norm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    layer_norm.rename(folder / "a.onnx")
    for extra, wanted in (([], 1), (["--no-provenance"], 0)):
        assert run("convert", folder, tmp_path / f"out{wanted}", "--quiet", *extra).code == 0
        assert len(onnx.load(tmp_path / f"out{wanted}" / "a_fp16.onnx").metadata_props) == wanted


def test_compare_tells_what_was_decided_about_the_nodes_of_the_file(
    run: Run, layer_norm: Path, written: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    told = json.loads(run("compare", layer_norm, written, "--data", tmp_path / "data.npz", "--json").out)["decisions"]
    assert {node["name"]: node["rule"] for node in told}["mm"] == "exclude"
